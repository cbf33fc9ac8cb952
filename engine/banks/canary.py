"""Pins filled memory and looks whether the device really gets what is in it.

A driver was seen that registered memory and then copied nothing from it, without an error (FreeToken#291, driver
591.86 after many pins were taken back). So a few pages of every pinned layer are copied and compared.
"""

import torch
from torch import Tensor

from engine.banks.devices import Device

SAMPLE_BYTES = 4096
SAMPLE_EVERY_BYTES = 256 << 20


def pin_checked(device: Device, address: int, filled: Tensor) -> None:
    """Pin memory at `address` whose bytes are `filled`, uint8 [n].

    Raises:
        PinRefusedError: the driver refused, or bytes did not arrive; nothing stays registered.
    """
    device.pin(address, filled.nbytes)
    if filled.nbytes and not _arrives(device, filled):
        raise device.distrust(address)


def _arrives(device: Device, filled: Tensor) -> bool:
    target = torch.empty(SAMPLE_BYTES, dtype=torch.uint8, device=device.torch_device)  # a part of the workspace
    last = max(filled.nbytes - SAMPLE_BYTES, 0)
    for start in (*range(0, last, SAMPLE_EVERY_BYTES), last):
        sample = filled[start : start + SAMPLE_BYTES]
        arrived = target[: sample.nbytes]
        arrived.copy_(255 - sample)  # differs in every byte, so that a copy that does nothing shows
        try:
            device.copy_in(arrived, sample, device.mark())
            device.synchronize()
        except RuntimeError:  # what torch makes of a driver's error
            return False
        if not torch.equal(arrived.cpu(), sample):
            return False
    return True
