"""How wide the columns of a row are."""

from collections.abc import Sequence


def column_widths(room_px: int, shares: Sequence[int], needs_px: Sequence[int]) -> list[int]:
    """Widths that add up to `room_px`: by `shares`, so that columns stay in place while their texts change, except
    that no column is narrower than its text while another has room to spare. Where even the texts do not fit, each
    gives way in proportion."""
    if not shares:
        return []
    if sum(needs_px) >= room_px:
        return _shared(room_px, needs_px)
    tight: set[int] = set()
    while True:
        rest = room_px - sum(needs_px[i] for i in tight)
        free = [0 if i in tight else share for i, share in enumerate(shares)]
        widths = [needs_px[i] if i in tight else width for i, width in enumerate(_shared(rest, free))]
        narrow = {i for i, width in enumerate(widths) if width < needs_px[i]}
        if not narrow:
            return widths
        tight |= narrow


def _shared(room_px: int, parts: Sequence[int]) -> list[int]:
    """Whole pixels in proportion; what is left over goes to the last column that has a part."""
    whole = max(1, sum(parts))
    widths = [max(0, room_px) * part // whole for part in parts]
    last = max((i for i, part in enumerate(parts) if part), default=0)
    widths[last] += max(0, room_px) - sum(widths)
    return widths
