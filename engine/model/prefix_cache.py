"""The KV cache of many sequences: the store says which and where, the cache and its snapshots do it."""

from collections.abc import Sequence

from engine.model.kv_cache import KvCache
from engine.model.prefix import TAIL_TOKENS, PrefixStore


class PrefixCache:
    """One sequence is computed at a time; the beginnings of others wait in the same pool.

    Full and latent attention, with or without an index: any common beginning is reused. Sliding windows, recurrent
    states and short convolutions: the beginnings that have a snapshot. Pooled attention, and windows or states so large
    that not one snapshot has room: nothing is reused.
    """

    def __init__(self, cache: KvCache, prefill_chunk: int, *, resumes: bool) -> None:
        """`resumes` False: after the first chunk the model computes token by token, so short beginnings are no gain."""
        self.cache = cache
        self.prefill_chunk = prefill_chunk
        self._least = 1 if resumes else prefill_chunk
        self._store = PrefixStore(cache.context_tokens, slots=cache.slots, least_tokens=self._least)
        self._sound = True
        self.reset()

    @property
    def cached_tokens(self) -> int:
        """Of the current sequence."""
        return len(self._store.tokens)

    def reset(self) -> None:
        """Forget all sequences."""
        self._store.reset()
        self.cache.seek(0, 0)
        self._sound = True

    def begin(self, prompt: Sequence[int]) -> int:
        """Turn to this prompt; how many of its first tokens are there already, at most all but one."""
        self._sound = False
        try:
            start = self._store.begin(prompt)
            self.cache.move(start.moves)
            self.cache.seek(start.place, start.reused)
            if start.snapshot is not None:
                self.cache.snapshots.load(start.snapshot)
        except BaseException:
            self._store.reset()  # half of the moves may be done
            raise
        self._sound = True
        return start.reused

    def make_room(self, new_tokens: int) -> None:
        """Before so many tokens of the current sequence are computed; others are forgotten where that is needed."""
        self._sound = False
        try:
            moves = self._store.make_room(new_tokens)
            if moves:
                self.cache.move(moves)
                self.cache.seek(self._store.place, self.cached_tokens)
        except BaseException:
            self._store.reset()
            raise

    def computed(self, token_ids: Sequence[int]) -> None:
        """These tokens are in all layers now. Until this is said, the layers may differ in what they hold."""
        self._store.append(token_ids)
        self._sound = True

    def tail(self, new_tokens: int) -> int:
        """After how many of a prompt's new tokens to stop for a snapshot; 0: nowhere.

        Templates open an answer in one way and write an old one in another, so the end of a prompt does not come again.
        """
        before = new_tokens - TAIL_TOKENS
        wanted = bool(self.cache.slots) and before > 0 and self.cached_tokens + before >= self._least
        return before if wanted else 0

    def snapshot(self) -> None:
        """Keep windows and states as they are now, if the model has such and no step has failed half way."""
        slot = self._store.take_snapshot() if self._sound else None
        if slot is None:
            return
        try:
            self.cache.snapshots.save(slot)
        except BaseException:
            self._store.drop_snapshot(slot)
            raise
