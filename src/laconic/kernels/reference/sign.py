"""One bit an element, its meaning shared by the layer."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.reference.bitstream import pack_bits, unpack_bits
from laconic.kernels.reference.fold import fold
from laconic.kernels.reference.sums import totals


def sign(x: Tensor, residual: Tensor | None, bits: Tensor, two_sided: bool) -> tuple[Energy, float, float]:
    total = fold(x, residual)
    n, up = x.numel(), x >= 0
    pack_bits(up.to(torch.uint8), 1, bits)
    if two_sided and n:
        ups = int(up.sum())
        sums = totals(torch.stack([torch.where(up, x, 0.0), torch.where(up, 0.0, x)])).tolist()
        above, below = sums[0] / max(1, ups), sums[1] / max(1, n - ups)
    elif n:
        above = float(totals(x.abs().unsqueeze(0))) / n
        below = -above
    else:
        above, below = 0.0, 0.0 if two_sided else -0.0
    below, above = torch.tensor([below, above]).tolist()  # rounded, as the wire will carry them
    x -= torch.where(up, above, below)
    return total, below, above


def unsign_add(bits: Tensor, clear: float, set_: float, out: Tensor, weight: float) -> None:
    up = unpack_bits(bits, 1, out.numel()).bool()
    out += torch.where(up, out.new_tensor(set_ * weight), out.new_tensor(clear * weight))


def majority(rows: Tensor, out: Tensor) -> None:
    votes = sum(unpack_bits(row, 1, 8 * out.numel()) for row in rows)
    pack_bits((2 * votes >= len(rows)) & torch.ones(8 * out.numel(), dtype=torch.bool, device=out.device), 1, out)
