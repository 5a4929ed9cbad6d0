"""A matrix against factors of a few columns, by torch's own products."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.plausible import plausible_steps
from laconic.kernels.reference.fold import fold

BITS, LEVELS = 8, 127  # of a factor that is sent in few bits


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


def _parts(payload: Tensor, length: int, rank: int) -> tuple[Tensor, Tensor]:
    """Steps and codes of a factor, in one payload or in each of several."""
    split = -(-4 * rank // 8) * 8
    return payload[..., : 4 * rank].view(torch.float32), payload[..., split : split + length * rank]


def code_factor(factor: Tensor, payload: Tensor) -> None:
    factor.masked_fill_(~torch.isfinite(factor).all(), 0)
    scale = factor.abs().amax(0)
    levels = torch.full_like(scale, LEVELS)
    inverse, step = levels / scale, scale / levels
    usable = torch.isfinite(inverse) & (step > 0)
    inverse, step = torch.where(usable, inverse, 0.0), torch.where(usable, step, 0.0)
    q = (factor * inverse).round_().clamp_(-LEVELS, LEVELS)
    steps, codes = _parts(payload.zero_(), *factor.shape)
    steps.copy_(step)
    codes.copy_((q + LEVELS).to(torch.uint8).view(-1))
    torch.mul(q, step, out=factor)


def sum_factors(payloads: Tensor, total: Tensor, weight: float) -> None:
    all_steps, all_codes = _parts(payloads, *total.shape)
    plausible_steps(all_steps, BITS)
    total.zero_()
    for steps, codes in zip(all_steps, all_codes, strict=True):
        total += (codes.view(total.shape).float() - LEVELS) * (steps * weight)
