"""One bit an element, its meaning shared by the layer."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels import reference
from laconic.kernels.energy import Energy
from laconic.kernels.triton.dense import fold
from laconic.kernels.triton.launch import BLOCK, blocks
from laconic.kernels.triton.ordered import MAGNITUDES, NEGATIVE, POSITIVE, totals


@triton.jit
def _sign(x, bits, n, size, below, above, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.zeros([BLOCK], tl.int32)
    for bit in tl.static_range(8):
        inside = at * 8 + bit < n
        v = tl.load(x + at * 8 + bit, mask=inside, other=-1.0)
        up = v >= 0
        byte = byte | (up.to(tl.int32) << bit)
        tl.store(x + at * 8 + bit, v - tl.where(up, above, below), mask=inside)
    tl.store(bits + at, byte.to(tl.uint8), mask=at < size)


@triton.jit
def _unsign(bits, out, n, clear, set_, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(bits + at // 8, mask=at < n, other=0).to(tl.int32)
    up = ((byte >> (at % 8)) & 1) == 1
    tl.store(out + at, tl.load(out + at, mask=at < n, other=0.0) + tl.where(up, set_, clear), mask=at < n)


@triton.jit
def _majority(rows, out, count, pitch, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.zeros([BLOCK], tl.int32)
    for bit in tl.static_range(8):
        votes = tl.zeros([BLOCK], tl.int32)
        for row in range(count):
            votes = votes + ((tl.load(rows + row * pitch + at, mask=at < size, other=0).to(tl.int32) >> bit) & 1)
        byte = byte | ((2 * votes >= count).to(tl.int32) << bit)
    tl.store(out + at, byte.to(tl.uint8), mask=at < size)


def sign(x: Tensor, residual: Tensor | None, bits: Tensor, two_sided: bool) -> tuple[Energy, float, float]:
    n = x.numel()
    if n == 0:
        return reference.sign(x, residual, bits, two_sided)
    total = fold(x, residual)
    if two_sided:
        ups = int((x >= 0).sum())
        above = float(totals(x, n, POSITIVE)) / max(1, ups)
        below = float(totals(x, n, NEGATIVE)) / max(1, n - ups)
    else:
        above = float(totals(x, n, MAGNITUDES)) / n
        below = -above
    below, above = torch.tensor([below, above]).tolist()  # rounded, as the wire will carry them
    _sign[blocks(bits.numel())](x, bits, n, bits.numel(), below, above, BLOCK)
    return total, below, above


def unsign_add(bits: Tensor, clear: float, set_: float, out: Tensor, weight: float) -> None:
    if out.numel():
        _unsign[blocks(out.numel())](bits, out, out.numel(), clear * weight, set_ * weight, BLOCK)


def majority(rows: Tensor, out: Tensor) -> None:
    if out.numel():
        _majority[blocks(out.numel())](rows, out, rows.shape[0], rows.stride(0), out.numel(), BLOCK)
