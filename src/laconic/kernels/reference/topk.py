"""The largest elements."""

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.reference.fold import fold
from laconic.kernels.reference.indices import hand_over
from laconic.kernels.reference.sums import totals
from laconic.kernels.sampling import BISECTIONS, LEAST, sample


def _exact(x: Tensor, k: int) -> Tensor:
    """Indices of the k largest magnitudes, ties by lower index, ascending."""
    magnitude = x.abs()
    if k >= x.numel():
        return torch.arange(x.numel(), device=x.device)
    cut = torch.topk(magnitude, k, sorted=True).values[-1] if k else magnitude.new_tensor(float("inf"))
    above = (magnitude > cut).nonzero().flatten()
    ties = (magnitude == cut).nonzero().flatten()[: k - above.numel()]
    return torch.cat([above, ties]).sort().values


def top_k(x: Tensor, residual: Tensor | None, indices: Tensor, values: Tensor) -> Energy:
    total = fold(x, residual)
    hand_over(x, _exact(x, indices.numel()), indices, values)
    return total


def sampled_top_k(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[Energy, int]:
    total = fold(x, residual)
    if x.numel() == 0:
        return total, 0
    stride, share = sample(x.numel(), k)
    cut = torch.topk(x[::stride].abs(), share).values[-1]
    chosen = (x.abs() >= cut).nonzero().flatten()
    if not LEAST * k <= chosen.numel() <= indices.numel():
        chosen = _exact(x, k)
    return total, hand_over(x, chosen, indices, values)


def threshold(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[Energy, int]:
    total = fold(x, residual)
    n, room = x.numel(), indices.numel()
    if n == 0:
        return total, 0
    magnitude = x.abs()
    low, high = magnitude.new_zeros(()), magnitude.amax()
    cut = (totals(magnitude.unsqueeze(0))[0] / n).float()
    for _ in range(BISECTIONS):
        count = int((magnitude >= cut).sum())
        if k <= count <= room:
            return total, hand_over(x, (magnitude >= cut).nonzero().flatten(), indices, values)
        low, high = (cut, high) if count > room else (low, cut)
        cut = (low + high) * 0.5
    return total, hand_over(x, _exact(x, k), indices, values)
