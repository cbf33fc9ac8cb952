"""Bytes of torch tensors alive at one time, counted operation by operation."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make while this is active; `peak_bytes` is the most that lived at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self._known: set[int] = set()

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if _is_tensor(tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if _is_tensor(tensor) and tensor.untyped_storage()._cdata not in given | self._known:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        number, size = storage._cdata, storage.nbytes()
        self._known.add(number)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._forget, number, size)

    def _forget(self, number: int, size: int) -> None:
        self._known.discard(number)
        self.live_bytes -= size


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)
