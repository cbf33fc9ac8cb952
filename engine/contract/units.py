"""Bytes in and out of text. Code holds bytes as int; people read GiB = 2^30."""

import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": GIB << 10, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNKNOWN = {"", "-", "n/a", "not available", "not supported", "unknown", "unknown error", "insufficient permissions"}
_MOST_BYTES = 1 << 60  # an exbibyte
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Read "800MiB", "1.5 GiB", "64 GB" or a bare number of bytes.

    Raises:
        ValueError: not a number with a known unit, or an absurd one.
    """
    match = _BYTES.fullmatch(text)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"not an amount of memory: {text!r} (examples: 800MiB, 1.5GiB, 1048576)")
    amount_bytes = float(match[1]) * _UNITS[match[2].upper()]
    if amount_bytes > _MOST_BYTES:
        raise ValueError(f"more memory than any computer has: {text[:40]!r}")
    return round(amount_bytes)


def reported_bytes(text: str) -> int | None:
    """An amount as driver tools print it, where MB means MiB: "24564 MiB", "256 MB". "[N/A]" is None, never 0.

    Raises:
        ValueError: neither an amount nor one of the ways to say that there is none.
    """
    if text.strip(" []").lower() in _UNKNOWN:
        return None
    match = _BYTES.fullmatch(text)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"not an amount of memory: {text!r}")
    unit = match[2].upper()
    return round(float(match[1]) * _UNITS[f"{unit[0]}IB" if unit in ("KB", "MB", "GB") else unit])


def gib(amount_bytes: int) -> str:
    """Text for people: "42.5 GiB", below 0.1 GiB "37.4 MiB", below 0.1 MiB "12 KiB" or "300 B"."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if abs(amount_bytes) >= unit / 10:
            return f"{amount_bytes / unit:,.1f} {name}"
    if abs(amount_bytes) >= KIB:
        return f"{amount_bytes / KIB:,.0f} KiB"
    return f"{amount_bytes} B"


def round_up(value: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step
