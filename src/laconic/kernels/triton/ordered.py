"""Sums in the order that the reference fixes: sixteen lanes a block, step by step; then lanes and blocks, in halves."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels.reference.sums import folded
from laconic.kernels.triton.launch import BLOCK

MAGNITUDES, SQUARES, POSITIVE, NEGATIVE = range(4)  # what of x is added up


@triton.jit
def _sums(x, out, n, width, KIND: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, 16)
    sums = tl.zeros([16], tl.float64)
    for step in range(STEPS):
        column = tl.program_id(1) * BLOCK + step * 16 + lane
        at = tl.program_id(0) * width + column
        v = tl.load(x + at, mask=(column < width) & (at < n), other=0.0).to(tl.float64)
        if KIND == 0:
            v = tl.abs(v)
        elif KIND == 1:
            v = v * v
        elif KIND == 2:
            v = tl.where(v >= 0, v, 0.0)
        else:
            v = tl.where(v >= 0, 0.0, v)
        sums = sums + v
    eight = tl.sum(tl.reshape(sums, [2, 8]), axis=0)
    four = tl.sum(tl.reshape(eight, [2, 4]), axis=0)
    two = tl.sum(tl.reshape(four, [2, 2]), axis=0)
    tl.store(out + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(two, axis=0))


def totals(x: Tensor, width: int, kind: int) -> Tensor:
    """The sum of every `width` elements of x, in double precision."""
    rows, parts = -(-x.numel() // width), -(-width // BLOCK)
    out = torch.empty(rows, parts, dtype=torch.float64, device=x.device)
    _sums[(rows, parts)](x, out, x.numel(), width, kind, min(BLOCK, -(-width // 16) * 16) // 16, BLOCK)
    return folded(out)
