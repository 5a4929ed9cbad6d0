"""Powers of two."""

from math import frexp

import triton
import triton.language as tl
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.reference.natural import EXPONENTS
from laconic.kernels.triton.dense import fold
from laconic.kernels.triton.launch import BLOCK, TWO_ROUNDINGS, blocks, uniform


@triton.jit
def power_of_two(exponent):
    """2^exponent in float32, or 0 below its range: two normal factors make a subnormal."""
    small = exponent < -100
    base = tl.maximum(exponent + tl.where(small, 151, 127), 0)
    return (base << 23).to(tl.float32, bitcast=True) * tl.where(small, 5.9604644775390625e-08, 1.0)


@triton.jit
def _natural(x, codes, n, exponent, low, high, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    u = uniform(at, low.to(tl.uint32), high.to(tl.uint32))
    size = tl.abs(v)
    bits = size.to(tl.int32, bitcast=True)
    subnormal = bits < 0x00800000
    normal = tl.where(subnormal, (size * 16777216.0).to(tl.int32, bitcast=True), bits)
    down = (normal >> 23) - tl.where(subnormal, 151, 127)
    chance = (normal & 0x7FFFFF).to(tl.float32) * 1.1920928955078125e-07
    level = tl.minimum(down + (u < chance).to(tl.int32) - exponent + 127, 127)
    least = power_of_two(tl.zeros([BLOCK], tl.int32) + exponent - 126)
    level = tl.where(level < 1, (u * least < size).to(tl.int32), level)
    level = tl.where(bits == 0, 0, level)
    negative = v < 0
    tl.store(codes + at, (level | (negative.to(tl.int32) << 7)).to(tl.uint8), mask=at < n)
    sent = tl.where(level > 0, power_of_two(level - 127 + exponent), 0.0)
    tl.store(x + at, v - tl.where(negative, -sent, sent), mask=at < n)


@triton.jit
def _unnatural(codes, out, n, exponent, weight, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(codes + at, mask=at < n, other=0).to(tl.int32)
    level = code & 127
    size = tl.where(level > 0, power_of_two(level - 127 + exponent), 0.0)
    v = tl.where(code > 127, -size, size)
    tl.store(out + at, tl.load(out + at, mask=at < n, other=0.0) + v * weight, mask=at < n)


def natural(x: Tensor, residual: Tensor | None, codes: Tensor, seed: int) -> tuple[Energy, int]:
    total = fold(x, residual)
    largest = float(x.abs().max()) if x.numel() else 0.0
    if largest == 0.0:
        codes.zero_()
        return total, 0
    top = min(frexp(largest)[1], EXPONENTS[-1])  # the largest may be rounded up, where there is room
    _natural[blocks(x.numel())](x, codes, x.numel(), top, seed & 0xFFFFFFFF, seed >> 32, BLOCK, **TWO_ROUNDINGS)
    return total, top


def unnatural_add(codes: Tensor, exponent: int, out: Tensor, weight: float) -> None:
    if exponent not in EXPONENTS:
        raise CorruptPayload(f"the exponent {exponent} is none of float32")
    if out.numel():
        _unnatural[blocks(out.numel())](codes, out, out.numel(), exponent, weight, BLOCK, **TWO_ROUNDINGS)
