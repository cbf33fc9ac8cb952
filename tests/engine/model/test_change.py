"""Another split for a loaded model: all or nothing, and the same tokens before and after."""

import random
from collections.abc import Callable, Iterator

import pytest
from torch import Tensor

from engine.banks.move import CopyWrongError
from engine.contract.errors import (
    NotEnoughCommitError,
    NotEnoughRamError,
    NotEnoughVramError,
    PinQuotaError,
    PlanMismatchError,
    SplitpinError,
)
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.plan_change import PlanWish, changed_plan
from engine.model.build import load_model
from engine.model.change import ChangeNotUndoneError
from engine.model.loaded import LoadedModel
from engine.serve.openai import api_error
from engine.system.protocols import LockRefusedError, PinRefusedError, RefusedError
from tests.engine.model.conftest import Tiny
from tests.support.reference import greedy, random_prompt
from tests.support.refusals import Machine, reported
from tests.support.tiny_models import layer_bytes, plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)
PROMPT = random_prompt(20)
LETTERS = {"v": Tier.VRAM, "p": Tier.PINNED, "l": Tier.LOCKED, "g": Tier.PAGEABLE}

Begin = Callable[..., "Engine"]


class Engine:
    """A loaded model on a machine that can be looked at."""

    def __init__(self, plan: MemoryPlan, limits: SimulatedGpu) -> None:
        self.machine = Machine(limits)
        self.model: LoadedModel = load_model(
            plan, report=lambda _: None, cancelled=lambda: False, drivers=self.machine.drivers
        )

    def tokens(self) -> list[int]:
        self.model.reset()
        return greedy(self.model, PROMPT, 6)

    def change(self, tiers: str, **more: int) -> None:
        wish = PlanWish(tiers=tuple(LETTERS[letter] for letter in tiers), **more)
        self.model.change_plan(changed_plan(self.model.plan, wish))

    def assert_consistent(self) -> None:
        """Report, plan, drivers and ledger say the same."""
        report, plan = self.model.residency(), self.model.plan
        assert self.model.check_integrity() == ()
        assert reported(report) == self.machine.held()
        assert [layer.settled for layer in report.layers] == list(plan.tiers)
        assert report.ledger_settled == plan.ledger
        vram = {line.what: line.bytes for line in plan.ledger if line.pool is Pool.VRAM}
        assert self.machine.device.allocated == vram
        assert self.model.context_tokens == plan.context_tokens


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Loads plans; afterwards everything must be given back."""
    started: list[Engine] = []

    def one(plan: MemoryPlan, limits: SimulatedGpu = ROOMY) -> Engine:
        started.append(Engine(plan, limits))
        return started[-1]

    yield one
    for engine in started:
        engine.model.close()
        assert engine.machine.nothing_held()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("vvvv", "pppp"),
        ("pppp", "vvvv"),
        ("vplg", "glpv"),
        ("vvpp", "ppvv"),
        ("plpl", "lplp"),
        ("vplg", "lvpg"),
        ("llgg", "ggll"),
        ("gggg", "vplg"),
    ],
)
def test_layers_change_their_tiers_and_the_answer_stays(before: str, after: str, tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("mixtral"), before, simulated=ROOMY))
    want = engine.tokens()
    engine.change(after)
    engine.assert_consistent()
    assert engine.tokens() == want
    engine.change(before)
    engine.assert_consistent()
    assert engine.tokens() == want


@pytest.mark.parametrize(("before", "after"), [("vppl", "ppll"), ("vvll", "llvv"), ("pplg", "vlpp"), ("vppl", "vppl")])
def test_how_far_a_change_is_is_told_up_to_its_end(before: str, after: str, tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("mixtral"), before, simulated=ROOMY))
    told: list[tuple[int, int]] = []
    wish = PlanWish(tiers=tuple(LETTERS[letter] for letter in after), context_tokens=128)
    engine.model.change_plan(changed_plan(engine.model.plan, wish), lambda done, total: told.append((done, total)))
    total = told[0][1]
    assert (total > 0) is (before != after)
    assert told[0] == (0, total) and told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {one for _, one in told} == {total}


def test_cache_and_slots_take_their_new_sizes(tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("mixtral"), "vppl", context_tokens=64, expert_slots=2, prefill_chunk=8))
    want = engine.tokens()
    engine.change("vppl", context_tokens=256, expert_slots=5, prefill_chunk=32)
    engine.assert_consistent()
    assert engine.tokens() == want
    engine.change("vppl", context_tokens=32, expert_slots=1)
    engine.assert_consistent()
    assert engine.tokens() == want


def test_without_a_gpu_layers_are_locked_and_let_go(tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("qwen3_moe"), "lgl"))
    want = engine.tokens()
    engine.change("glg", context_tokens=128)
    assert reported(engine.model.residency())[Tier.LOCKED] == [layer_bytes(tiny("qwen3_moe"))]
    assert engine.tokens() == want


def test_layers_that_exchange_places_are_never_pinned_beside_each_other(tiny: Tiny, begin: Begin) -> None:
    """A quota that is full to the last byte is enough: the seats stay pinned, the layers change."""
    checkpoint = tiny("mixtral")
    full = ROOMY.model_copy(update={"pin_bytes": 2 * layer_bytes(checkpoint)})
    engine = begin(plan_for(checkpoint, "vppl", simulated=full), full)
    want = engine.tokens()
    for tiers in ("pvlp", "lppv", "plvp"):
        engine.change(tiers)
        engine.assert_consistent()
        assert engine.tokens() == want


def test_vram_that_is_full_to_the_last_byte_is_enough_for_an_exchange(tiny: Tiny, begin: Begin) -> None:
    checkpoint = tiny("mixtral")
    plan = plan_for(checkpoint, "vvpl", simulated=ROOMY)
    full = ROOMY.model_copy(update={"vram_bytes": plan.pool_bytes(Pool.VRAM)})
    engine = begin(plan_for(checkpoint, "vvpl", simulated=full), full)
    want = engine.tokens()
    engine.change("plvv")
    engine.assert_consistent()
    assert engine.tokens() == want


def test_the_ring_is_exchanged_for_a_larger_one_with_a_pinned_side(tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("mixtral"), "vpll", simulated=ROOMY))
    want = engine.tokens()
    engine.change("vpll", ring_experts=4, ring_staged=1)
    engine.assert_consistent()
    assert engine.tokens() == want
    engine.change("vlll", ring_experts=2, ring_staged=0)
    engine.assert_consistent()
    assert engine.tokens() == want


def test_a_ring_that_may_not_be_pinned_is_a_refusal_as_of_a_layer_and_changes_nothing(tiny: Tiny, begin: Begin) -> None:
    no_pins = ROOMY.model_copy(update={"pin_bytes": 0})
    engine = begin(plan_for(tiny("mixtral"), "vlll", simulated=no_pins), no_pins)
    want = engine.tokens()
    with pytest.raises(RefusedError, match="could not be pinned for the transfer ring") as caught:
        engine.change("vlll", ring_experts=4, ring_staged=1)
    assert (caught.value.kind, api_error(caught.value).status) == ("pin_refused", 507)
    engine.assert_consistent()
    assert engine.tokens() == want


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_plans_with_refusals_anywhere_keeps_or_changes_all(
    family: str, seed: int, tiny: Tiny, begin: Begin
) -> None:
    chance = random.Random(f"{family} {seed}")
    checkpoint = tiny(family)
    layers = len(checkpoint.shape.moe_layers)
    engine = begin(plan_for(checkpoint, "".join(chance.choices("vplg", k=layers)), simulated=ROOMY))
    want = engine.tokens()
    for _ in range(8):
        before = (engine.model.plan, engine.model.residency(), engine.machine.held())
        engine.machine.script.arm(chance.choice([None, *range(12)]))
        already = len(engine.machine.script.refused)
        try:
            engine.change(
                "".join(chance.choices("vplg", k=layers)),
                context_tokens=chance.choice([32, 64, 96]),
                expert_slots=chance.choice([1, 2, 5]),
                prefill_chunk=chance.choice([4, 16]),
                **chance.choice([{}, {"ring_experts": 0, "ring_staged": 0}, {"ring_experts": 4, "ring_staged": 1}]),
            )
        except SplitpinError as refusal:
            assert len(engine.machine.script.refused) == already + 1, refusal
            assert refusal.kind in ("vram", "pin_refused", "lock_refused", "commit")
            assert refusal.numbers, "a refusal has its numbers"
            assert (engine.model.plan, engine.model.residency(), engine.machine.held()) == before
        else:
            assert len(engine.machine.script.refused) == already
        engine.machine.script.arm(None)
        engine.assert_consistent()
        assert engine.tokens() == want


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ("vram", NotEnoughVramError),
        ("pin", PinRefusedError),
        ("lock", LockRefusedError),
        ("commit", NotEnoughCommitError),
    ],
)
def test_every_kind_of_refusal_has_its_own_error(
    refused: str, error: type[SplitpinError], tiny: Tiny, begin: Begin
) -> None:
    engine = begin(plan_for(tiny("mixtral"), "vvgg", simulated=ROOMY))
    want = engine.tokens()
    script, seen = engine.machine.script, set[str]()
    for number in range(40):
        script.arm(number)
        try:
            engine.change("plgg", context_tokens=512)
        except error:
            seen.add(script.refused[-1])
        except SplitpinError:
            pass
        else:
            break
    script.arm(None)
    assert refused in seen
    assert engine.tokens() == want


def test_a_quota_that_is_known_is_checked_before_anything_moves(tiny: Tiny, begin: Begin) -> None:
    checkpoint = tiny("mixtral")
    plan = plan_for(checkpoint, "vpll", simulated=ROOMY)
    budgets = {**plan.budgets, Pool.PINNED: layer_bytes(checkpoint)}
    engine = begin(plan.model_copy(update={"budgets": budgets}))
    with pytest.raises(PinQuotaError) as why:
        engine.change("vppl")
    assert why.value.numbers == {
        "needed_bytes": 2 * layer_bytes(checkpoint),
        "available_bytes": layer_bytes(checkpoint),
    }
    engine.assert_consistent()


def test_room_for_moving_is_checked_before_anything_moves(tiny: Tiny, begin: Begin) -> None:
    """The split fits to the byte; the bank that stands aside while two exchange their places does not."""
    checkpoint = tiny("mixtral")
    plan = plan_for(checkpoint, "vpll", simulated=ROOMY)
    engine = begin(plan.model_copy(update={"budgets": {**plan.budgets, Pool.RAM: plan.pool_bytes(Pool.RAM)}}))
    blocks = len(engine.machine.memory.blocks)
    with pytest.raises(NotEnoughRamError, match="Moving the layers while the engine runs") as why:
        engine.change("pvll")
    assert why.value.short_bytes == layer_bytes(checkpoint)
    assert len(engine.machine.memory.blocks) == blocks
    engine.assert_consistent()


def test_a_pin_that_was_refused_once_is_not_tried_again_but_other_moves_go_on(tiny: Tiny, begin: Begin) -> None:
    checkpoint = tiny("mixtral")
    small = ROOMY.model_copy(update={"pin_bytes": layer_bytes(checkpoint)})
    engine = begin(plan_for(checkpoint, "vpll", simulated=small), small)
    want = engine.tokens()
    for words in ("are pinned", "not tried again"):
        with pytest.raises(PinRefusedError, match=words):
            engine.change("vppl")
        engine.assert_consistent()
    engine.change("pvgl")
    engine.assert_consistent()
    assert engine.tokens() == want


def test_a_layer_that_fell_stays_where_it_is_while_it_is_asked_for_the_same(tiny: Tiny, begin: Begin) -> None:
    checkpoint = tiny("mixtral")
    small = ROOMY.model_copy(update={"pin_bytes": layer_bytes(checkpoint)})
    engine = begin(plan_for(checkpoint, "vppl", simulated=small), small)
    want = engine.tokens()
    [fallen] = engine.model.residency().fallen
    engine.change("lppl", context_tokens=128)
    assert engine.model.residency().fallen == (fallen,)
    engine.change("lpll")
    assert engine.model.residency().fallen == ()
    engine.assert_consistent()
    assert engine.tokens() == want


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_dir": "/elsewhere"}, "another model folder"),
        ({"gpu_uuid": "GPU-2"}, "another GPU"),
        ({"simulated": SimulatedGpu(vram_bytes=1, pin_bytes=1)}, "another simulated GPU"),
        ({"ledger": ()}, "not that of its split"),
        ({"expert_slots": 0}, "pinned layers need expert slots"),
    ],
)
def test_a_plan_for_something_else_is_refused(change: dict[str, object], words: str, tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("mixtral"), "vplg", simulated=ROOMY))
    with pytest.raises(PlanMismatchError, match=words):
        engine.model.change_plan(engine.model.plan.model_copy(update=change))
    engine.assert_consistent()


def test_a_wish_must_name_a_tier_for_every_layer(tiny: Tiny, begin: Begin) -> None:
    engine = begin(plan_for(tiny("mixtral"), "vplg", simulated=ROOMY))
    with pytest.raises(PlanMismatchError, match="3 tiers were given; mixtral has 4 layers of experts"):
        engine.change("vpl")


def test_a_copy_that_lost_bytes_is_noticed_and_undone(
    tiny: Tiny, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begin(plan_for(tiny("mixtral"), "plll", simulated=ROOMY))
    want = engine.tokens()
    whole = type(engine.machine.device).copy_in

    def half(device: object, target: Tensor, source: Tensor, after: object) -> object:
        keep = len(source) // 2 if len(source) >= layer_bytes(tiny("mixtral")) else len(source)
        return whole(engine.machine.device, target[:keep], source[:keep], None)

    monkeypatch.setattr(type(engine.machine.device), "copy_in", half)
    with pytest.raises(CopyWrongError, match="Layer 0 did not arrive whole"):
        engine.change("vlll")
    monkeypatch.undo()
    engine.assert_consistent()
    assert engine.tokens() == want


def test_what_cannot_be_undone_is_said_to_be_so(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an engine ends; its memory goes with the process."""
    engine = Engine(plan_for(tiny("mixtral"), "vlll", simulated=ROOMY), ROOMY)
    device = engine.machine.device

    def never(nbytes: int, what: str) -> Tensor:
        raise NotEnoughVramError(needed_bytes=nbytes, available_bytes=0, fix="Close programs.")

    monkeypatch.setattr(device, "allocate", never)
    with pytest.raises(ChangeNotUndoneError, match="the old one could not be restored"):
        engine.change("llll", context_tokens=96)
