"""A few bits an element, a step per bucket."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.plausible import plausible_steps
from laconic.kernels.reference.bitstream import pack_bits, unpack_bits
from laconic.kernels.reference.fold import fold
from laconic.kernels.reference.sums import padded, totals
from laconic.kernels.reference.uniform import uniform


def _scales(x: Tensor, bucket: int, l2: bool) -> Tensor:
    wide = padded(x, bucket)
    return totals(wide.double().square_()).sqrt().float() if l2 else wide.abs_().amax(1)


def _mean_magnitudes(x: Tensor, bucket: int) -> Tensor:
    sums = totals(padded(x, bucket).abs_())
    counts = torch.full_like(sums, bucket)
    if x.numel() % bucket:
        counts[-1] = x.numel() % bucket
    return (sums / counts).float()


def _spread(per_bucket: Tensor, bucket: int, numel: int) -> Tensor:
    return per_bucket.repeat_interleave(bucket)[:numel]


def quantize(
    x: Tensor, residual: Tensor | None, codes: Tensor, steps: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> Energy:  # fmt: skip
    total = fold(x, residual)
    n = x.numel()
    if n == 0:
        return total
    if bits == 1 and seed is None:
        steps.copy_(_mean_magnitudes(x, bucket))
        up = (x >= 0).int()
        x -= (2 * up - 1) * _spread(steps, bucket, n)
        pack_bits(up, 1, codes)
        return total
    top = max(1, 2 ** (bits - 1) - 1)
    scale = _scales(x, bucket, l2)
    inverse, step = torch.full_like(scale, top) / scale, scale / torch.full_like(scale, top)
    usable = torch.isfinite(inverse) & (step > 0)
    steps.copy_(torch.where(usable, step, 0.0))
    scaled = _spread(torch.where(usable, inverse, 0.0), bucket, n).mul_(x)
    if bits == 1:
        assert seed is not None
        code = (uniform(seed, n, x.device) < (scaled + 1) * 0.5).int()
        q = 2 * code - 1
    else:
        scaled = scaled.round_() if seed is None else scaled.add_(uniform(seed, n, x.device)).floor_()
        q = scaled.clamp_(-top, top).int()
        code = q + top
    x -= q * _spread(steps, bucket, n)
    pack_bits(code, bits, codes)
    return total


def dequantize_add(codes: Tensor, steps: Tensor, out: Tensor, bits: int, bucket: int, weight: float) -> None:
    plausible_steps(steps[: -(-out.numel() // bucket)], bits)
    _add(codes, steps, out, bits, bucket, weight)


def _add(codes: Tensor, steps: Tensor, out: Tensor, bits: int, bucket: int, weight: float) -> None:
    n = out.numel()
    q = unpack_bits(codes, bits, n)
    q = 2 * q - 1 if bits == 1 else q - (2 ** (bits - 1) - 1)
    out += q * _spread(steps * weight, bucket, n)


def requantize(
    codes: Tensor, steps: Tensor, x: Tensor, codes_out: Tensor, steps_out: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> Energy:  # fmt: skip
    x.zero_()
    for row, step in zip(codes, steps, strict=True):
        _add(row, step, x, bits, bucket, 1.0)
    return quantize(x, None, codes_out, steps_out, bits, bucket, l2, seed)
