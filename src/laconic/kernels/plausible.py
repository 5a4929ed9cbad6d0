"""What can not have been sent: scales and values that no encoder writes."""

import torch
from torch import Tensor

from laconic.errors import CorruptPayload

LARGEST = 3.403e38  # a little above float32's largest, as a step is rounded


def plausible(scales: Tensor, most: float = torch.finfo(torch.float32).max) -> None:
    """CorruptPayload if a received scale or value is not finite or beyond `most`; a device is not asked."""
    if scales.device.type == "cpu" and scales.numel() and not float(scales.abs().max()) <= most:
        raise refused(scales)


def refused(scales: Tensor) -> CorruptPayload:
    """What to raise for them."""
    return CorruptPayload(f"a scale or value of magnitude {float(scales.abs().max())} can not have been sent")


def plausible_steps(steps: Tensor, bits: int) -> None:
    """The same for the steps of codes of `bits` bits."""
    plausible(steps, LARGEST / max(1, 2 ** (bits - 1) - 1))
