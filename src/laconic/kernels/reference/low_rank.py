"""A matrix against factors of a few columns, by torch's own products."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.plausible import plausible_steps
from laconic.kernels.reference.bitstream import pack_bits, unpack_bits
from laconic.kernels.reference.fold import fold


def wide(x: Tensor) -> Tensor:
    """The matrix, or its transpose: whichever is not higher than wide."""
    return x.T if x.shape[0] > x.shape[1] else x


def sketch(x: Tensor, residual: Tensor | None, q: Tensor, p: Tensor) -> Energy:
    total = fold(x.view(-1), None if residual is None else residual.view(-1))
    torch.mm(wide(x), q, out=p)
    return total


def sketch_back(x: Tensor, p: Tensor, q: Tensor) -> None:
    torch.mm(wide(x).T, p, out=q)


def subtract_product(x: Tensor, p: Tensor, q: Tensor) -> None:
    wide(x).addmm_(p, q.T, alpha=-1)


def product(p: Tensor, q: Tensor, out: Tensor) -> None:
    torch.mm(*((p, q.T) if len(p) == len(out) else (q, p.T)), out=out)


def _parts(payload: Tensor, length: int, rank: int, bits: int) -> tuple[Tensor, Tensor]:
    """Steps and codes of a factor, in one payload or in each of several."""
    split = -(-4 * rank // 8) * 8
    return payload[..., : 4 * rank].view(torch.float32), payload[..., split : split + -(-length * rank * bits // 8)]


def code_factor(factor: Tensor, payload: Tensor, bits: int) -> None:
    levels = 2 ** (bits - 1) - 1
    factor.masked_fill_(~torch.isfinite(factor).all(), 0)
    scale = factor.abs().amax(0)
    most = torch.full_like(scale, levels)
    inverse, step = most / scale, scale / most
    usable = torch.isfinite(inverse) & (step > 0)
    inverse, step = torch.where(usable, inverse, 0.0), torch.where(usable, step, 0.0)
    q = (factor * inverse).round_().clamp_(-levels, levels)
    steps, codes = _parts(payload.zero_(), factor.shape[0], factor.shape[1], bits)
    steps.copy_(step)
    pack_bits((q + levels).to(torch.uint8).view(-1), bits, codes)
    torch.mul(q, step, out=factor)


def sum_factors(payloads: Tensor, total: Tensor, weight: float, bits: int) -> None:
    levels = 2 ** (bits - 1) - 1
    all_steps, all_codes = _parts(payloads, total.shape[0], total.shape[1], bits)
    plausible_steps(all_steps, bits)
    total.zero_()
    for steps, codes in zip(all_steps, all_codes, strict=True):
        told = unpack_bits(codes, bits, total.numel()).view(total.shape)
        total += (told.float() - levels) * (steps * weight)
