"""Splits of well-known machines, placed by hand: what the Split page shows in each state, without planner or engine."""

from dataclasses import replace

from app.core.learned import Experience, machine_of
from app.core.measuring import Measuring
from app.core.session import ActiveRequest, EngineStage, ReadSpan, SessionState, SplitChange
from app.planning.speed import run_of
from app.planning.stops import Marker, SliderStops, Stop
from app.planning.wishes import Wishes
from app.supervision.exit_words import explain_end
from app.ui.split_change import pending_of
from app.ui.split_inputs import LeftOver, QuotaFacts, SplitInputs
from app.ui.tray_view import Glyph
from engine.contract.errors import NotEnoughRamError, Problem
from engine.contract.estimate import Costs, Split, bank_bytes, ledger
from engine.contract.events import LayerSettled, Loading, PlanChanging, StepStalled
from engine.contract.facts import GpuFacts, HardwareFacts, Reading, Source
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.rates import AttentionRates, KernelRates, MeasuredRates
from engine.contract.residency import LayerResidency, ResidencyReport
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape
from engine.contract.units import GIB, MIB

# As many bytes as MiniMax-M2.5 in NVFP4, written as bf16, which the engine can run.
MINIMAX = ModelShape(
    name="MiniMax-M2.5",
    family="minimax_m2",
    hidden_size=3072,
    vocab_size=200064,
    max_context_tokens=196608,
    layers=tuple(
        LayerShape(index=i, kv=KvShape(n_kv_heads=8, key_dim=128, value_dim=128), moe=True) for i in range(62)
    ),
    experts=ExpertShape(n_experts=256, top_k=8, width=3072, inner=432),
    expert_format=WeightFormat.BF16,
    dense_format=WeightFormat.BF16,
    dense_bytes=int(5.4 * GIB),
    source="headers",
)
DEMO = ModelShape(
    name="splitpin-demo-8x135m",
    family="mixtral",
    hidden_size=576,
    vocab_size=49152,
    max_context_tokens=8192,
    layers=tuple(LayerShape(index=i, kv=KvShape(n_kv_heads=3, key_dim=64, value_dim=64), moe=True) for i in range(30)),
    experts=ExpertShape(n_experts=8, top_k=2, width=576, inner=1536),
    expert_format=WeightFormat.BF16,
    dense_format=WeightFormat.BF16,
    dense_bytes=110 * MIB,
    source="headers",
)
_READY = Glyph("ready", ((Tier.VRAM, 8), (Tier.PINNED, 50), (Tier.LOCKED, 4)))
GLYPHS = {
    "stopped": Glyph(),
    "loading": Glyph("loading", share=0.4),
    "ready": _READY,
    "changed, stuck": Glyph("ready", _READY.shares, badge="warn"),
    "left over": Glyph(badge="warn"),
    "error": Glyph(badge="error"),
}
BIG = HardwareFacts(
    label="192 GB desktop with an RTX 5090",
    os="windows",
    cpu="AMD Ryzen 9 9950X",
    ram_total=Reading(value=int(191.7 * GIB), source=Source.READ),
    ram_available=Reading(value=int(177.1 * GIB), source=Source.READ),
    gpus=(
        GpuFacts(
            name="NVIDIA GeForce RTX 5090",
            vendor="nvidia",
            cuda=True,
            vram_total=Reading(value=int(31.8 * GIB), source=Source.READ),
            vram_used=Reading(value=int(0.9 * GIB), source=Source.READ),
        ),
    ),
)
NO_GPU = HardwareFacts(
    label="office PC",
    os="linux",
    cpu="Intel Core i7-12700",
    ram_total=Reading(value=int(31.1 * GIB), source=Source.READ),
    ram_available=Reading(value=int(25.4 * GIB), source=Source.READ),
    gpus=(GpuFacts(name="Intel UHD Graphics 770", vendor="intel"),),
)
COSTS = Costs(context_bytes=int(0.5 * GIB), host_runtime_bytes=int(0.6 * GIB))
BARE_COSTS = Costs(host_runtime_bytes=int(0.6 * GIB))
QUOTA = QuotaFacts(int(95.6 * GIB), Source.MEASURED, "measured today 14:02")
CONTEXTS = tuple(9_472 + 8_192 * step for step in range(12))


