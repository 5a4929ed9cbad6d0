"""AdaComp, a program per bin: the first pass measures and counts, the second knows where its words go."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.kernels import reference
from laconic.kernels.energy import Energy
from laconic.kernels.triton.dense import fold
from laconic.kernels.triton.ordered import MAGNITUDES, totals


@triton.jit
def _chosen(x, gradient, row, n, bin, WIDTH: tl.constexpr):
    """(what G is, whether it goes, the largest of the bin)"""
    column = tl.arange(0, WIDTH)
    at = row * bin + column
    inside = (column < bin) & (at < n)
    v = tl.load(x + at, mask=inside, other=0.0)
    largest = tl.max(tl.abs(v), axis=0)
    sent = (tl.abs(v + tl.load(gradient + at, mask=inside, other=0.0)) >= largest) & (v != 0)
    return v, sent, largest


@triton.jit
def _measure(x, gradient, largest, counts, n, bin, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    _, sent, most = _chosen(x, gradient, row, n, bin, WIDTH)
    tl.store(largest + row, most)
    tl.store(counts + row, tl.sum(sent.to(tl.int64), axis=0))


@triton.jit
def _spell(x, gradient, counts, places, words, room, n, bin, scale, empty, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    v, sent, _ = _chosen(x, gradient, row, n, bin, WIDTH)
    count = tl.load(counts + row)
    place = tl.load(places + row)
    rank = tl.cumsum(sent.to(tl.int64), 0) - 1
    column = tl.arange(0, WIDTH)
    negative = v < 0
    word = (column << 2) | ((rank == count - 1).to(tl.int32) << 1) | negative.to(tl.int32)
    kept = sent & (place + rank < room)
    tl.store(words + place + rank, word.to(words.dtype.element_ty), mask=kept)
    tl.store(x + row * bin + column, v - tl.where(negative, -scale, scale), mask=kept)
    vacant = (column + count < 1) & (column + place < room)  # the first lane of a bin that sends nothing
    closing = tl.zeros([WIDTH], tl.int32) + (empty << 2 | 2)
    tl.store(words + place + column, closing.to(words.dtype.element_ty), mask=vacant)


def adacomp(x: Tensor, residual: Tensor | None, bin: int, words: Tensor) -> tuple[Energy, float, int]:
    n, bins = x.numel(), -(-x.numel() // bin)
    if n == 0:
        return reference.adacomp(x, residual, bin, words)
    gradient = x.clone()
    total = fold(x, residual)
    gradient.masked_fill_(~torch.isfinite(torch.as_tensor(total, dtype=torch.float64)), 0)
    words.zero_()
    dtype, empty = (torch.uint8, 63) if bin < 64 else (torch.int16, 16383)
    stored = words[: words.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    largest, counts = x.new_empty(bins), torch.empty(bins, dtype=torch.int64, device=x.device)
    width = triton.next_power_of_2(bin)
    _measure[(bins,)](x, gradient, largest, counts, n, bin, width)
    scale = float((totals(largest, bins, MAGNITUDES) / bins).float())
    wanted = counts.clamp(min=1)  # an empty bin has a word, too
    places = wanted.cumsum(0) - wanted
    _spell[(bins,)](x, gradient, counts, places, stored, stored.numel(), n, bin, scale, empty, width)
    return total, scale, int(wanted.sum())
