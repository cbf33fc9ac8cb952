"""All families that the engine runs with transformers 5.24 and whose memory is known."""

from engine.contract.families_anatomy import AnatomyRule
from engine.contract.families_compressed import DEEPSEEK_V4
from engine.contract.families_dots3 import DOTS3_NOTE
from engine.contract.families_ernie_vl import ernie4_5_vl_moe
from engine.contract.families_full import FULL_FAMILIES
from engine.contract.families_hybrid import HYBRID_FAMILIES
from engine.contract.families_indexed import INDEXED_FAMILIES
from engine.contract.families_inkling import INKLING_FAMILIES
from engine.contract.families_latent import LATENT_FAMILIES
from engine.contract.families_nemotron import NEMOTRON_H
from engine.contract.families_own_experts import OWN_EXPERTS_FAMILIES
from engine.contract.families_qwen4 import qwen4_exp
from engine.contract.families_shared_latents import mistral_large4
from engine.contract.families_sliding import SLIDING_FAMILIES
from engine.contract.families_zaya import ZAYA

FAMILIES: dict[str, AnatomyRule] = {
    **FULL_FAMILIES,
    **SLIDING_FAMILIES,
    **OWN_EXPERTS_FAMILIES,
    "ernie4_5_vl_moe_text": ernie4_5_vl_moe,
    **LATENT_FAMILIES,
    "dots3_note_text": DOTS3_NOTE,
    "mistral_large4_text": mistral_large4,
    **HYBRID_FAMILIES,
    **INDEXED_FAMILIES,
    **INKLING_FAMILIES,
    "deepseek_v4": DEEPSEEK_V4,
    "nemotron_h": NEMOTRON_H,
    "qwen4_exp_text": qwen4_exp,
    "zaya": ZAYA,
}

TIED_BY_DEFAULT = frozenset(
    {
        "cohere2_moe",
        "ernie4_5_moe",
        "ernie4_5_vl_moe_text",
        "gemma4_text",
        "jetmoe",
        "lara_mini",
        "lfm2_moe",
        "qwen3_vl_moe_text",
        "zaya",
    }
)
