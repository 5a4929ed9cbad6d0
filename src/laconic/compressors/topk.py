"""The largest elements."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.sparse import Sparsifier
from laconic.exchange import Compressor
from laconic.kernels.energy import Energy
from laconic.layer import Layer


def how_many(density: float, numel: int) -> int:
    """k = max(1, density * n), rounded to the nearest, and never more than there are."""
    return min(numel, max(1, round(density * numel)))


def rungs(density: float, low: float, high: float, most: float = 1.0) -> tuple[float, ...]:
    """Densities around one, from `high` times it, or `most`, down to `low` times, four to an octave, in three digits.

    >>> rungs(0.01, 0.5, 1.5)
    (0.0141, 0.0119, 0.01, 0.00841, 0.00707, 0.00595, 0.005)
    """
    steps = range(floor(4 * log2(high) + 1e-9), ceil(4 * log2(low) - 1e-9) - 1, -1)
    return tuple(dict.fromkeys(min(most, float(f"{density * 2 ** (j / 4):.3g}") if j else density) for j in steps))


@dataclass(frozen=True)
class TopK(Sparsifier):
    """The `density` share of largest magnitudes.

    `selection="sampled"` takes a threshold from a sample (DGC, arXiv 1712.01887): cheaper, the count about right.

    >>> TopK(density=0.01).room(1000)
    10
    """

    density: float = 0.01
    selection: str = "exact"

    def __post_init__(self) -> None:
        check.share("density", self.density)
        check.one_of("selection", self.selection, ("exact", "sampled"))

    def room(self, numel: int) -> int:
        k = how_many(self.density, numel)
        return k if self.selection == "exact" else min(numel, ceil(1.3 * k))

    def pick(
        self, x: Tensor, residual: Tensor | None, seed: int, indices: Tensor, values: Tensor
    ) -> tuple[Energy, int]:
        if self.selection == "exact":
            return kernels.of(x).top_k(x, residual, indices, values), indices.numel()
        return kernels.of(x).sampled_top_k(x, residual, how_many(self.density, x.numel()), indices, values)

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["TopK"]:
        return tuple(self.replace(density=density) for density in rungs(self.density, low, high))

    def errors(self, x: Tensor, ladder: Sequence[Compressor]) -> Tensor:
        """From the distribution of magnitudes, in one pass; a sampled selection is taken for an exact one."""
        if not all(isinstance(rung, TopK) for rung in ladder):
            return super().errors(x, ladder)
        ks = [how_many(rung.density, x.numel()) for rung in ladder]  # type: ignore[attr-defined]
        return torch.tensor(kernels.of(x).top_k_errors(x.flatten(), ks), dtype=torch.float64)

    def selections(self, x: Tensor, ladder: Sequence[Sparsifier]) -> dict[Sparsifier, Tensor]:
        """Each from the next larger one: a top-k of a top-k is a top-k."""
        rungs = [rung for rung in dict.fromkeys(ladder) if isinstance(rung, TopK)]
        if len(rungs) != len(set(ladder)):
            return {}
        made: dict[Sparsifier, Tensor] = {}
        for rung in sorted(rungs, key=lambda rung: -rung.density):
            count = how_many(rung.density, x.numel())
            before = next(reversed(made.values())).clone() if made else x.clone()
            indices = torch.empty(count, dtype=torch.int32, device=x.device)
            made[rung] = torch.empty(count, device=x.device)
            kernels.of(x).top_k(before, None, indices, made[rung])
        return made

    def contraction(self, numel: int) -> float | None:
        least = how_many(self.density, numel) * (1 if self.selection == "exact" else 0.7)
        return least / max(1, numel)


@dataclass(frozen=True)
class Threshold(Sparsifier):
    """RedSync's bisection (arXiv 1808.04357): a threshold that between k and 2k elements pass."""

    density: float = 0.01

    def __post_init__(self) -> None:
        check.share("density", self.density)

    def room(self, numel: int) -> int:
        return min(numel, 2 * how_many(self.density, numel))

    def pick(
        self, x: Tensor, residual: Tensor | None, seed: int, indices: Tensor, values: Tensor
    ) -> tuple[Energy, int]:
        return kernels.of(x).threshold(x, residual, how_many(self.density, x.numel()), indices, values)

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["Threshold"]:
        return tuple(self.replace(density=density) for density in rungs(self.density, low, high))

    def contraction(self, numel: int) -> float | None:
        return how_many(self.density, numel) / max(1, numel)
