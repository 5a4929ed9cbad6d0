"""Quantisation by the largest magnitude, a program per bucket. One bit and L2 scaling run on the reference."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels import reference
from laconic.kernels.energy import Energy
from laconic.kernels.triton.launch import BLOCK, TWO_ROUNDINGS, blocks, energies, finite, uniform

ROUNDING = tl.constexpr(
    12582912.0
)  # 1.5 * 2^23: a float that small, added to it, is rounded to an integer, ties to even


@triton.jit
def _quantize(
    x, residual, codes, steps, energy, n, bucket, top, low, high,
    FOLD: tl.constexpr, SEEDED: tl.constexpr, WIDTH: tl.constexpr,
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
    scale = tl.max(tl.abs(v), axis=0)
    inverse = tl.div_rn(top, scale)
    step = tl.div_rn(scale, top)
    usable = (inverse <= 3.4028234663852886e38) & (step > 0)
    inverse = tl.where(usable, inverse, 0.0)
    step = tl.where(usable, step, 0.0)
    tl.store(steps + row, step)
    scaled = v * inverse
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


def quantize(
    x: Tensor, residual: Tensor | None, codes: Tensor, steps: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> Energy:  # fmt: skip
    n = x.numel()
    if bits == 1 or l2 or n == 0:
        return reference.quantize(x, residual, codes, steps, bits, bucket, l2, seed)
    rows, loose = -(-n // bucket), torch.empty(n, dtype=torch.uint8, device=x.device)
    partial, drawn = energies(rows, x.device), seed or 0
    _quantize[(rows,)](
        x, x if residual is None else residual, loose, steps, partial, n, bucket, float(2 ** (bits - 1) - 1),
        drawn & 0xFFFFFFFF, drawn >> 32, residual is not None, seed is not None, triton.next_power_of_2(bucket),
        **TWO_ROUNDINGS,
    )  # fmt: skip
    total, good = finite(partial, x)
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