def stops_of(contexts: tuple[int, ...], pin_full: int | None = None, ram_full: int | None = None) -> SliderStops:
    """Stops with these contexts; `pin_full` and `ram_full` are the first stops beyond a limit."""
    return SliderStops(
        tuple(Stop(context, 11 - i, 50, i + 1, 0, 64) for i, context in enumerate(contexts)),
        None if pin_full is None else Marker(pin_full, 50, "quota"),
        None if ram_full is None else Marker(ram_full, 60, "ram"),
    )


def plan_of(
    shape: ModelShape,
    vram: int,
    pinned: int,
    pageable: int = 0,
    *,
    context: int,
    ram_budget: int | None = int(173 * GIB),
    vram_budget: int | None = int(30 * GIB),
    simulated: SimulatedGpu | None = None,
    on_gpu: bool = True,
) -> MemoryPlan:
    """A plan with its tiers in blocks: vram, pinned, locked, pageable."""
    locked = len(shape.moe_layers) - vram - pinned - pageable
    tiers = (Tier.VRAM,) * vram + (Tier.PINNED,) * pinned + (Tier.LOCKED,) * locked + (Tier.PAGEABLE,) * pageable
    slots = 0 if not pinned else 8 if simulated else 64
    split = Split(context_tokens=context, prefill_chunk=512, expert_slots=slots, tiers=tiers, on_gpu=on_gpu)
    return MemoryPlan(
        model_dir="/models/sample",
        model=shape,
        device="cpu" if not on_gpu else "simulated" if simulated else "cuda",
        simulated=simulated,
        context_tokens=context,
        prefill_chunk=512,
        expert_slots=slots,
        tiers=tiers,
        ledger=ledger(shape, split, COSTS if on_gpu and not simulated else BARE_COSTS),
        budgets={Pool.VRAM: vram_budget, Pool.RAM: ram_budget},
    )


def stopped() -> SplitInputs:
    """The reference state: 8 layers in VRAM, 50 pinned, 4 locked."""
    return SplitInputs(
        model_name=MINIMAX.name,
        shape=MINIMAX,
        facts=BIG,
        plan=plan_of(MINIMAX, 8, 50, context=34_048),
        stops=stops_of(CONTEXTS, 0),
        quota=QUOTA,
    )


def many_layers() -> SplitInputs:
    """The longest of everything: 94 layers, a million tokens, a name that ends nowhere; and no layer in VRAM."""
    name = "Qwen3-Next-480B-A35B-Thinking-2507-Instruct-UD-Q4_K_XL-00001-of-00003"
    layers = tuple(MINIMAX.layers[0].model_copy(update={"index": index}) for index in range(94))
    shape = MINIMAX.model_copy(update={"name": name, "layers": layers, "max_context_tokens": 1_048_576})
    return replace(
        stopped(),
        model_name=name,
        shape=shape,
        plan=plan_of(shape, 0, 50, context=1_024_000, ram_budget=None, vram_budget=None),
    )


def loading(layers_done: int = 35) -> SplitInputs:
    """Layer 36 of 62 is half read."""
    base = stopped()
    assert base.plan is not None
    bank = bank_bytes(MINIMAX.experts, MINIMAX.expert_format)
    done = MINIMAX.dense_bytes + layers_done * bank + bank // 2
    progress = Loading(
        stage="experts",
        layers_done=layers_done,
        layers_total=62,
        bytes_done=done,
        bytes_total=MINIMAX.dense_bytes + 62 * bank,
        elapsed_s=done / (2.5 * GIB),
    )
    settled = {
        layer: LayerSettled(layer=layer, asked=tier, settled=tier)
        for layer, tier in zip(range(layers_done), base.plan.tiers, strict=False)
    }
    reading = ReadSpan(from_s=0.0, until_s=progress.elapsed_s, from_bytes=0, until_bytes=done)
    session = SessionState(
        stage=EngineStage.LOADING, plan=base.plan, loading=progress, reading=reading, settled=settled
    )
    return replace(base, session=session, loading=progress)


def _residency(plan: MemoryPlan, fallen: range) -> ResidencyReport:
    bank = bank_bytes(plan.model.experts, plan.model.expert_format)
    layers = tuple(
        LayerResidency(
            layer=layer,
            asked=asked,
            settled=Tier.LOCKED if layer in fallen else asked,
            bytes=bank,
            cause="The driver refused to pin more than 89.2 GiB." if layer in fallen else None,
        )
        for layer, asked in zip(plan.model.moe_layers, plan.tiers, strict=True)
    )
    tiers = tuple(layer.settled for layer in layers)
    split = Split(
        context_tokens=plan.context_tokens,
        prefill_chunk=plan.prefill_chunk,
        expert_slots=plan.expert_slots,
        tiers=tiers,
        on_gpu=plan.device != "cpu",
    )
    return ResidencyReport(
        device="NVIDIA GeForce RTX 5090",
        simulated=False,
        layers=layers,
        ledger_asked=plan.ledger,
        ledger_settled=ledger(plan.model, split, COSTS),
        self_test="layer 8 agrees between GPU and CPU",
    )


