"""What every launch has in common."""

from math import isfinite
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels.energy import Energy

BLOCK = 1024


def blocks(numel: int) -> tuple[int]:
    """The grid of a kernel that takes BLOCK elements at a time."""
    return (-(-numel // BLOCK),)


# A product and a sum round twice, as in the reference.
TWO_ROUNDINGS: dict[str, Any] = {"enable_fp_fusion": False}


def energies(count: int, device: torch.device) -> Tensor:
    """Room for one partial sum of squares per program."""
    return torch.zeros(count, dtype=torch.float64, device=device)


def finite(partial: Tensor, x: Tensor) -> tuple[Energy, bool]:
    """The energy, and whether the code must be written anew for zeros; x is zero if it is not finite.

    A device is not asked: its code stays as it is, and the energy tells every rank to drop the step.
    """
    if not partial.is_cpu:
        total = partial.sum()
        x.masked_fill_(~torch.isfinite(total), 0)
        return total, True
    energy = float(partial.sum())
    if not isfinite(energy):
        x.zero_()
    return energy, isfinite(energy)


@triton.jit
def uniform(index, low, high):
    """reference.uniform at one index; low and high are the halves of the seed, as uint32."""
    z = index.to(tl.uint32) * 0x9E3779B9 + low
    z = (z ^ (z >> 16)) * 0x21F0AAAD
    z = (z ^ (z >> 15) ^ high) * 0x735A2D97
    z = z ^ (z >> 15)
    return (z >> 8).to(tl.float32) * 5.9604644775390625e-08
