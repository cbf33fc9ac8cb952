"""What figures of this PC make of a split: seconds of one token, and of a prompt until its first token is known.

Both are sums, because the engine computes one layer after another:

- the experts of a layer cost what engine/contract/steps.py says of them, on the processor that it chooses: layers in
  VRAM on the GPU; pinned ones there too, but for experts that have to cross first; locked ones on the CPU, or on the
  GPU through both sides of the transfer ring where that is faster, as it is for long prompts;
- how many experts of pinned layers are in no slot is not known before a run: as many as slots hold if all are chosen
  equally often, fewer misses (the square root of that) if some are favoured. A prompt finds none of them in a slot, or
  as many as slots hold;
- the other weights are read once, the embedding at most in part, and multiply every row of a prompt;
- attention goes through an empty to a full context, and multiplies what is masked as well; where keys and values are
  packed, they are unpacked first;
- an expert costs the calls of its operations, in a prompt also what is prepared anew for its number of rows;
- every layer calls dozens of operations, whose time was measured for one expert. The rest of a layer takes as long as
  the calls of 10 to 40 experts do: 0.3 to 0.9 ms beside 24 µs an expert, seen with small Mixtral and Qwen3 layers.

Letters as in engine/contract/shape.py, and T for the tokens of one step.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from engine.contract.estimate import banks, kv_cache_bytes, kv_traffic_bytes
from engine.contract.estimate_work import unpacked_bytes
from engine.contract.formats import ExpertStorage, WeightFormat
from engine.contract.load_peak import largest_dense_tensor_bytes
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.rates import KernelRates, MeasuredRates
from engine.contract.shape import KvShape, ModelShape
from engine.contract.steps import ExpertRates, Step, StepRates, chosen_s, device_s

_LAYER_CALLS = (10, 40)  # what a decoder layer calls beside its experts, counted in experts; least and most


@dataclass(frozen=True, slots=True)
class _Layers:
    """Layers that are in the same tier and stored in the same way."""

    count: int
    tier: Tier
    record_bytes: int
    token: StepRates
    prompt: StepRates


def needed_formats(shape: ModelShape) -> tuple[WeightFormat, ...]:
    """Formats of all weights of a model: of its experts, and of what every token uses."""
    used = {form for storage in shape.layer_storages for form in storage.formats}
    return tuple(form for form in WeightFormat if form in used | {shape.dense_format})


def not_measured(plan: MemoryPlan, rates: MeasuredRates | None) -> tuple[WeightFormat, ...]:
    """Formats of a model without figures on the processors that its plan uses; all of them before a measurement."""
    needed = needed_formats(plan.model)
    if rates is None or not rates.current:
        return needed
    tables = [rates.cpu] + ([rates.gpu] if plan.device == "cuda" else [])
    return tuple(form for form in needed if any(form not in table for table in tables))


class Figures:
    """The sums of one plan. Where two ends are asked for, `slowest` is the longer one."""

    def __init__(self, plan: MemoryPlan, rates: MeasuredRates) -> None:
        """`rates` has every format of `not_measured`; those of a plan for a simulated GPU are not told apart."""
        self._plan = plan
        self._shape = plan.model
        self._rates = rates
        self._on_gpu = plan.device != "cpu"
        self._dense = (rates.gpu if self._on_gpu else rates.cpu)[plan.model.dense_format]
        attention = rates.gpu_attention if self._on_gpu else rates.attention
        assert attention is not None  # figures that count are whole
        self._attention = attention
        self._call_s = (rates.gpu_call_s if self._on_gpu else None) or rates.call_s
        self._layers = tuple(self._grouped())
        self._kv = tuple(Counter(plan.model.kv_layers).items())

    @classmethod
    def of(cls, plan: MemoryPlan, rates: MeasuredRates | None) -> "Figures | None":
        """None where a figure is missing, or the GPU is a simulated one, whose speed nothing tells."""
        if rates is None or plan.device == "simulated" or not_measured(plan, rates):
            return None
        return cls(plan, rates)

    def _grouped(self) -> Iterator[_Layers]:
        records = (size // self._shape.experts.n_experts for size in banks(self._shape))
        kinds = Counter(zip(self._plan.tiers, records, self._shape.layer_storages, strict=True))
        for (tier, record_bytes, storage), count in kinds.items():
            token, prompt = (self._step_rates(storage, record_bytes, prompt=prompt) for prompt in (False, True))
            yield _Layers(count, tier, record_bytes, token, prompt)

    def _step_rates(self, storage: ExpertStorage, record_bytes: int, *, prompt: bool) -> StepRates:
        """As the engine measures them after loading, here by figures of large experts in the same formats."""
        rates = self._rates
        host_call_s, gpu_call_s = (
            (rates.prompt_call_s, rates.gpu_prompt_call_s) if prompt else (rates.call_s, rates.gpu_call_s)
        )
        assert host_call_s is not None  # figures that count are whole
        host = self._expert_rates(rates.cpu, host_call_s, storage, record_bytes, prompt=prompt)
        if gpu_call_s is None or rates.pinned_copy_bytes_s is None:
            return StepRates(host, host, rates.memcpy_bytes_s, 0.0, rates.memcpy_bytes_s)  # nothing asks for a GPU
        return StepRates(
            host=host,
            device=self._expert_rates(rates.gpu, gpu_call_s, storage, record_bytes, prompt=prompt),
            copy_bytes_s=rates.pinned_copy_bytes_s,
            copy_s=rates.copy_call_s or 0.0,
            stage_bytes_s=rates.memcpy_bytes_s,
        )

    def _expert_rates(
        self,
        table: dict[WeightFormat, KernelRates],
        call_s: float,
        storage: ExpertStorage,
        record_bytes: int,
        *,
        prompt: bool,
    ) -> ExpertRates:
        """A record of several formats is as slow as the slowest of them."""
        experts = self._shape.experts
        operations = 2 * (3 if experts.has_gate else 2) * experts.width * experts.inner
        queued = table is self._rates.gpu
        kernels = [table[form] for form in storage.formats]
        each = [
            kernel.prompt(record_bytes, operations, call_s, queued=queued)
            if prompt
            else kernel.token(record_bytes, call_s, queued=queued)
            for kernel in kernels
        ]
        return ExpertRates(max(one.expert_s for one in each), max(one.row_s for one in each))

    def token_s(self, *, slowest: bool) -> float:
        """Seconds of one answer token."""
        shape, attention_s = self._shape, 0.0
        read = shape.dense_bytes if slowest else max(shape.dense_bytes - largest_dense_tensor_bytes(shape), 0)
        if slowest:
            tokens = self._plan.context_tokens
            attention_s = self._attention_operations(1, tokens) / self._attention.token_flops_s
            attention_s += (kv_traffic_bytes(shape, tokens) - kv_cache_bytes(shape, tokens)) / self._dense.bytes_s
        active = shape.experts.top_k
        held = self._held_share if slowest else self._held_share**0.5
        experts_s = sum(
            self._experts_s(layers, layers.token, active, active, active * (1 - held)) for layers in self._layers
        )
        return read / self._dense.bytes_s + attention_s + self._calls_s(slowest=slowest) + experts_s

    def prompt_s(self, tokens: int, *, slowest: bool) -> float:
        """Seconds of a prompt of so many tokens, of which none is known yet, chunk after chunk."""
        chunk = self._plan.prefill_chunk
        full, rest = divmod(tokens, chunk)
        if full and not self._shape.resumes_in_chunks:
            return self._chunk_s(chunk, 0, slowest=slowest) + (tokens - chunk) * self.token_s(slowest=slowest)
        seconds = sum(self._chunk_s(chunk, number * chunk, slowest=slowest) for number in range(full))
        return seconds + (self._chunk_s(rest, full * chunk, slowest=slowest) if rest else 0.0)

    def _chunk_s(self, tokens: int, before: int, *, slowest: bool) -> float:
        """Seconds of T tokens behind so many earlier ones."""
        shape = self._shape
        embedding = largest_dense_tensor_bytes(shape)  # looked up by row; as the head, used for the last row only
        operations = 2 * max(shape.dense_bytes - embedding, 0) / shape.value_bytes
        dense = self._dense.prompt(max(shape.dense_bytes - embedding, 0), operations, 0.0, queued=self._on_gpu)
        experts = shape.experts
        chosen = experts.n_experts * (1 - (1 - experts.top_k / experts.n_experts) ** tokens)
        missing = chosen if slowest else chosen * (1 - self._held_share)
        experts_s = sum(
            self._experts_s(layers, layers.prompt, chosen, tokens * experts.top_k, missing) for layers in self._layers
        )
        attention_s = self._attention_operations(tokens, before + tokens) / self._attention.prompt_flops_s
        other_s = dense.seconds(1, tokens) + attention_s + embedding / self._dense.bytes_s
        return other_s + self._calls_s(slowest=slowest) + experts_s

    def _attention_operations(self, tokens: int, seen: int) -> int:
        return sum(count * attention_operations(kv, tokens, seen) for kv, count in self._kv)

    def _experts_s(self, layers: _Layers, rates: StepRates, experts: float, rows: float, missing: float) -> float:
        """Seconds of some layers' experts in one step; `missing` is what that is where they are pinned."""
        if not self._on_gpu:
            return layers.count * rates.host.seconds(experts, rows)
        if layers.tier is Tier.VRAM:
            return layers.count * rates.device.seconds(experts, rows)
        staged = layers.tier is not Tier.PINNED
        step = Step(experts, rows, experts if staged else missing, layers.record_bytes, staged)
        if not self._plan.ring_staged:  # the engine has nothing to choose by, see `Parts.measure`
            seconds = rates.host.seconds(experts, rows) if staged else device_s(step, rates)
        else:
            seconds = chosen_s(step, rates) if staged or self._host_has_pinned else device_s(step, rates)
        return layers.count * seconds

    @property
    def _host_has_pinned(self) -> bool:
        """Whether the CPU may compute pinned layers: packed ones only in room that locked layers need anyway."""
        return not unpacked_bytes(self._shape) or bool({Tier.LOCKED, Tier.PAGEABLE} & set(self._plan.tiers))

    @property
    def _held_share(self) -> float:
        """Experts of pinned layers that slots hold, of all there are."""
        pinned = self._plan.layers_in(Tier.PINNED) * self._shape.experts.n_experts
        return min(1.0, self._plan.expert_slots / pinned) if pinned else 1.0

    def _calls_s(self, *, slowest: bool) -> float:
        """Of all layers, beside their experts."""
        return self._call_s * len(self._shape.layers) * _LAYER_CALLS[slowest]


def attention_operations(kv: KvShape, tokens: int, seen: int) -> int:
    """Operations of T tokens against all that they may see, themselves included: 2 · T · n · H · (Dk + Dv).

    What is masked is computed as well. Latents are expanded to keys and values of all heads first, and count so. What
    chooses tokens, and pooled entries, are left out: they are a small part.
    """
    within = seen if kv.window is None else min(seen, kv.window + tokens)
    values = kv.key_dim if kv.keys_are_values else kv.value_dim
    per_pair = kv.expanded_values or (kv.n_heads or kv.n_kv_heads) * (kv.key_dim + values)
    return 2 * tokens * within * per_pair
