"""Mistral Large 4: latent attention whose latents later layers read too, with and without rotated keys, and an index.

Source: transformers 5.24, models/mistral_large4. Letters as in shape.py, and R ranks of the latents.
"""

from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_latent import shared_index
from engine.contract.families_rules import mlp_kinds, quiet_size_of, required_size, shared_experts
from engine.contract.shape import KvShape


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    layers, heads = facts.required("num_hidden_layers"), facts.required("num_attention_heads")
    if facts.optional("num_key_value_heads") not in (None, heads):
        raise CannotEstimateError(
            f"config.json says {facts.given('num_key_value_heads')} KV heads for {heads} query heads; latent attention"
            " has as many of both.",
            CONFIG_FIX,
            fact="num_key_value_heads",
        )
    rotates, sources, own_index = _rotates(facts, layers), _sources(facts, layers), shared_index(facts, layers)
    readers = sum(source != layer for layer, source in enumerate(sources))
    facts.assumptions.append(
        f"latent attention: {facts.required('kv_lora_rank')} values a token and layer are kept, and"
        f" {facts.required('qk_rope_head_dim')} where keys are rotated, not keys and values of {heads} heads; these are"
        " computed anew in every step and counted as workspace"
        + (f"; {readers} of {layers} layers read the latents of an earlier one" if readers else "")
    )
    return tuple(
        _mixer(facts, rotates=rotates[layer], owns=sources[layer] == layer, indexed=own_index[layer])
        for layer in range(layers)
    )


def _mixer(facts: ConfigFacts, *, rotates: bool, owns: bool, indexed: bool) -> Mixer:
    """One layer; without latents of its own it may still keep an index."""
    width, heads = facts.required("hidden_size"), facts.required("num_attention_heads")
    latent, value = facts.required("kv_lora_rank"), facts.required("v_head_dim")
    key = facts.required("qk_nope_head_dim") + facts.required("qk_rope_head_dim")
    rope = facts.required("qk_rope_head_dim") if rotates else 0
    bias = facts.flag(("attention_bias", False))
    plain = width * heads * key + 2 * heads + latent * heads * (key - rope + value) + heads * value * width
    plain += width if bias else 0
    if owns:
        plain += width * (latent + rope) + latent + (latent + rope if bias else 0)
    index_size, index_heads = facts.required("index_head_dim"), facts.required("index_n_heads")
    if indexed:
        plain += width * index_heads * index_size + width * index_size + 2 * index_size  # queries, keys, their norm
        plain += width * index_heads + 2 * width + 2 * index_heads  # weights of heads, norm of inputs, scaling
    kv = KvShape(
        n_kv_heads=1,
        key_dim=latent if owns else 0,
        value_dim=rope if owns else 0,
        n_heads=heads,
        index_dim=index_size if indexed else 0,
        index_heads=index_heads if indexed else 0,
        expanded_values=heads * (key + value),
    )
    return Mixer(kv=kv if owns or indexed else None, weights=DenseCount(plain))


def _rotates(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """Whether keys of a layer are rotated: `no_rope_layers` says 1 then; without it, all but every fourth."""
    given = facts.numbers("no_rope_layers")
    if given is None:
        step = facts.quiet("no_rope_layer_interval", 4, least=1)
        return tuple((layer + 1) % step != 0 for layer in range(layers))
    if len(given) < layers:
        raise CannotEstimateError(
            f"no_rope_layers in config.json names {len(given)} layers; the model has {layers}.",
            CONFIG_FIX,
            fact="no_rope_layers",
        )
    return tuple(number != 0 for number in given[:layers])


def _sources(facts: ConfigFacts, layers: int) -> tuple[int, ...]:
    """The layer whose latents each layer reads: itself, or an earlier one that reads its own."""
    given = facts.numbers("kv_source_layers")
    sources = tuple(range(layers)) if given is None else given
    if len(sources) != layers or not all(
        0 <= source <= layer and sources[source] == source for layer, source in enumerate(sources)
    ):
        raise CannotEstimateError(
            f"kv_source_layers in config.json does not name, for each of {layers} layers, an earlier one with latents.",
            CONFIG_FIX,
            fact="kv_source_layers",
        )
    return sources


_FAMILY = Family(
    vocab_size=204800,
    max_context=1048576,
    top_k=4,
    mixers=_mixers,
    moe=mlp_kinds(quiet_size_of("first_k_dense_replace", 1)),
    mlp=required_size("intermediate_size"),
    shared=shared_experts("moe_intermediate_size", 1),
    router_fp32=True,
    fp32_names=("gate.weight", "rotary_emb.", "lerope."),
)


def mistral_large4(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read a mistral_large4 text configuration.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    anatomy = _FAMILY(facts, tied)
    learned = DenseCount(fp32=facts.required("qk_rope_head_dim") // 2)  # one factor for each frequency
    return replace(anatomy, embedding=anatomy.embedding + learned)
