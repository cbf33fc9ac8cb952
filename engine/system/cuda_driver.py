"""The CUDA driver itself (nvcuda.dll, libcuda.so.1) as far as the probe for pinned memory needs it. No torch.

Registers memory with the call and the flags that the engine uses: another call has another limit (WSL2).
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

from engine.contract.errors import SplitpinError
from engine.system.protocols import AllocationRefusedError, PinRefusedError
from engine.system.windows_dll import function, system_dll

_REGISTER_DEFAULT = 0  # as in engine/banks/cuda_device.py
_UUID_BYTES = 16


class NoCudaError(SplitpinError):
    """There is no CUDA GPU, or its driver cannot be used."""

    kind = "no_cuda"


def no_cuda(why: str) -> NoCudaError:
    """The refusal; `why` continues the sentence."""
    return NoCudaError(
        f"The limit for pinned memory cannot be measured: {why}.",
        "Nothing is pinned without an NVIDIA GPU. If there is one, update its driver.",
    )


def load_library() -> ctypes.CDLL:
    """The driver's library.

    Raises:
        NoCudaError: it is not installed.
    """
    try:
        return system_dll("nvcuda.dll") if os.name == "nt" else ctypes.CDLL("libcuda.so.1")
    except OSError as cause:
        raise no_cuda("this PC has no CUDA driver") from cause


class CudaDriver:
    """One GPU with its primary context, current on the thread that made this."""

    def __init__(self, gpu_uuid: str | None, library: ctypes.CDLL | None = None) -> None:
        """Use the GPU with this NVML identity; None: the first one.

        Raises:
            NoCudaError: no driver, no GPU, or the driver does not start.
        """
        self._library = library or load_library()
        self._vram: list[int] = []
        self._check("cuInit", self._call("cuInit", ctypes.c_uint)(0))
        self._device = self._find(gpu_uuid)
        context = ctypes.c_void_p()
        retain = self._call("cuDevicePrimaryCtxRetain", ctypes.c_void_p, ctypes.c_int)
        self._check("cuDevicePrimaryCtxRetain", retain(ctypes.byref(context), self._device))
        self._check("cuCtxSetCurrent", self._call("cuCtxSetCurrent", ctypes.c_void_p)(context))
        self._register = self._call("cuMemHostRegister_v2", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        self._unregister = self._call("cuMemHostUnregister", ctypes.c_void_p)
        self._alloc = self._call("cuMemAlloc_v2", ctypes.c_void_p, ctypes.c_size_t)
        self._free = self._call("cuMemFree_v2", ctypes.c_uint64)

    def register(self, address: int, nbytes: int) -> None:
        """Pin the range.

        Raises:
            PinRefusedError: with the driver's code and words.
        """
        code = self._register(address, nbytes, _REGISTER_DEFAULT)
        if code:
            raise PinRefusedError(asked_bytes=nbytes, code=code, words=self.words(code))

    def unregister(self, address: int) -> None:
        """Undo `register`; a refusal here cannot be helped, and the process ends soon."""
        self._unregister(address)

    def hold_vram(self, nbytes: int) -> None:
        """Allocate GPU memory and keep it.

        Raises:
            AllocationRefusedError: the driver refused.
        """
        pointer = ctypes.c_uint64()
        code = self._alloc(ctypes.byref(pointer), nbytes)
        if code:
            raise AllocationRefusedError(asked_bytes=nbytes, code=code, words=self.words(code))
        self._vram.append(pointer.value)

    def close(self) -> None:
        """Give the GPU back."""
        for pointer in self._vram:
            self._free(pointer)
        self._vram.clear()
        self._call("cuDevicePrimaryCtxRelease_v2", ctypes.c_int)(self._device)

    def words(self, code: int) -> str:
        """An error of the driver in its own words."""
        text = ctypes.c_char_p()
        name = self._call("cuGetErrorString", ctypes.c_int, ctypes.c_void_p)
        if name(code, ctypes.byref(text)) or text.value is None:
            return f"error {code} of the CUDA driver"
        return text.value.decode("utf-8", errors="replace")

    def _find(self, gpu_uuid: str | None) -> int:
        count, device = ctypes.c_int(), ctypes.c_int()
        self._check("cuDeviceGetCount", self._call("cuDeviceGetCount", ctypes.c_void_p)(ctypes.byref(count)))
        get = self._call("cuDeviceGet", ctypes.c_void_p, ctypes.c_int)
        ask_uuid = self._call("cuDeviceGetUuid", ctypes.c_void_p, ctypes.c_int)
        wanted = None if gpu_uuid is None else gpu_uuid.removeprefix("GPU-").replace("-", "").lower()
        for index in range(count.value):
            self._check("cuDeviceGet", get(ctypes.byref(device), index))
            identity = (ctypes.c_ubyte * _UUID_BYTES)()
            self._check("cuDeviceGetUuid", ask_uuid(identity, device))
            if wanted is None or bytes(identity).hex() == wanted:
                return device.value
        raise no_cuda(f"the CUDA driver has {count.value} GPUs, and {gpu_uuid or 'none'} is not among them")

    def _call(self, name: str, *arguments: Any) -> Callable[..., int]:
        try:
            return function(self._library, name, ctypes.c_int, *arguments)
        except OSError as cause:
            raise no_cuda(f"this CUDA driver has no {name}") from cause

    def _check(self, call: str, code: int) -> None:
        if code:
            raise no_cuda(f"{call} answered {self.words(code)} (code {code})")
