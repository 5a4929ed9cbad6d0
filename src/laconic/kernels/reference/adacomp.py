"""AdaComp (arXiv 1712.02679)."""

from math import isfinite

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.reference.fold import fold
from laconic.kernels.reference.sums import padded, totals


def _word_type(bin: int) -> tuple[torch.dtype, int]:
    """How a word is stored, and the largest index, which marks an empty bin."""
    return (torch.uint8, 63) if bin < 64 else (torch.int16, 16383)


def adacomp(x: Tensor, residual: Tensor | None, bin: int, words: Tensor) -> tuple[Energy, float, int]:
    gradient = x.clone()
    total = fold(x, residual)
    if not isfinite(total):
        gradient.zero_()
    words.zero_()
    if x.numel() == 0:
        return total, 0.0, 0
    largest = padded(x, bin).abs_().amax(1)
    scale = float((totals(largest.unsqueeze(0)) / largest.numel()).float())
    at = ((x + gradient).abs() >= largest.repeat_interleave(bin)[: x.numel()]).logical_and_(x != 0).nonzero().flatten()
    home = at // bin
    dtype, empty = _word_type(bin)
    vacant = (torch.bincount(home, minlength=largest.numel()) == 0).nonzero().flatten()
    last = torch.ones_like(home)
    last[:-1] = (home[1:] != home[:-1]).long()
    word = torch.cat([(at % bin) << 2 | last << 1 | (x[at] < 0).long(), torch.full_like(vacant, empty << 2 | 2)])
    order = torch.cat([home, vacant]).argsort(stable=True)
    stored = words[: words.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    kept = order[: stored.numel()]
    code = word[kept]
    stored[: kept.numel()] = (code if dtype is torch.uint8 else torch.where(code > 32767, code - 65536, code)).to(dtype)
    sent = at[kept[kept < at.numel()]]
    x[sent] -= torch.where(x[sent] < 0, -scale, scale)
    return total, scale, order.numel()


def unadacomp_add(words: Tensor, count: int, scale: float, bin: int, out: Tensor, weight: float) -> None:
    dtype, empty = _word_type(bin)
    stored = words[: words.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    if not 0 <= count <= stored.numel():
        raise CorruptPayload(f"{count} words are announced where the payload holds {stored.numel()}")
    word = stored[:count].long() & (0xFF if dtype is torch.uint8 else 0xFFFF)
    closes = word >> 1 & 1
    home = closes.cumsum(0) - closes
    real = word >> 2 != empty
    at = (home * bin + (word >> 2))[real]
    if bool((word[real] >> 2 >= bin).any()) or (at.numel() and int(at.max()) >= out.numel()):
        raise CorruptPayload(f"an index lies outside the layer's {out.numel()} elements or its bin of {bin}")
    values = torch.where(word[real] & 1 == 1, -scale, scale).to(out.dtype)
    out.index_add_(0, at, values * weight)
