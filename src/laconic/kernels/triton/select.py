"""Few elements of many: which they are is found in two passes, one that counts by block and one that writes.

Between them a running sum tells every block where its elements go; nothing of it is known to the host but the count.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.sampling import BISECTIONS, LEAST, sample
from laconic.kernels.triton.dense import fold
from laconic.kernels.triton.launch import BLOCK, TWO_ROUNDINGS, blocks, uniform
from laconic.kernels.triton.ordered import MAGNITUDES, totals


@triton.jit
def _count(x, cut, above, ties, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size = tl.abs(tl.load(x + at, mask=at < n, other=0.0))
    bar = tl.load(cut)
    tl.store(above + tl.program_id(0), tl.sum(((size > bar) & (at < n)).to(tl.int64), axis=0))
    tl.store(ties + tl.program_id(0), tl.sum(((size == bar) & (at < n)).to(tl.int64), axis=0))


@triton.jit
def _write(x, cut, above, ties, wanted, indices, values, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    bar = tl.load(cut)
    many = tl.load(wanted)  # ties that go: the first so many of the layer
    tie = ((tl.abs(v) == bar) & (at < n)).to(tl.int64)
    earlier = tl.load(ties + tl.program_id(0))
    tied = (tie == 1) & (earlier + tl.cumsum(tie, 0) <= many)
    sent = ((tl.abs(v) > bar) & (at < n)) | tied
    to = tl.load(above + tl.program_id(0)) + tl.minimum(earlier, many) + tl.cumsum(sent.to(tl.int64), 0) - 1
    tl.store(indices + to, at.to(tl.int32), mask=sent)
    tl.store(values + to, v, mask=sent)
    tl.store(x + at, tl.zeros_like(v), mask=sent)


@triton.jit
def _take(x, indices, values, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(indices + i, mask=i < k, other=0)
    v = tl.load(x + at, mask=i < k, other=0.0)
    tl.store(values + i, v, mask=i < k)
    tl.store(x + at, tl.zeros_like(v), mask=i < k)


@triton.jit
def _scatter(indices, values, out, k, weight, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(indices + i, mask=i < k, other=0)
    tl.atomic_add(out + at, tl.load(values + i, mask=i < k, other=0.0) * weight, mask=i < k)


@triton.jit
def _strata(indices, numel, k, low, high, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide = i.to(tl.int64)
    start = wide * numel // k
    width = (wide + 1) * numel // k - start
    within = (uniform(i, low.to(tl.uint32), high.to(tl.uint32)).to(tl.float64) * width.to(tl.float64)).to(tl.int64)
    tl.store(indices + i, (start + within).to(tl.int32), mask=i < k)


class _Counts:
    """How many elements of x exceed a cut, and how many equal it, block by block."""

    def __init__(self, x: Tensor, cut: Tensor) -> None:
        self.x, self.cut = x, cut
        self.above, self.ties = torch.empty(2, *blocks(x.numel()), dtype=torch.int64, device=x.device)
        _count[blocks(x.numel())](x, cut, self.above, self.ties, x.numel(), BLOCK)

    def at_least(self) -> int:
        return int(self.above.sum() + self.ties.sum())

    def write(self, ties: Tensor, indices: Tensor, values: Tensor) -> None:
        """Move what exceeds the cut, and the first `ties` that equal it, out of x; indices ascend."""
        before = self.above.cumsum(0) - self.above, self.ties.cumsum(0) - self.ties
        n = self.x.numel()
        _write[blocks(n)](self.x, self.cut, *before, ties, indices, values, n, BLOCK)


def _exactly(x: Tensor, k: int, indices: Tensor, values: Tensor) -> None:
    if k:
        counts = _Counts(x, torch.topk(x.abs(), k).values[-1:])
        counts.write(k - counts.above.sum().view(1), indices, values)


def top_k(x: Tensor, residual: Tensor | None, indices: Tensor, values: Tensor) -> Energy:
    total = fold(x, residual)
    _exactly(x, min(indices.numel(), x.numel()), indices, values)
    return total


def sampled_top_k(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[Energy, int]:
    total = fold(x, residual)
    if x.numel() == 0:
        return total, 0
    stride, share = sample(x.numel(), k)
    counts = _Counts(x, torch.topk(x[::stride].abs(), share).values[-1:])
    count = counts.at_least()
    if LEAST * k <= count <= indices.numel():
        counts.write(counts.ties.sum().view(1), indices, values)
        return total, count
    _exactly(x, min(k, x.numel()), indices, values)
    return total, min(k, x.numel())


def threshold(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[Energy, int]:
    total = fold(x, residual)
    n = x.numel()
    if n == 0:
        return total, 0
    low, high = x.new_zeros(1), x.abs().amax().view(1)
    cut = (totals(x, n, MAGNITUDES) / n).float()
    for _ in range(BISECTIONS):
        counts = _Counts(x, cut)
        count = counts.at_least()
        if k <= count <= indices.numel():
            counts.write(counts.ties.sum().view(1), indices, values)
            return total, count
        low, high = (cut, high) if count > indices.numel() else (low, cut)
        cut = (low + high) * 0.5
    _exactly(x, min(k, n), indices, values)
    return total, min(k, n)


def strata(numel: int, seed: int, indices: Tensor) -> None:
    k = indices.numel()
    if k:
        _strata[blocks(k)](indices, numel, k, seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, BLOCK)


def take(x: Tensor, indices: Tensor, values: Tensor) -> None:
    if indices.numel():
        _take[blocks(indices.numel())](x, indices, values, indices.numel(), BLOCK)


def scatter_add(indices: Tensor, values: Tensor, out: Tensor, weight: float) -> None:
    k = indices.numel()
    if k and not (int(indices.min()) >= 0 and int(indices.max()) < out.numel()):
        raise CorruptPayload(f"an index lies outside the layer's {out.numel()} elements")
    if k:
        _scatter[blocks(k)](indices, values, out, k, weight, BLOCK, **TWO_ROUNDINGS)
