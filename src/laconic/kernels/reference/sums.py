"""Sums whose rounding is fixed, so that a mean or a norm is the same number on every backend and thread count."""

import torch
from torch import Tensor

LANES = 16  # a vector unit's partial sums
BLOCK = 1024  # elements that share them; a whole number of blocks can be summed by different threads


def padded(x: Tensor, width: int) -> Tensor:
    """x as rows of `width`, the last one filled up with zeros."""
    rows = -(-x.numel() // width)
    wide = x.new_zeros(rows * width)
    wide[: x.numel()] = x
    return wide.view(rows, width)


def folded(sums: Tensor) -> Tensor:
    """The last dimension added up: its upper half to its lower, until one is left; an odd one out meets a zero."""
    while sums.shape[-1] > 1:
        if sums.shape[-1] % 2:
            sums = torch.nn.functional.pad(sums, (0, 1))
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return sums.squeeze(-1)


def totals(rows: Tensor) -> Tensor:
    """The sum of every row in double precision: lanes of a block step by step, then lanes, then blocks, in halves."""
    count, width = rows.shape
    steps = min(BLOCK, -(-width // LANES) * LANES) // LANES
    blocks = -(-width // (steps * LANES))
    wide = rows.new_zeros(count, blocks * steps * LANES)
    wide[:, :width] = rows
    packs = wide.view(count, blocks, steps, LANES)
    sums = packs.new_zeros(count, blocks, LANES, dtype=torch.float64)
    for step in range(steps):
        sums += packs[:, :, step]
    return folded(folded(sums))
