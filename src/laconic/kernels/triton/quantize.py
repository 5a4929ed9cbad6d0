"""Quantisation, a program per bucket. A scale that is a sum (L2, a mean) comes first, in the reference's order."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels import reference
from laconic.kernels.energy import Energy
from laconic.kernels.triton.dense import energy, fold
from laconic.kernels.triton.launch import BLOCK, TWO_ROUNDINGS, blocks, energies, finite, uniform
from laconic.kernels.triton.ordered import MAGNITUDES, SQUARES, totals

ROUNDING = tl.constexpr(
    12582912.0
)  # 1.5 * 2^23: a float that small, added to it, is rounded to an integer, ties to even


@triton.jit
def _quantize(
    x, residual, scales, codes, steps, energy, n, bucket, top, low, high,
    FOLD: tl.constexpr, GIVEN: tl.constexpr, ONE_BIT: tl.constexpr, SEEDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    at = row * bucket + column
    inside = (column < bucket) & (at < n)
    v = tl.load(x + at, mask=inside, other=0.0)
    if FOLD:
        v = v + tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    wide = v.to(tl.float64)
    tl.store(energy + row, tl.sum(wide * wide, axis=0))
    scale = tl.load(scales + row) if GIVEN else tl.max(tl.abs(v), axis=0)
    inverse = tl.div_rn(top, scale)
    step = tl.div_rn(scale, top)
    usable = (inverse <= 3.4028234663852886e38) & (step > 0)
    inverse = tl.where(usable, inverse, 0.0)
    step = tl.where(usable, step, 0.0)
    if ONE_BIT and not SEEDED:
        step = scale  # a mean, which divides nothing
    tl.store(steps + row, step)
    scaled = v * inverse
    if ONE_BIT:
        chance = (scaled + 1.0) * 0.5
        up = uniform(at, low.to(tl.uint32), high.to(tl.uint32)) < chance if SEEDED else v >= 0
        q = tl.where(up, 1.0, -1.0)
        tl.store(codes + at, up.to(tl.uint8), mask=inside)
    else:
        if SEEDED:
            scaled = tl.floor(scaled + uniform(at, low.to(tl.uint32), high.to(tl.uint32)))
            q = tl.minimum(tl.maximum(scaled, -top), top)
        else:
            q = tl.minimum(tl.maximum(scaled, -top), top)
            q = (q + ROUNDING) - ROUNDING
        tl.store(codes + at, (q + top).to(tl.uint8), mask=inside)
    tl.store(x + at, v - q * step, mask=inside)


@triton.jit
def _pack(codes, out, n, size, BITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.zeros([BLOCK], tl.int32)
    for bit in tl.static_range(8):
        position = at * 8 + bit
        code = tl.load(codes + position // BITS, mask=position // BITS < n, other=0).to(tl.int32)
        byte = byte | (((code >> (position % BITS)) & 1) << bit)
    tl.store(out + at, byte.to(tl.uint8), mask=at < size)


@triton.jit
def _dequantize(codes, steps, out, n, size, bucket, weight, BITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = tl.zeros([BLOCK], tl.int32)
    for bit in tl.static_range(BITS):
        position = at * BITS + bit
        byte = tl.load(codes + position // 8, mask=(at < n) & (position // 8 < size), other=0).to(tl.int32)
        code = code | (((byte >> (position % 8)) & 1) << bit)
    q = (code * 2 - 1 if BITS == 1 else code - (2 ** (BITS - 1) - 1)).to(tl.float32)
    step = tl.load(steps + at // bucket, mask=at < n, other=0.0) * weight
    tl.store(out + at, tl.load(out + at, mask=at < n, other=0.0) + q * step, mask=at < n)


def _given(x: Tensor, bits: int, bucket: int, l2: bool, seed: int | None) -> Tensor | None:
    """The scales that are sums over a bucket; none where the largest magnitude is the scale."""
    if bits == 1 and seed is None:
        sums = totals(x, bucket, MAGNITUDES)
        counts = torch.full_like(sums, bucket)
        if x.numel() % bucket:
            counts[-1] = x.numel() % bucket
        return (sums / counts).float()
    return totals(x, bucket, SQUARES).sqrt().float() if l2 else None


def quantize(
    x: Tensor, residual: Tensor | None, codes: Tensor, steps: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> Energy:  # fmt: skip
    n = x.numel()
    if n == 0:
        return reference.quantize(x, residual, codes, steps, bits, bucket, l2, seed)
    rows, loose, drawn = -(-n // bucket), torch.empty(n, dtype=torch.uint8, device=x.device), seed or 0
    partial, folded, scales = energies(rows, x.device), None, None
    if l2 or (bits == 1 and seed is None):
        folded = fold(x, residual)
        residual, scales = None, _given(x, bits, bucket, l2, seed)
    _quantize[(rows,)](
        x, x if residual is None else residual, x if scales is None else scales, loose, steps, partial, n, bucket,
        float(max(1, 2 ** (bits - 1) - 1)), drawn & 0xFFFFFFFF, drawn >> 32, residual is not None, scales is not None,
        bits == 1, seed is not None, triton.next_power_of_2(bucket), **TWO_ROUNDINGS,
    )  # fmt: skip
    total, good = (folded, True) if folded is not None else finite(partial, x)
    if not good:
        quantize(x, None, codes, steps, bits, bucket, l2, seed)
        return total
    size = -(-n * bits // 8)
    _pack[blocks(size)](loose, codes, n, size, bits, BLOCK)
    return total


def dequantize_add(codes: Tensor, steps: Tensor, out: Tensor, bits: int, bucket: int, weight: float) -> None:
    n = out.numel()
    if n:
        _dequantize[blocks(n)](codes, steps, out, n, codes.numel(), bucket, weight, bits, BLOCK, **TWO_ROUNDINGS)


def requantize(
    codes: Tensor, steps: Tensor, x: Tensor, codes_out: Tensor, steps_out: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> Energy:  # fmt: skip
    x.zero_()
    for row, step in zip(codes, steps, strict=True):
        dequantize_add(row, step, x, bits, bucket, 1.0)
    return quantize(x, None, codes_out, steps_out, bits, bucket, l2, seed)


def quantize_errors(x: Tensor, bucket: int, l2: bool) -> list[float]:
    errors = []
    for bits in range(1, 9):
        left = x.clone()
        codes = torch.empty(-(-x.numel() * bits // 8), dtype=torch.uint8, device=x.device)
        quantize(left, None, codes, x.new_empty(-(-x.numel() // bucket)), bits, bucket, l2, None)
        errors.append(float(energy(left)))
    return errors
