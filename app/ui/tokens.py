"""Colours by their use, one set a theme.

Tier colours are used for tiers only; the smallest colour difference between two of them is 30 (ΔE76), colour
blindness simulated, and each has a texture of its own (app/ui/widgets/tier_paint.py).
"""

from dataclasses import dataclass
from typing import Literal

from engine.contract.plan import Tier


@dataclass(frozen=True, slots=True)
class Tokens:
    """Every colour by its use, as #RRGGBB."""

    name: Literal["dark", "light", "contrast"]
    bg: str  # window
    surface: str  # card
    inset: str  # bars, code, inputs
    raised: str  # hover, secondary button
    border: str
    border_strong: str
    text: str
    text2: str  # secondary, >= 4.5:1 on surface
    text3: str  # captions, placeholders, disabled; >= 4.5:1 wherever it is written
    accent: str
    accent_hover: str
    on_accent: str
    accent_soft: str
    ok: str
    warn: str
    warn_soft: str
    error: str
    error_soft: str
    info_soft: str
    vram: str
    pinned: str
    locked: str
    pageable: str
    kv: str
    slots: str
    weights: str
    runtime: str
    other: str
    free: str
    code_bg: str
    mark: str  # texture on tier colours: hatch and pin heads
    handle: str  # slider ring

    @property
    def is_light(self) -> bool:
        return self.name == "light"

    def tier(self, tier: Tier) -> str:
        """The colour of a tier."""
        return {
            Tier.VRAM: self.vram,
            Tier.PINNED: self.pinned,
            Tier.LOCKED: self.locked,
            Tier.PAGEABLE: self.pageable,
        }[tier]


DARK = Tokens(
    name="dark",
    bg="#16181D",
    surface="#1E2128",
    inset="#15171C",
    raised="#2A2E37",
    border="#2E333D",
    border_strong="#6C7789",
    text="#ECEEF2",
    text2="#A9B1BF",
    text3="#8D97A7",
    accent="#5AA9F2",
    accent_hover="#7ABBF6",
    on_accent="#0B1622",
    accent_soft="#1B2F45",
    ok="#4CC38A",
    warn="#F0B84B",
    warn_soft="#33290F",
    error="#FF7A70",
    error_soft="#3A1D1D",
    info_soft="#1A2A3D",
    vram="#3B7FF5",
    pinned="#49DDA9",
    locked="#E9AC22",
    pageable="#D24C40",
    kv="#9A74B0",
    slots="#A9C6FA",
    weights="#76839A",
    runtime="#4D5768",
    other="#5E5A53",
    free="#272B33",
    code_bg="#14161B",
    mark="#000000",
    handle="#454C59",
)

LIGHT = Tokens(
    name="light",
    bg="#F4F5F7",
    surface="#FFFFFF",
    inset="#F0F2F5",
    raised="#E9ECF1",
    border="#DFE3E9",
    border_strong="#868E9C",
    text="#1A1D23",
    text2="#545C6A",
    text3="#636B79",
    accent="#0F66BD",
    accent_hover="#0B579F",
    on_accent="#FFFFFF",
    accent_soft="#E3EFFB",
    ok="#14794B",
    warn="#8F5B00",
    warn_soft="#FFF4DC",
    error="#B8261B",
    error_soft="#FDE9E7",
    info_soft="#E8F1FB",
    vram="#1547A1",
    pinned="#2D9D7E",
    locked="#B68005",
    pageable="#842B18",
    kv="#A07CB9",
    slots="#5B8DE0",
    weights="#7D8899",
    runtime="#AAB3C0",
    other="#B8B2A7",
    free="#E6E9EE",
    code_bg="#F4F5F8",
    mark="#FFFFFF",
    handle="#FFFFFF",
)

CONTRAST = Tokens(
    name="contrast",
    bg="#000000",
    surface="#000000",
    inset="#000000",
    raised="#1A1A1A",
    border="#FFFFFF",
    border_strong="#FFFFFF",
    text="#FFFFFF",
    text2="#FFFFFF",
    text3="#C8C8C8",
    accent="#1AEBFF",
    accent_hover="#9AF6FF",
    on_accent="#000000",
    accent_soft="#000000",
    ok="#3FF23F",
    warn="#FFEB3B",
    warn_soft="#000000",
    error="#FF8C8C",
    error_soft="#000000",
    info_soft="#000000",
    vram="#FFFFFF",
    pinned="#1AEBFF",
    locked="#FFEB3B",
    pageable="#FF8C8C",
    kv="#C58CFF",
    slots="#7FB2FF",
    weights="#9A9A9A",
    runtime="#6E6E6E",
    other="#505050",
    free="#1C1C1C",
    code_bg="#000000",
    mark="#000000",
    handle="#000000",
)
