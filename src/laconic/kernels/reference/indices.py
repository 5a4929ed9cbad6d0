"""Few elements of many: choosing at random, gathering, scattering, and coding where they were."""

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.index import bitmap_bytes, low_bits
from laconic.kernels.reference.bitstream import pack_bits, unpack_bits
from laconic.kernels.reference.uniform import uniform


def hand_over(x: Tensor, chosen: Tensor, indices: Tensor, values: Tensor) -> int:
    """Move the chosen elements of x to values and note their indices; how many."""
    count = chosen.numel()
    indices[:count] = chosen.to(indices.dtype)
    values[:count] = x[chosen]
    x[chosen] = 0
    return count


def strata(numel: int, seed: int, indices: Tensor) -> None:
    k = indices.numel()
    edges = torch.arange(k + 1, dtype=torch.int64, device=indices.device) * numel // max(1, k)
    widths = edges[1:] - edges[:-1]
    within = (uniform(seed, k, indices.device).double() * widths).long()
    indices.copy_(edges[:-1] + within)


def take(x: Tensor, indices: Tensor, values: Tensor) -> None:
    hand_over(x, indices.long(), indices, values)


def scatter_add(indices: Tensor, values: Tensor, out: Tensor, weight: float) -> None:
    at = indices.long()
    if at.numel() and not (int(at.min()) >= 0 and int(at.max()) < out.numel()):
        raise CorruptPayload(f"an index lies outside the layer's {out.numel()} elements")
    out.index_add_(0, at, values * weight)


def pack_indices(indices: Tensor, numel: int, room: int, code: Tensor) -> None:
    low, split = low_bits(numel, room), bitmap_bytes(numel, room)
    at = indices.long()
    bitmap = torch.zeros(split * 8, dtype=torch.uint8, device=code.device)
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
        raise CorruptPayload(f"an index lies outside the layer's {numel} elements")
    indices.copy_(at)
