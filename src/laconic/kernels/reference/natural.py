"""Powers of two."""

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.energy import Energy
from laconic.kernels.reference.fold import fold
from laconic.kernels.reference.uniform import uniform

EXPONENTS = range(-149, 128)  # of float32, the smallest subnormal's included


def _power(exponent: Tensor) -> Tensor:
    """2^exponent in float32, exactly, or 0 below its range: through the exponent bits of a double."""
    return (exponent.long() + 1023 << 52).view(torch.float64).float()


def _powers(codes: Tensor, exponent: int) -> Tensor:
    level = (codes & 127).int()
    magnitude = torch.where(level > 0, _power(level - 127 + exponent), 0.0)
    return torch.where(codes > 127, -magnitude, magnitude)


def natural(x: Tensor, residual: Tensor | None, codes: Tensor, seed: int) -> tuple[Energy, int]:
    total = fold(x, residual)
    nonzero = x != 0
    if not bool(nonzero.any()):
        codes.zero_()
        return total, 0
    mantissa, exponent = torch.frexp(x.abs())  # |x| = mantissa * 2^exponent, mantissa in [.5, 1)
    down = exponent.long() - 1
    top = min(int(down[nonzero].max()) + 1, EXPONENTS[-1])  # the largest may be rounded up, where there is room
    u = uniform(seed, x.numel(), x.device)
    level = down + (u < mantissa * 2 - 1) - top + 127  # up with probability |x| / 2^down - 1
    least = _power(torch.tensor(top - 126, device=x.device))
    level = torch.where(level < 1, (u * least < x.abs()).long(), level)  # the smallest level, or zero, without bias
    level = torch.where(nonzero, level.clamp_(max=127), 0)
    codes.copy_((level | (x < 0).long() << 7).to(torch.uint8))
    x -= _powers(codes, top)
    return total, top


def unnatural_add(codes: Tensor, exponent: int, out: Tensor, weight: float) -> None:
    if exponent not in EXPONENTS:
        raise CorruptPayload(f"the exponent {exponent} is none of float32")
    out += _powers(codes, exponent) * weight
