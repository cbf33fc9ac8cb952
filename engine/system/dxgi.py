"""Graphics adapters as Windows lists them (DXGI), and where they sit (D3DKMT). Holds nothing open."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.system.nvml import PciAddress
from engine.system.windows_dll import function, system_dll

FLAG_REMOTE = 1
FLAG_SOFTWARE = 2
DXGI_ERROR_NOT_FOUND = 0x887A_0002
ADAPTER_ADDRESS = 6  # KMTQAITYPE_ADAPTERADDRESS

_IID_FACTORY1 = bytes.fromhex("78ae0a77 6ff2 ba4d a829 253c83d1b387")  # 770aae78-f26f-4dba-a829-253c83d1b387
_RELEASE, _GET_DESC1, _ENUM_ADAPTERS1 = 2, 10, 12  # slots of the COM tables, IUnknown included


class Luid(ctypes.Structure):
    """LUID: names an adapter until the next boot."""

    _fields_ = (("low", ctypes.c_uint32), ("high", ctypes.c_int32))


class AdapterDescription(ctypes.Structure):
    """DXGI_ADAPTER_DESC1. UTF-16 is two bytes a character on every system, unlike ctypes' wide characters."""

    _fields_ = (
        ("description", ctypes.c_uint16 * 128),
        ("vendor_id", ctypes.c_uint32),
        ("device_id", ctypes.c_uint32),
        ("subsystem_id", ctypes.c_uint32),
        ("revision", ctypes.c_uint32),
        ("dedicated_video_memory", ctypes.c_size_t),
        ("dedicated_system_memory", ctypes.c_size_t),
        ("shared_system_memory", ctypes.c_size_t),
        ("luid", Luid),
        ("flags", ctypes.c_uint32),
    )


class _OpenAdapter(ctypes.Structure):
    _fields_ = (("luid", Luid), ("adapter", ctypes.c_uint32))


class _AdapterAddress(ctypes.Structure):
    _fields_ = (("bus", ctypes.c_uint32), ("device", ctypes.c_uint32), ("function", ctypes.c_uint32))


class _AdapterQuery(ctypes.Structure):
    _fields_ = (
        ("adapter", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class DxgiAdapter:
    """One hardware adapter; bytes. `luid` is high part << 32 | low part."""

    name: str
    vendor_id: int
    luid: int
    dedicated_bytes: int
    shared_limit_bytes: int


def adapters() -> tuple[DxgiAdapter, ...]:
    """All hardware adapters; software renderers and remote screens are left out, each LUID comes once.

    Raises:
        OSError: no DXGI here, or it does not answer.
    """
    create = function(system_dll("dxgi.dll"), "CreateDXGIFactory1", ctypes.c_uint32, ctypes.c_char_p, ctypes.c_void_p)
    factory = ctypes.c_void_p()
    status = create(_IID_FACTORY1, ctypes.byref(factory))
    if status or not factory.value:
        raise OSError(f"CreateDXGIFactory1: status 0x{status:08X}")
    with _released(factory.value) as address:
        return hardware(descriptions(address))


def descriptions(factory: int) -> Iterator[AdapterDescription]:
    """Every adapter of an IDXGIFactory1, in its order."""
    enumerate_adapters = method(factory, _ENUM_ADAPTERS1, ctypes.c_uint32, ctypes.c_void_p)
    index = 0
    while True:
        adapter = ctypes.c_void_p()
        status = enumerate_adapters(factory, index, ctypes.byref(adapter))
        if status == DXGI_ERROR_NOT_FOUND or not adapter.value:
            return
        if status:
            raise OSError(f"EnumAdapters1: status 0x{status:08X}")
        with _released(adapter.value) as address:
            description = AdapterDescription()
            if method(address, _GET_DESC1, ctypes.c_void_p)(address, ctypes.byref(description)) == 0:
                yield description
        index += 1


def hardware(described: Iterator[AdapterDescription]) -> tuple[DxgiAdapter, ...]:
    """Keep real adapters, each once: hybrid machines may list a card twice."""
    found: dict[int, DxgiAdapter] = {}
    for one in described:
        if one.flags & (FLAG_REMOTE | FLAG_SOFTWARE):
            continue
        luid = (one.luid.high & 0xFFFF_FFFF) << 32 | one.luid.low
        name = bytes(one.description).decode("utf-16-le", errors="replace").partition("\0")[0].strip()
        adapter = DxgiAdapter(name, one.vendor_id, luid, one.dedicated_video_memory, one.shared_system_memory)
        found.setdefault(luid, adapter)
    return tuple(found.values())


def pci_address(luid: int) -> PciAddress | None:
    """Where an adapter sits; None where this system does not tell."""
    try:
        gdi = system_dll("gdi32.dll")
        open_, query, close = (
            function(gdi, name, ctypes.c_int32, ctypes.c_void_p)
            for name in ("D3DKMTOpenAdapterFromLuid", "D3DKMTQueryAdapterInfo", "D3DKMTCloseAdapter")
        )
    except OSError:
        return None
    opened = _OpenAdapter(luid=Luid(low=luid & 0xFFFF_FFFF, high=ctypes.c_int32(luid >> 32).value))
    if open_(ctypes.byref(opened)) != 0:
        return None
    place = _AdapterAddress()
    question = _AdapterQuery(
        adapter=opened.adapter, kind=ADAPTER_ADDRESS, data=ctypes.addressof(place), size=ctypes.sizeof(place)
    )
    status = query(ctypes.byref(question))
    close(ctypes.byref(ctypes.c_uint32(opened.adapter)))
    return PciAddress(place.bus, place.device) if status == 0 else None


def method(address: int, slot: int, *arguments: Any) -> Callable[..., int]:
    """One entry of a COM object's table; the object itself is the first argument of the call."""
    table = ctypes.cast(address, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, *arguments)  # 64-bit Windows has one convention
    return prototype(table[slot] or 0)


@contextmanager
def _released(address: int) -> Iterator[int]:
    try:
        yield address
    finally:
        method(address, _RELEASE)(address)
