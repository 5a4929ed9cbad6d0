"""What every step does to every layer."""

from math import isfinite

import torch
from torch import Tensor


def energy(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2  # unlike a square, needs no copy of x


def fold(x: Tensor, residual: Tensor | None) -> float:
    if residual is not None:
        x += residual
    total = energy(x)
    if not isfinite(total):
        x.zero_()
    return total


def settle(x: Tensor, residual: Tensor) -> None:
    residual.copy_(x)
    x.zero_()
