"""The kernels in plain torch: the specification that every other backend is held to, and what runs without them."""

from math import isfinite

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.index import bitmap_bytes, low_bits

name = "reference"
SAMPLE = 65_536  # elements that a sampled threshold looks at
BISECTIONS = 32  # enough to halve a float32 interval down to neighbouring values


def energy(x: Tensor) -> float:
    return float(x.double().square().sum())


def fold(x: Tensor, residual: Tensor | None) -> float:
    if residual is not None:
        x += residual
    total = energy(x)
    if not isfinite(total):
        x.zero_()
    return total


# Bit streams


def pack_bits(codes: Tensor, bits: int, out: Tensor) -> None:
    """Write integer codes of `bits` bits as a little-endian stream into the bytes of `out`."""
    planes = (codes.unsqueeze(1) >> torch.arange(bits, device=codes.device)) & 1
    stream = torch.zeros(out.numel() * 8, dtype=torch.uint8, device=codes.device)
    stream[: planes.numel()] = planes.flatten().to(torch.uint8)
    out.copy_((stream.view(-1, 8) << torch.arange(8, dtype=torch.uint8, device=codes.device)).sum(1, dtype=torch.uint8))


def unpack_bits(packed: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` codes of a stream, as int64."""
    stream = (packed.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    planes = stream.flatten()[: count * bits].view(count, bits).long()
    return (planes << torch.arange(bits, device=packed.device)).sum(1)


def uniform(seed: int, numel: int, device: torch.device | None = None) -> Tensor:
    """Counter-based numbers in [0, 1) with 24 bits: element i depends on (seed, i) alone."""
    mask = 0xFFFFFFFF
    z = (torch.arange(numel, dtype=torch.int64, device=device) * 0x9E3779B9 + (seed & mask)) & mask
    z = ((z ^ z >> 16) * 0x21F0AAAD) & mask
    z = ((z ^ z >> 15 ^ (seed >> 32 & mask)) * 0x735A2D97) & mask
    z = z ^ z >> 15
    return (z >> 8).float() * 2.0**-24


# Quantisation


def _padded(x: Tensor, bucket: int) -> Tensor:
    rows = -(-x.numel() // bucket)
    wide = x.new_zeros(rows * bucket)
    wide[: x.numel()] = x
    return wide.view(rows, bucket)


def _scales(x: Tensor, bucket: int, l2: bool) -> Tensor:
    wide = _padded(x, bucket)
    if l2:
        return wide.double().square().sum(1).sqrt().float()
    return wide.abs().amax(1)


def _mean_magnitudes(x: Tensor, bucket: int) -> Tensor:
    totals = _padded(x, bucket).double().abs().sum(1)
    counts = torch.full_like(totals, bucket)
    if x.numel() % bucket:
        counts[-1] = x.numel() % bucket
    return (totals / counts).float()


def _spread(per_bucket: Tensor, bucket: int, numel: int) -> Tensor:
    return per_bucket.unsqueeze(1).expand(-1, bucket).flatten()[:numel]


def quantize(
    x: Tensor, residual: Tensor | None, codes: Tensor, steps: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> float:  # fmt: skip
    total = fold(x, residual)
    n = x.numel()
    if n == 0:
        return total
    if bits == 1 and seed is None:
        steps.copy_(_mean_magnitudes(x, bucket))
        q = (x >= 0).long()
        x -= (2 * q - 1).float() * _spread(steps, bucket, n)
        pack_bits(q, 1, codes)
        return total
    top = max(1, 2 ** (bits - 1) - 1)
    scale = _scales(x, bucket, l2)
    inverse = top / scale
    usable = torch.isfinite(inverse) & (scale / top > 0)
    inverse = torch.where(usable, inverse, 0.0)
    steps.copy_(torch.where(usable, scale / top, 0.0))
    scaled = x * _spread(inverse, bucket, n)
    if bits == 1:
        assert seed is not None
        code = (uniform(seed, n, x.device) < (scaled + 1) * 0.5).long()
        q = 2 * code - 1
    else:
        q = torch.round(scaled) if seed is None else torch.floor(scaled + uniform(seed, n, x.device))
        q = q.clamp_(-top, top).long()
        code = q + top
    x -= q.float() * _spread(steps, bucket, n)
    pack_bits(code, bits, codes)
    return total


def dequantize_add(codes: Tensor, steps: Tensor, out: Tensor, bits: int, bucket: int, weight: float) -> None:
    n = out.numel()
    code = unpack_bits(codes, bits, n)
    q = 2 * code - 1 if bits == 1 else code - (2 ** (bits - 1) - 1)
    out += q.float() * _spread(steps * weight, bucket, n)


# Sparsification


def _exact(x: Tensor, k: int) -> Tensor:
    """Indices of the k largest magnitudes, ties by lower index, ascending."""
    magnitude = x.abs()
    if k >= x.numel():
        return torch.arange(x.numel(), device=x.device)
    cut = torch.topk(magnitude, k, sorted=True).values[-1] if k else magnitude.new_tensor(float("inf"))
    above = (magnitude > cut).nonzero().flatten()
    ties = (magnitude == cut).nonzero().flatten()[: k - above.numel()]
    return torch.cat([above, ties]).sort().values


def _hand_over(x: Tensor, chosen: Tensor, indices: Tensor, values: Tensor) -> int:
    count = chosen.numel()
    indices[:count] = chosen.to(indices.dtype)
    values[:count] = x[chosen]
    x[chosen] = 0
    return count


def top_k(x: Tensor, residual: Tensor | None, indices: Tensor, values: Tensor) -> float:
    total = fold(x, residual)
    _hand_over(x, _exact(x, indices.numel()), indices, values)
    return total


def sampled_top_k(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[float, int]:
    total = fold(x, residual)
    n, room = x.numel(), indices.numel()
    if n == 0:
        return total, 0
    sample = x[:: max(1, n // SAMPLE)].abs()
    share = max(1, round(k * sample.numel() / n))
    cut = torch.topk(sample, min(share, sample.numel())).values[-1]
    chosen = (x.abs() >= cut).nonzero().flatten()
    if not 0.7 * k <= chosen.numel() <= room:
        chosen = _exact(x, k)
    return total, _hand_over(x, chosen, indices, values)


def threshold(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[float, int]:
    total = fold(x, residual)
    n, room = x.numel(), indices.numel()
    if n == 0:
        return total, 0
    magnitude = x.abs()
    low, high = magnitude.new_zeros(()), magnitude.amax()
    cut = magnitude.double().mean().float()
    for _ in range(BISECTIONS):
        count = int((magnitude >= cut).sum())
        if k <= count <= room:
            return total, _hand_over(x, (magnitude >= cut).nonzero().flatten(), indices, values)
        low, high = (cut, high) if count > room else (low, cut)
        cut = (low + high) * 0.5
    return total, _hand_over(x, _exact(x, k), indices, values)


def strata(numel: int, seed: int, indices: Tensor) -> None:
    k = indices.numel()
    edges = torch.arange(k + 1, dtype=torch.int64, device=indices.device) * numel // max(1, k)
    widths = edges[1:] - edges[:-1]
    within = (uniform(seed, k, indices.device).double() * widths).long()
    indices.copy_(edges[:-1] + within)


def take(x: Tensor, indices: Tensor, values: Tensor) -> None:
    _hand_over(x, indices.long(), indices, values)


def scatter_add(indices: Tensor, values: Tensor, out: Tensor, weight: float) -> None:
    at = indices.long()
    if at.numel() and not (int(at.min()) >= 0 and int(at.max()) < out.numel()):
        raise CorruptPayload(f"an index lies outside the layer's {out.numel()} elements")
    out.index_add_(0, at, values, alpha=weight)


def pack_indices(indices: Tensor, numel: int, room: int, code: Tensor) -> None:
    low, split = low_bits(numel, room), bitmap_bytes(numel, room)
    at = indices.long()
    bitmap = torch.zeros(split * 8, dtype=torch.int64, device=code.device)
    bitmap[(at >> low) + torch.arange(at.numel(), device=code.device)] = 1
    pack_bits(bitmap, 1, code[:split])
    if low:
        pack_bits(at & (1 << low) - 1, low, code[split:])


def unpack_indices(code: Tensor, numel: int, room: int, indices: Tensor) -> None:
    count, low, split = indices.numel(), low_bits(numel, room), bitmap_bytes(numel, room)
    ones = unpack_bits(code[:split], 1, split * 8).nonzero().flatten()[:count]
    if ones.numel() < count:
        raise CorruptPayload(f"an index code holds {ones.numel()} indices where its header says {count}")
    at = ones - torch.arange(count, device=code.device) << low
    if low:
        at |= unpack_bits(code[split:], low, count)
    if count and int(at.max()) >= numel:
        raise CorruptPayload(f"index {int(at.max())} lies outside the layer's {numel} elements")
    indices.copy_(at)


# Signs


def sign(x: Tensor, residual: Tensor | None, bits: Tensor, two_sided: bool) -> tuple[float, float, float]:
    total = fold(x, residual)
    up = x >= 0
    pack_bits(up.long(), 1, bits)
    wide, ups = x.double(), int(up.sum())
    downs = x.numel() - ups
    if two_sided:
        above = float(wide[up].sum()) / max(1, ups)
        below = float(wide[~up].sum()) / max(1, downs)
    else:
        above = float(wide.abs().sum()) / max(1, x.numel())
        below = -above
    below, above = float(torch.tensor(below)), float(torch.tensor(above))  # as the wire will carry them
    x -= torch.where(up, above, below)
    return total, below, above


def unsign_add(bits: Tensor, clear: float, set_: float, out: Tensor, weight: float) -> None:
    up = unpack_bits(bits, 1, out.numel()).bool()
    out += torch.where(up, out.new_tensor(set_ * weight), out.new_tensor(clear * weight))


def natural(x: Tensor, residual: Tensor | None, codes: Tensor, seed: int) -> tuple[float, int]:
    total = fold(x, residual)
    if x.numel() == 0:
        return total, 0
    mantissa, exponent = torch.frexp(x.abs())  # |x| = mantissa * 2^exponent, mantissa in [.5, 1)
    down = exponent.long() - 1
    nonzero = x != 0
    if not bool(nonzero.any()):
        codes.zero_()
        return total, 0
    top = int(down[nonzero].max()) + 1  # the largest may be rounded up
    chance = mantissa * 2 - 1  # up with probability |x| / 2^down - 1
    u = uniform(seed, x.numel(), x.device)
    level = down + (u < chance).long() - top + 127
    least = torch.ldexp(torch.ones_like(x), torch.full_like(down, top - 126))
    tiny = nonzero & (level < 1)  # below the smallest level: that level, or zero, without bias
    level = torch.where(tiny, (u * least < x.abs()).long(), level)
    level = torch.where(nonzero, level, 0)
    codes.copy_((level | (x < 0).long() << 7).to(torch.uint8))
    x -= _powers(codes, top)
    return total, top


def _powers(codes: Tensor, exponent: int) -> Tensor:
    level = (codes & 127).int()
    magnitude = torch.ldexp(torch.ones(codes.shape, device=codes.device), level - 127 + exponent)
    magnitude = torch.where(level > 0, magnitude, 0.0)
    return torch.where(codes > 127, -magnitude, magnitude)


def unnatural_add(codes: Tensor, exponent: int, out: Tensor, weight: float) -> None:
    out += _powers(codes, exponent) * weight


# AdaComp


def _word_type(bin: int) -> tuple[torch.dtype, int]:
    """How a word is stored, and the largest index, which marks an empty bin."""
    return (torch.uint8, 63) if bin < 64 else (torch.int16, 16383)


def adacomp(x: Tensor, residual: Tensor | None, bin: int, words: Tensor) -> tuple[float, float, int]:
    gradient = x.clone()
    total = fold(x, residual)
    if not isfinite(total):
        gradient.zero_()
    n = x.numel()
    words.zero_()
    if n == 0:
        return total, 0.0, 0
    largest = _padded(x.abs(), bin).amax(1)
    scale = float((largest.double().sum() / largest.numel()).float())
    chosen = ((x + gradient).abs() >= _spread(largest, bin, n)) & (x != 0)
    at = chosen.nonzero().flatten()
    home = at // bin
    dtype, empty = _word_type(bin)
    vacant = (torch.bincount(home, minlength=largest.numel()) == 0).nonzero().flatten()
    last = torch.ones_like(home)
    last[:-1] = (home[1:] != home[:-1]).long()
    word = torch.cat([(at % bin) << 2 | last << 1 | (x[at] < 0).long(), torch.full_like(vacant, empty << 2 | 2)])
    order = torch.cat([home, vacant]).argsort(stable=True)
    stored = words.view(dtype)
    kept = order[: stored.numel()]
    code = word[kept]
    stored[: kept.numel()] = (code if dtype is torch.uint8 else torch.where(code > 32767, code - 65536, code)).to(dtype)
    sent = at[kept[kept < at.numel()]]
    x[sent] -= torch.where(x[sent] < 0, -scale, scale)
    return total, scale, order.numel()


def unadacomp_add(words: Tensor, count: int, scale: float, bin: int, out: Tensor, weight: float) -> None:
    dtype, empty = _word_type(bin)
    stored = words.view(dtype)
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
    out.index_add_(0, at, values, alpha=weight)


# Sixteen bits


def narrow(x: Tensor, residual: Tensor | None, code: Tensor, weight: float) -> float:
    total = fold(x, residual)
    most = torch.finfo(code.dtype).max
    code.copy_((x * weight).clamp_(-most, most))
    x -= code.float() / weight
    return total


def widen_add(code: Tensor, out: Tensor, weight: float) -> None:
    out.add_(code.float(), alpha=weight)