def ready(fallen: range = range(0)) -> SplitInputs:
    """Loaded; `fallen` layers were refused and are locked instead."""
    base = loading(61)
    assert base.plan is not None
    session = SessionState(
        stage=EngineStage.READY,
        plan=base.plan,
        reading=base.session.reading,
        host="127.0.0.1",
        port=1919,
        residency=_residency(base.plan, fallen),
    )
    return replace(base, session=session, ready_at="14:06")


def settled() -> SplitInputs:
    """Ready, but layers 55 to 57 fell from pinned to locked."""
    return ready(range(55, 58))


def answering() -> SplitInputs:
    base = ready()
    return replace(base, session=replace(base.session, request=ActiveRequest("r1", 1200)))


def wishing(
    inputs: SplitInputs | None = None, plan: MemoryPlan | None = None, refused: Problem | None = None
) -> SplitInputs:
    """An engine runs, and the slider stands elsewhere: a longer context, four layers fewer in VRAM."""
    base = inputs or ready()
    wanted = plan or plan_of(MINIMAX, 4, 50, context=66_816)
    wishes = Wishes(context_tokens=wanted.context_tokens)
    return replace(base, wishes=wishes, plan=wanted, touched=True, pending=pending_of(base.session, wanted, refused))


def wishing_for_room() -> SplitInputs:
    """Two layers exchange places, and RAM is too full to hold one of them twice meanwhile."""
    running = ready().session.plan
    assert running is not None
    tiers = (running.tiers[-1], *running.tiers[1:-1], running.tiers[0])
    limits = {**running.budgets, Pool.RAM: running.pool_bytes(Pool.RAM) + GIB}
    return wishing(plan=running.model_copy(update={"tiers": tiers, "budgets": limits}))


def wishing_after_refused_pins() -> SplitInputs:
    """The driver has refused pins in this run; the wish would need more of them."""
    return wishing(settled())


def changing(*, waits: bool = False) -> SplitInputs:
    """The engine is taking another split, or an answer comes first."""
    base = wishing(answering() if waits else ready())
    assert base.plan is not None
    moving = None if waits else PlanChanging(bytes_done=9 * GIB, bytes_total=27 * GIB)
    session = replace(base.session, change=SplitChange(base.plan, moving=moving))
    return replace(base, session=session, pending=pending_of(session, base.plan))


def stalled() -> SplitInputs:
    """The engine has not finished a token for four minutes."""
    base = answering()
    step = StepStalled(request_id="r1", phase="decode", running_s=250, limit_s=120)
    return replace(base, session=replace(base.session, stalled=step))


def over() -> SplitInputs:
    """Two layers do not fit in RAM: there is no plan, only what it would look like."""
    problem = NotEnoughRamError(
        needed_bytes=int(177 * GIB), available_bytes=int(173.2 * GIB), fix="Choose a shorter context."
    ).problem
    return replace(
        stopped(),
        plan=None,
        drawn=plan_of(MINIMAX, 0, 50, 2, context=99_584, ram_budget=None, vram_budget=None),
        problem=problem,
        stops=stops_of(CONTEXTS, 4, 10),
        wishes=Wishes(context_tokens=99_584),
    )


def unknown_quota() -> SplitInputs:
    return replace(
        stopped(),
        plan=plan_of(MINIMAX, 7, 40, context=42_240),
        stops=SliderStops(stops_of(CONTEXTS).stops, Marker(0, 40, "quota", assumed=True)),
        quota=QuotaFacts(
            int(76.7 * GIB), Source.ASSUMED, "assumed, not measured", "40 % of RAM", ceiling_bytes=int(95.9 * GIB)
        ),
    )


def measuring() -> SplitInputs:
    """The probe for pinned memory has come to 41 GiB."""
    return replace(unknown_quota(), measuring=Measuring("pins", 41 * GIB, int(95.9 * GIB)))


