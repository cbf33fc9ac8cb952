"""Beginnings of prompts are computed once: by family, over turns and clients, after cancelled and failed requests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.checkpoint import read_shape
from engine.contract.estimate import (
    FEW_BYTES,
    FEW_SLOTS,
    PREFIX_BYTES,
    PREFIX_SLOTS,
    prefix_bytes,
    prefix_slots,
    snapshot_bytes,
    state_bytes,
)
from engine.contract.events import PrefillProgress
from engine.model.build import load_model
from engine.model.loaded import LoadedModel
from engine.model.prefix import TAIL_TOKENS, PrefixStore
from engine.serve.messages import PromptMaker
from engine.serve.openai import ChatMessage
from tests.engine.model.conftest import Load, Tiny
from tests.support.parity import differences
from tests.support.reference import prefill, random_prompt
from tests.support.tiny_families import TINY_FAMILIES, tiny_family
from tests.support.tiny_models import TinyModel, plan_for
from tests.support.turns import Turn, ask, assert_as_cold

CUT_ANYWHERE = ("qwen3_moe", "deepseek_v3")  # full attention, latent attention
BY_SNAPSHOT = ("gpt_oss", "qwen3_next")  # sliding windows, recurrent states
FAMILIES = (*CUT_ANYWHERE, *BY_SNAPSHOT)
Start = Callable[..., LoadedModel]


@pytest.fixture(scope="module")
def start(checkpoint: Tiny) -> Iterator[Start]:
    """A model of a family with an empty cache, all layers locked; loaded once."""
    loaded: dict[tuple[str, int, int], LoadedModel] = {}

    def one(family: str, *, context_tokens: int = 200, prefill_chunk: int = 16) -> LoadedModel:
        key = (family, context_tokens, prefill_chunk)
        if key not in loaded:
            model = checkpoint(family)
            layers = "l" * len(model.shape.moe_layers)
            plan = plan_for(model, layers, context_tokens=context_tokens, prefill_chunk=prefill_chunk)
            loaded[key] = load_model(plan, report=lambda _: None, cancelled=lambda: False)
        loaded[key].reset()
        return loaded[key]

    yield one
    for model in loaded.values():
        model.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_turn_of_a_chat_of_4000_tokens_computes_its_new_tokens_only(family: str, start: Start) -> None:
    model = start(family, context_tokens=4200, prefill_chunk=512)
    first = random_prompt(4000)
    told = ask(model, first, 6)
    assert told.reused == 0
    new = random_prompt(20, seed=3)
    second = [*first, *told.answer, *new]
    turn = ask(model, second, 4)
    assert turn.reused == 4005, "the last token of the answer was picked, not computed"
    assert turn.prefilled == [told.answer[-1], *new]
    progress = [event.done_tokens for event in turn.events if isinstance(event, PrefillProgress)]
    assert (progress[0] > 4005, progress[-1]) == (True, 4026)
    assert_as_cold(model, second, turn)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_that_comes_back_in_other_tokens_costs_the_answer(family: str, start: Start) -> None:
    model = start(family)
    first = random_prompt(60)
    ask(model, first, 6)
    second = [*first[:-2], *random_prompt(30, seed=4)]
    turn = ask(model, second, 4)
    assert turn.reused == (58 if family in CUT_ANYWHERE else 60 - TAIL_TOKENS)
    assert_as_cold(model, second, turn)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_clients_that_take_turns_both_keep_their_conversations(family: str, start: Start) -> None:
    model = start(family)
    system = random_prompt(20, seed=9)
    chats = {"mine": [*system, *random_prompt(30)], "yours": [*system, *random_prompt(40, seed=2)]}
    turns: list[tuple[list[int], Turn]] = []
    for number in range(3):
        for name, prompt in chats.items():
            turn = ask(model, prompt, 3)
            turns.append((prompt, turn))
            if number:
                assert turn.reused >= len(prompt) - 6, "all but the newest question"
            chats[name] = [*prompt, *turn.answer, *random_prompt(5, seed=10 * number + len(name))]
    for prompt, turn in turns:
        assert_as_cold(model, prompt, turn)


@pytest.mark.parametrize("slots", [PREFIX_SLOTS, FEW_SLOTS], ids="{} slots".format)
@pytest.mark.parametrize("family", FAMILIES)
def test_three_clients_that_take_turns_all_go_on_also_with_few_slots(
    family: str, slots: int, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four slots two of the three have one snapshot: what they said last is computed again."""
    model = start(family, context_tokens=400)
    if family in BY_SNAPSHOT:
        monkeypatch.setattr(model._sequences, "_store", PrefixStore(400, slots=slots))
    chats = {name: random_prompt(40, seed=name) for name in range(3)}
    turns: list[tuple[list[int], Turn]] = []
    for number in range(3):
        for name, prompt in chats.items():
            turn = ask(model, prompt, 3)
            turns.append((prompt, turn))
            before = len(prompt) - 8  # the prompt of the turn before
            least = before + 2 if slots == PREFIX_SLOTS or family in CUT_ANYWHERE else before - TAIL_TOKENS
            assert turn.reused >= (least if number else 0)
            chats[name] = [*prompt, *turn.answer, *random_prompt(5, seed=10 * number + name)]
    for prompt, turn in turns:
        assert_as_cold(model, prompt, turn)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_prompt_again_computes_its_end(family: str, start: Start) -> None:
    model = start(family)
    prompt = random_prompt(50)
    first = ask(model, prompt, 4)
    again = ask(model, prompt, 4)
    assert again.reused == (49 if family in CUT_ANYWHERE else 50 - TAIL_TOKENS)
    torch.testing.assert_close(torch.stack(again.logits), torch.stack(first.logits), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cancelled_prompt_keeps_what_was_computed(family: str, start: Start) -> None:
    model = start(family)
    prompt = random_prompt(70)
    cancelled = ask(model, prompt, cancelled=lambda turn: len(turn.events) == 3)  # after two chunks
    assert cancelled.outcome is not None
    assert cancelled.outcome.finish_reason == "cancelled"
    turn = ask(model, prompt, 4)
    assert turn.reused == 32
    assert_as_cold(model, prompt, turn)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss", "qwen4_exp_text"])
def test_a_request_that_is_cancelled_before_its_first_step_disturbs_nobody(family: str, start: Start) -> None:
    """Qwen 4 keeps positions in one layer for all others; they are those of the sequence that goes on."""
    model = start(family)
    first = random_prompt(40)
    told = ask(model, first, 3)
    ask(model, random_prompt(30, seed=5), cancelled=lambda turn: True)
    second = [*first, *told.answer, *random_prompt(6, seed=2)]
    turn = ask(model, second, 4)
    assert turn.reused == 42
    assert_as_cold(model, second, turn)


@pytest.mark.parametrize(("step", "cut", "snapshot"), [(2, 16, 0), (8, 62, 52)])
@pytest.mark.parametrize("family", FAMILIES)
def test_after_a_step_that_failed_half_way_only_what_is_right_is_reused(
    family: str, step: int, cut: int, snapshot: int, start: Start
) -> None:
    """Step 2 is inside the prompt, step 8 inside the answer. The states of a failed step are lost."""
    model = start(family)
    prompt, failing = random_prompt(60), Turn()
    layers = model._model.model.layers
    calls = step - (family in CUT_ANYWHERE and step > 4)  # the others stop once more, for the snapshot

    def fail(*_: Any) -> None:
        nonlocal calls
        calls -= 1
        if not calls:
            raise RuntimeError("scripted failure in the last layer")

    hook = layers[-1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="scripted"):
        ask(model, prompt, 6, turn=failing)
    hook.remove()
    second = [*prompt, *failing.answer, *random_prompt(9, seed=7)]
    turn = ask(model, second, 4)
    assert turn.reused == (cut if family in CUT_ANYWHERE else snapshot)
    assert_as_cold(model, second, turn)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_that_needs_the_whole_pool_gets_it(family: str, start: Start) -> None:
    model = start(family)
    ask(model, random_prompt(30))
    ask(model, random_prompt(20, seed=2))
    prompt = random_prompt(145, seed=3)
    turn = ask(model, prompt, 1000)
    assert turn.outcome is not None
    assert turn.outcome.answer_tokens == 55
    assert model.cached_tokens == 199
    assert_as_cold(model, prompt, turn)


def test_a_model_that_reads_token_by_token_reuses_only_what_is_longer_than_its_first_chunk(start: Start) -> None:
    model = start("jamba", context_tokens=120)
    short = random_prompt(15)
    ask(model, short, 2)
    assert ask(model, [*short, *random_prompt(8, seed=2)]).reused == 0
    long = random_prompt(40, seed=3)
    told = ask(model, long, 2)
    second = [*long, *told.answer, 7]
    turn = ask(model, second, 2)
    assert turn.reused == 41
    assert_as_cold(model, second, turn)


@pytest.mark.parametrize("family", ["gpt_oss", "qwen3_next", "zaya"])
@pytest.mark.parametrize("layers", ["l", "p"])
def test_snapshots_take_the_planned_host_memory(family: str, layers: str, load: Load, tmp_path: Path) -> None:
    model = tiny_family(family, tmp_path / family)
    loaded = load(plan_for(model, layers * len(model.shape.moe_layers), context_tokens=40))
    assert differences(loaded.residency()) == ""
    settled = [line.bytes for line in loaded.residency().ledger_settled if line.what == "prefix snapshots"]
    assert settled == [prefix_bytes(model.shape, 40)] * 2  # RAM and commit
    assert settled[0] == PREFIX_SLOTS * snapshot_bytes(model.shape, 40) >= 4 * state_bytes(model.shape)


def test_snapshots_never_take_more_than_their_limit(checkpoint: Tiny) -> None:
    shape = checkpoint("gpt_oss").shape
    for mib, slots in ((1, PREFIX_SLOTS), (50, 10), (200, FEW_SLOTS), (400, 2), (1100, 0)):
        factor = mib << 10  # windows of 8 tokens, 2 heads, 2 layers, 4 B a value
        layers = tuple(
            layer.model_copy(update={"kv": layer.kv.model_copy(update={"key_dim": 8 * factor})})
            for layer in shape.layers
            if layer.kv is not None
        )
        wide = shape.model_copy(update={"layers": layers})
        count = prefix_slots(wide)
        assert count == slots
        assert prefix_bytes(wide, 512) <= (PREFIX_BYTES if count > FEW_SLOTS else FEW_BYTES)
    assert prefix_slots(checkpoint("qwen3_moe").shape) is None


@pytest.mark.slow
def test_a_chat_with_the_demo_models_own_template_goes_on_where_it_was(demo_model: Path, load: Load) -> None:
    on_disk = TinyModel(demo_model, read_shape(demo_model))
    model = load(plan_for(on_disk, "l" * len(on_disk.shape.moe_layers), context_tokens=512, prefill_chunk=128))
    prompts = PromptMaker(model.tokenizer, model.context_tokens)
    question = ChatMessage(role="user", content="What is the capital of France?")
    first = prompts.token_ids([question])
    told = ask(model, first, 6)
    said = ChatMessage(role="assistant", content=model.tokenizer.decode(told.answer))
    second = prompts.token_ids([question, said, ChatMessage(role="user", content="And of Spain?")])
    turn = ask(model, second, 6)
    assert len(first) + 5 <= turn.reused <= len(first) + 6, "the whole question and its answer"
    assert turn.prefilled == list(second[turn.reused :])
    model.reset()
    assert ask(model, second, 6).answer == turn.answer


@pytest.mark.slow
@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_every_family_reuses_rightly_or_not_at_all(family: str, start: Start) -> None:
    model = start(family, context_tokens=120)
    first, other = random_prompt(40), random_prompt(30, seed=5)
    told = ask(model, first, 3)
    ask(model, other, 2)
    second = [*first, *told.answer, *random_prompt(6, seed=2)]
    turn = ask(model, second, 4)
    pooled = any(kv.pooled for kv in model._parts.plan.model.kv_layers)
    assert turn.reused == (0 if pooled else 42)
    assert_as_cold(model, second, turn)


def test_a_prompt_without_a_request_goes_on_with_the_sequence(start: Start) -> None:
    model = start("gpt_oss")
    prefill(model, random_prompt(20))
    prefill(model, random_prompt(10, seed=2))
    assert model.cached_tokens == 30
