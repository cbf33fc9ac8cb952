"""A real NVIDIA GPU through torch. Pins with cudaHostRegister, never with pin_memory(): that rounds sizes up."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from engine.banks.devices import Account, Mark, Room
from engine.banks.pin import Pinning
from engine.contract.errors import SplitpinError
from engine.system.protocols import PinRefusedError

_HOST_REGISTER_DEFAULT = 0


class NoGpuError(SplitpinError):
    """The plan asks for a GPU that torch cannot use."""

    kind = "gpu"


class CudaDriver:
    """cudaHostRegister and its error state."""

    def __init__(self) -> None:
        self._runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def register(self, address: int, nbytes: int) -> None:
        """Pin the range.

        Raises:
            PinRefusedError: with the runtime's code.
        """
        code = int(self._runtime.cudaHostRegister(address, nbytes, _HOST_REGISTER_DEFAULT))
        if code:
            raise PinRefusedError(asked_bytes=nbytes, code=code, words=str(self._words(code)))

    def unregister(self, address: int) -> None:
        """Undo `register`; a code here means the driver has let go already, and nothing can be done about it."""
        if int(self._runtime.cudaHostUnregister(address)):
            self.clear_error()

    def _words(self, code: int) -> str:
        error = self._runtime.cudaError(code)
        return str(self._runtime.cudaGetErrorString(error)).strip().lower()

    def clear_error(self) -> None:
        """A refused call stays the thread's last error and the next checked launch reports it.

        torch has no binding of cudaGetLastError, so a small launch takes the error out here, where it is expected.
        """
        try:
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
        except RuntimeError:
            torch.cuda.synchronize()


class CudaDevice:
    """Memory and copies of one GPU. Copies run on a stream of their own beside the computation."""

    simulated = False
    has_vram = True

    def __init__(self, gpu_uuid: str | None) -> None:
        """Use the GPU with this NVML identity; None: the first one.

        Raises:
            NoGpuError: torch cannot use a GPU, or none has that identity.
        """
        if not torch.cuda.is_available():
            raise NoGpuError("torch cannot use an NVIDIA GPU here.", "Update the GPU driver, or choose a CPU split.")
        index = _index_of(gpu_uuid)
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        self.name = str(torch.cuda.get_device_name(index))
        self._account = Account(None)
        self._copies = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        driver = CudaDriver()
        self._pinning = Pinning(driver, driver.clear_error)

    @property
    def allocated(self) -> dict[str, int]:
        return dict(self._account.lines)

    @property
    def room(self) -> Room | None:
        return None

    @property
    def pinned_bytes(self) -> int:
        return self._pinning.pinned_bytes

    def allocate(self, nbytes: int, what: str) -> Tensor:
        try:
            tensor = torch.zeros(nbytes, dtype=torch.uint8, device=self.torch_device)
        except torch.cuda.OutOfMemoryError as cause:
            free, _ = torch.cuda.mem_get_info(self.torch_device)
            raise self._account.refusal(nbytes, free, what) from cause
        self._account.add(nbytes, what)
        return tensor

    def reserve(self, nbytes: int, what: str) -> None:
        self._account.add(nbytes, what)

    def release(self, nbytes: int, what: str) -> None:
        self._account.take(nbytes, what)

    def pin(self, address: int, nbytes: int) -> None:
        self._pinning.pin(address, nbytes)

    def pin_buffer(self, address: int, nbytes: int) -> None:
        self._pinning.pin(address, nbytes)

    def unpin(self, address: int) -> None:
        self._pinning.unpin(address)

    def distrust(self, address: int) -> PinRefusedError:
        return self._pinning.distrust(address)

    def owes(self, nbytes: int) -> bool:
        return self._pinning.owes(nbytes)

    def heed(self, check: Callable[[], None]) -> None:
        self._pinning.check = check

    def mark(self) -> Mark | None:
        return cast(Mark, torch.cuda.current_stream(self.torch_device).record_event())

    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        if isinstance(after, torch.cuda.Event):
            self._copies.wait_event(after)
        with torch.cuda.stream(self._copies):
            for into, out_of in self._pinning.cut(target, source):
                into.copy_(out_of, non_blocking=True)
        return cast(Mark, self._copies.record_event())

    def wait(self, mark: Mark | None) -> None:
        if isinstance(mark, torch.cuda.Event):
            torch.cuda.current_stream(self.torch_device).wait_event(mark)

    def reach(self, mark: Mark | None) -> None:
        if isinstance(mark, torch.cuda.Event):
            mark.synchronize()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def close(self) -> None:
        self._account.lines.clear()
        torch.cuda.empty_cache()


def _index_of(gpu_uuid: str | None) -> int:
    if gpu_uuid is None:
        return 0
    wanted = gpu_uuid.removeprefix("GPU-")
    for index in range(torch.cuda.device_count()):
        if str(torch.cuda.get_device_properties(index).uuid) == wanted:
            return index
    raise NoGpuError(
        f"The GPU of the plan ({gpu_uuid}) is not there; torch sees {torch.cuda.device_count()}.",
        "Plan the start again.",
        gpu_uuid=gpu_uuid,
    )
