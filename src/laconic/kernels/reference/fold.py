"""What every step does to every layer."""

from math import isfinite

import torch
from torch import Tensor

from laconic.kernels.energy import Energy


def energy(x: Tensor) -> Energy:
    norm = torch.linalg.vector_norm(x, dtype=torch.float64)  # unlike a square, needs no copy of x
    return float(norm) ** 2 if x.is_cpu else norm.square()


def fold(x: Tensor, residual: Tensor | None) -> Energy:
    if residual is not None:
        x += residual
    total = energy(x)
    if isinstance(total, Tensor):
        x.masked_fill_(~torch.isfinite(total), 0)
    elif not isfinite(total):
        x.zero_()
    return total


def settle(x: Tensor, residual: Tensor) -> None:
    residual.copy_(x)
    x.zero_()
