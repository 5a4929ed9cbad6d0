"""Sixteen bits an element."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.reference.fold import fold


def narrow(x: Tensor, residual: Tensor | None, code: Tensor, weight: float) -> Energy:
    total = fold(x, residual)
    most = torch.finfo(code.dtype).max
    code.copy_((x * weight).clamp_(-most, most))
    x -= code.float().div_(weight)
    return total


def widen_add(code: Tensor, out: Tensor, weight: float) -> None:
    out += code.float().mul_(weight)
