"""A matrix against factors of a few columns, by torch's own products."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.payload import aligned
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


# A row's share of its columns' largest magnitudes, from 2^-31 to 1 in steps of an eighth of a power of two: the upper
# bits of a float. Rounded up, so that no element is beyond the levels.
LEAST_SHARE, SHARE_SHIFT, MOST_SHARE = (127 - 31) << 23, 20, 31 << 3


def _parts(payload: Tensor, length: int, rank: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Steps, shares and codes of a factor, in one payload or in each of several."""
    shares = aligned(4 * rank)
    codes = shares + aligned(length)
    steps = payload[..., : 4 * rank].view(torch.float32)
    return steps, payload[..., shares : shares + length], payload[..., codes : codes + -(-length * rank * bits // 8)]


def _share_codes(shares: Tensor) -> Tensor:
    codes = (shares.view(torch.int32) - LEAST_SHARE + (1 << SHARE_SHIFT) - 1) >> SHARE_SHIFT
    return codes.clamp_(0, MOST_SHARE)


def _shares(codes: Tensor) -> Tensor:
    bits = (codes.int().clamp_max(MOST_SHARE) << SHARE_SHIFT) + LEAST_SHARE
    return bits.view(torch.float32).unsqueeze(-1)


def code_factor(factor: Tensor, payload: Tensor, bits: int) -> None:
    levels = 2 ** (bits - 1) - 1
    factor.masked_fill_(~torch.isfinite(factor).all(), 0)
    scale = factor.abs().amax(0)
    most = torch.full_like(scale, levels)
    inverse, step = most / scale, scale / most
    usable = torch.isfinite(inverse) & (step > 0)
    inverse, step = torch.where(usable, inverse, 0.0), torch.where(usable, step, 0.0)
    scaled = factor * inverse
    codes_of_shares = _share_codes(scaled.abs().amax(1) / torch.full_like(scaled[:, 0], levels))
    share = _shares(codes_of_shares)
    q = (scaled * (1 / share)).round_().clamp_(-levels, levels)
    steps, shares, codes = _parts(payload.zero_(), factor.shape[0], factor.shape[1], bits)
    steps.copy_(step)
    shares.copy_(codes_of_shares)
    pack_bits((q + levels).to(torch.uint8).view(-1), bits, codes)
    torch.mul(q * share, step, out=factor)


def sum_factors(payloads: Tensor, total: Tensor, weight: float, bits: int) -> None:
    levels = 2 ** (bits - 1) - 1
    all_steps, all_shares, all_codes = _parts(payloads, total.shape[0], total.shape[1], bits)
    plausible_steps(all_steps, bits)
    total.zero_()
    for steps, shares, codes in zip(all_steps, all_shares, all_codes, strict=True):
        told = unpack_bits(codes, bits, total.numel()).view(total.shape)
        total += (told.float() - levels) * _shares(shares) * (steps * weight)
