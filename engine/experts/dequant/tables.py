"""Numbers of few bits by table: one look-up returns all numbers that lie in a byte, or both of two fp8 bytes.

Tables are one-dimensional, with 8 or 16 bytes an entry that stand for 2 or 4 float32 numbers: torch takes entries out
of such a table four times as fast as rows out of a matrix. They are kept for each device, some 1.2 MiB in all at most.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_ENTRY = {1: torch.float32, 2: torch.int64, 4: torch.complex128}  # of a table, by how many float32 numbers it holds
_tables: dict[tuple[object, ...], Tensor] = {}


def kept_table(key: tuple[object, ...], device: torch.device, make: Callable[[], Tensor]) -> Tensor:
    """The table of this key on a device; `make` returns its numbers, float32 [entries, 1, 2 or 4]."""
    table = _tables.get((*key, device))
    if table is None:
        numbers = make().to(device).contiguous()
        table = _tables[*key, device] = numbers.view(_ENTRY[numbers.shape[1]]).view(-1)
    return table


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Numbers of these entries (int32 [n]), float32 [n · numbers an entry]."""
    return table.index_select(0, index).view(torch.float32)


def nibble_table(key: tuple[object, ...], device: torch.device, numbers: Callable[[], Tensor]) -> Tensor:
    """For each byte the numbers of its low and its high half; `numbers` returns those of the 16 halves, float32."""
    return kept_table(key, device, lambda: _joined(numbers(), 2))


def split_nibbles(raw: Tensor, run: int, key: tuple[object, ...], numbers: Callable[[], Tensor]) -> Tensor:
    """What the halves of bytes stand for (uint8 [n, bytes]), float32 [n, 2 · bytes]: GGUF's order.

    The low halves of `run` bytes, then their high halves, and so on; `run` is even. Two bytes are looked up at once,
    by their low or their high halves.
    """
    table = kept_table((*key, "split"), raw.device, lambda: _two_of_16(numbers()))
    words = raw.contiguous().view(torch.int16).view(raw.shape[0], -1, 1, run // 2)
    index = torch.cat([words & 0x0F0F, (words >> 4) & 0x0F0F], dim=2)
    return look_up(table, index.view(-1).int()).view(raw.shape[0], -1)


def _two_of_16(numbers: Tensor) -> Tensor:
    """For each word of two bytes below 16 the numbers of both, the lower byte first: float32 [0x0F10, 2]."""
    words = torch.arange(0x0F10)
    return torch.stack([numbers[words & 15], numbers[words >> 8]], dim=1)


def int_values(raw: Tensor, bits: int, *, add: int = 0, less: int = 0) -> Tensor:
    """Whole numbers of 2, 3, 4 or 8 bits out of bytes (uint8 [n, bytes]), lowest bits first, as float32 [n, numbers].

    Numbers of 3 bits cross bytes: their rows are multiples of three bytes.

    Args:
        add: added to each number, which stays within its bits.
        less: subtracted after that.
    """
    raw = raw.contiguous()
    if bits == 8:
        values = (raw + add if add else raw).float()
        return values.sub_(less) if less else values

    def numbers() -> Tensor:
        return ((torch.arange(1 << bits) + add) % (1 << bits) - less).float()

    key = ("int", bits, add, less)
    if bits == 3:
        table = kept_table(key, raw.device, lambda: _joined(numbers(), 4))
        index = _twelve_bits(raw)
    elif bits == 2:
        table = kept_table(key, raw.device, lambda: _joined(numbers(), 4))
        index = raw.int()
    else:
        table = nibble_table(key, raw.device, numbers)
        index = raw.int()
    return look_up(table, index.view(-1)).view(raw.shape[0], -1)


def _joined(numbers: Tensor, count: int) -> Tensor:
    """All ways to put `count` of the numbers one behind the other, the first changing fastest: [n^count, count]."""
    entries = torch.arange(len(numbers) ** count)
    return torch.stack([numbers[entries // len(numbers) ** place % len(numbers)] for place in range(count)], dim=1)


def _twelve_bits(raw: Tensor) -> Tensor:
    """Three bytes as two numbers of 12 bits, int32."""
    first, middle, last = raw.view(-1, 3).int().unbind(dim=1)
    return torch.stack([first | ((middle & 15) << 8), (middle >> 4) | (last << 4)], dim=1)
