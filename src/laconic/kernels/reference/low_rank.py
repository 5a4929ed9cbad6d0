"""A matrix against factors of a few columns, by torch's own products."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.reference.fold import fold


def sketch(x: Tensor, residual: Tensor | None, q: Tensor, p: Tensor) -> Energy:
    total = fold(x.view(-1), None if residual is None else residual.view(-1))
    torch.mm(x, q, out=p)
    return total


def sketch_back(x: Tensor, p: Tensor, q: Tensor) -> None:
    torch.mm(x.T, p, out=q)


def subtract_product(x: Tensor, p: Tensor, q: Tensor) -> None:
    x.addmm_(p, q.T, alpha=-1)


def product(p: Tensor, q: Tensor, out: Tensor) -> None:
    torch.mm(p, q.T, out=out)
