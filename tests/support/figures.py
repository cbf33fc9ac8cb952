"""Figures of PCs that do not exist, and a model whose layers are alike: for sums that can be done by hand."""

from engine.contract.formats import WeightFormat
from engine.contract.rates import AttentionRates, KernelRates, MeasuredRates
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape

CPU = {WeightFormat.BF16: KernelRates(bytes_s=4e10, flops_s=1e11, rows=48)}
RATES = MeasuredRates(
    device="CPU",
    threads=8,
    cpu=CPU,
    attention=AttentionRates(token_flops_s=5e9, prompt_flops_s=5e10),
    call_s=2e-5,
    prompt_call_s=1e-4,
    memcpy_bytes_s=1.5e10,
    elapsed_s=3,
)
WITH_GPU = RATES.model_copy(
    update={
        "device": "card",
        "gpu": {WeightFormat.BF16: KernelRates(bytes_s=8e11, flops_s=8e13, rows=390)},
        "gpu_attention": AttentionRates(token_flops_s=4e11, prompt_flops_s=4e13),
        "gpu_call_s": 2e-5,
        "gpu_prompt_call_s": 4e-5,
        "pinned_copy_bytes_s": 2.5e10,
        "copy_call_s": 1e-5,
        "pageable_copy_bytes_s": 1e10,
    }
)
EVEN = ModelShape(
    name="even",
    family="mixtral",
    hidden_size=1024,
    vocab_size=1024,
    max_context_tokens=8192,
    layers=tuple(
        LayerShape(index=index, kv=KvShape(n_kv_heads=4, key_dim=128, value_dim=128, n_heads=4), moe=True)
        for index in range(8)
    ),
    experts=ExpertShape(n_experts=32, top_k=8, width=1024, inner=1024),
    expert_format=WeightFormat.BF16,
    dense_format=WeightFormat.BF16,
    dense_bytes=100_000_000,
    source="config",
)