def with_speed(inputs: SplitInputs, *, runs: int = 0) -> SplitInputs:
    """This PC was measured, or has run the very split."""
    assert inputs.plan is not None
    form, kernel = inputs.plan.model.expert_format, KernelRates(bytes_s=4e10, flops_s=9e11, rows=48)
    rates = MeasuredRates(
        device="RTX 5090",
        threads=16,
        cpu={form: kernel},
        attention=AttentionRates(token_flops_s=4e9, prompt_flops_s=9e10),
        call_s=2e-5,
        prompt_call_s=1e-4,
        memcpy_bytes_s=3e10,
        gpu={form: KernelRates(bytes_s=1.2e12, flops_s=1e14, rows=390)},
        gpu_attention=AttentionRates(token_flops_s=6e11, prompt_flops_s=5e13),
        gpu_call_s=2e-5,
        gpu_prompt_call_s=4e-5,
        pinned_copy_bytes_s=5e10,
        copy_call_s=1e-5,
        pageable_copy_bytes_s=1.5e10,
        elapsed_s=6,
    )
    run = run_of(inputs.plan, prompt_tokens=900, answer_tokens=400, decode_tok_s=9.1, prefill_tok_s=310.0)
    assert run is not None
    known = Experience(machine=machine_of(BIG), rates=rates, runs=(run,) * runs)
    return replace(inputs, known=known)


def orphan() -> SplitInputs:
    """A left-over process holds 14.2 GiB of VRAM and 28.9 GiB of RAM."""
    gpu = BIG.gpus[0].model_copy(update={"vram_used": Reading(value=int(15.1 * GIB), source=Source.READ)})
    facts = BIG.model_copy(update={"gpus": (gpu,), "ram_available": Reading(value=int(147 * GIB), source=Source.READ)})
    return replace(
        stopped(),
        facts=facts,
        plan=plan_of(MINIMAX, 3, 34, context=13_824, vram_budget=int(16 * GIB), ram_budget=int(143 * GIB)),
        stops=stops_of(CONTEXTS[:4], 0),
        left_over=LeftOver(int(14.2 * GIB), int(28.9 * GIB)),
    )


def crashed() -> SplitInputs:
    base = stopped()
    problem = Problem(
        kind="engine_stopped",
        sentence="The engine ended without a message 14 s after loading: exit code 0xC0000005, access violation.",
        fix="Start again; if it happens again, open the log.",
        numbers={"exit_code": "0xC0000005", "elapsed_s": 14},
    )
    return replace(base, session=SessionState(stage=EngineStage.FAILED, plan=base.plan, problem=problem))


def pins_refused() -> SplitInputs:
    """The engine ended when the driver refused the 42nd layer."""
    base = stopped()
    assert base.plan is not None
    stopped_by = explain_end(1, ("RuntimeError: cudaHostRegister failed: out of memory",), log_file="engine.log")
    pinned = [layer for layer, tier in zip(MINIMAX.moe_layers, base.plan.tiers, strict=True) if tier is Tier.PINNED]
    settled = {layer: LayerSettled(layer=layer, asked=Tier.PINNED, settled=Tier.PINNED) for layer in pinned[:41]}
    return replace(
        base,
        session=SessionState(stage=EngineStage.FAILED, plan=base.plan, problem=stopped_by.problem, settled=settled),
    )


def no_gpu() -> SplitInputs:
    """Everything is locked and the CPU computes it."""
    return SplitInputs(
        model_name="demo model",
        shape=DEMO,
        facts=NO_GPU,
        plan=plan_of(DEMO, 0, 0, context=8_192, on_gpu=False, ram_budget=int(22.9 * GIB), vram_budget=None),
        stops=stops_of((1024, 2048, 4096, 8192)),
    )


def simulated() -> SplitInputs:
    """The demo model on a simulated GPU."""
    limits = SimulatedGpu(vram_bytes=800 * MIB, pin_bytes=300 * MIB)
    return SplitInputs(
        model_name="demo model",
        shape=DEMO,
        facts=NO_GPU,
        wishes=Wishes(simulated_gpu=limits),
        plan=plan_of(DEMO, 6, 7, context=4096, simulated=limits, ram_budget=int(22.9 * GIB), vram_budget=800 * MIB),
        stops=SliderStops(stops_of((1024, 2048, 4096, 8192)).stops, Marker(1, 7, "quota")),
        quota=QuotaFacts(300 * MIB, Source.SIMULATED, "of the simulated GPU"),
    )


def unreadable() -> SplitInputs:
    problem = Problem(
        kind="model_file",
        sentence="model-00014-of-00027.safetensors is 3.1 GiB; its header names 4.9 GiB.",
        fix="Copy this file again.",
    )
    return SplitInputs(model_name=MINIMAX.name, facts=BIG, problem=problem)
