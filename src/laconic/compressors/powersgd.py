"""Low rank by one power iteration (PowerSGD, arXiv 1905.13727)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.exchange import Compressor, Exchange, Leg, Memory, Message, Op
from laconic.layer import Layer
from laconic.world import World

RUNGS = 16  # about the most of a ladder
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SPARE = 8  # columns of a sketch beyond the rank that is asked for


def as_matrix(x: Tensor) -> Tensor:
    """The first dimension against all others."""
    rows = x.shape[0] if x.dim() else 1
    return x.view(rows, x.numel() // max(1, rows))


def orthonormal(p: Tensor) -> Tensor:
    """An orthonormal basis of the columns; of zero columns, any."""
    basis: Tensor = torch.linalg.qr(p).Q
    return basis


def of_unit_size(q: Tensor) -> Tensor:
    """Factors with a largest magnitude of one: what they span is the same, and a product with them cannot overflow."""
    return q / q.abs().max().clamp_min(torch.finfo(q.dtype).tiny) if q.numel() else q


@dataclass(frozen=True)
class PowerSGD(Compressor):
    """Two skinny factors in place of a matrix, warm-started from the step before.

    With `dtype="bf16"` the factors travel in half the bytes: the first is made orthonormal again whatever was rounded,
    and what is rounded off the second stays in the residual.

    >>> [leg.numel for leg in PowerSGD(rank=4).legs(Layer("w", (100, 50)), World(size=2))]
    [400, 200]
    """

    rank: int = 4
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        check.whole("rank", self.rank, 1, 1 << 16)
        check.one_of("dtype", self.dtype, tuple(DTYPES))

    def _shape(self, layer: Layer) -> tuple[int, int, int]:
        rows = layer.shape[0] if layer.shape else 1
        columns = layer.numel // rows if rows else 0
        return rows, columns, min(self.rank, rows, columns)

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        rows, columns, rank = self._shape(layer)
        return (
            Leg(Op.SUM, world.scope, DTYPES[self.dtype], rows * rank),
            Leg(Op.SUM, world.scope, DTYPES[self.dtype], columns * rank),
        )

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Random factors, in whose first columns an earlier plan's are kept: truncated or padded."""
        _, columns, rank = self._shape(layer)
        q = torch.randn(columns, rank, generator=rng)
        old = warm.get("q")
        if old is not None and old.shape[0] == columns:
            kept = min(rank, old.shape[1])
            q = q.to(old.device)
            q[:, :kept] = old[:, :kept]
        return {"q": q}

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        on, wire, m = kernels.of(x), DTYPES[self.dtype], as_matrix(x)
        q = of_unit_size(memory.warm["q"].to(x.device)).contiguous()
        p = x.new_empty(len(m), q.shape[1])
        memory.energy = on.sketch(m, memory.residual, q, p)
        p = yield Message(Op.SUM, world.scope, p.to(wire).flatten())
        p = orthonormal(p.float().view(len(m), q.shape[1])).contiguous()
        on.sketch_back(m, p, q)
        sent = q.to(wire)
        on.subtract_product(m, p, sent.float())  # x now holds the leftover
        q = (yield Message(Op.SUM, world.scope, sent.flatten())).float() / world.size
        memory.warm["q"] = q.view(m.shape[1], p.shape[1])
        on.product(p, memory.warm["q"], as_matrix(out))

    def unsuited(self, layer: Layer) -> str | None:
        rows, columns, rank = self._shape(layer)
        if (rows + columns) * rank * 2 >= rows * columns:
            return f"two factors of rank {rank} would save less than half"
        return None

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["PowerSGD"]:
        rows, columns, rank = self._shape(layer)
        most, least = min(rows, columns, floor(high * self.rank)), max(1, ceil(low * self.rank))
        ranks = {most, rank, least, *range(least, most + 1, max(1, -(-(most - least) // RUNGS)))}
        return tuple(self.replace(rank=rank) for rank in sorted(ranks, reverse=True))

    def error(self, x: Tensor) -> float:
        return float(torch.linalg.svdvals(as_matrix(x)).double()[self.rank :].square().sum())

    def errors(self, x: Tensor, ladder: Sequence[Compressor]) -> Tensor:
        if not all(isinstance(rung, PowerSGD) for rung in ladder):
            return super().errors(x, ladder)
        ranks = [rung.rank for rung in ladder]  # type: ignore[attr-defined]
        m, most = as_matrix(x), max(ranks)
        if min(m.shape) <= 4 * (most + SPARE):
            energy = torch.linalg.svdvals(m).double().square()
            tails = torch.cat([energy.flip(0).cumsum(0).flip(0), energy.new_zeros(1)])
        else:
            within = torch.cat([torch.zeros(1, dtype=torch.float64), largest(m, most + SPARE).double().square()])
            tails = (m.double().square().sum().cpu() - within.cumsum(0)).clamp_min(0)
        return torch.stack([tails[min(rank, len(tails) - 1)] for rank in ranks]).cpu()


def largest(m: Tensor, count: int) -> Tensor:
    """About the largest singular values, from below, by a seeded sketch with two power iterations (arXiv 0909.4061)."""
    sketch = torch.randn(m.shape[1], count, generator=torch.Generator().manual_seed(0)).to(m.device)
    for _ in range(2):
        sketch = orthonormal(m.T @ orthonormal(m @ sketch))
    values: Tensor = torch.linalg.svdvals(m @ sketch)
    return values.cpu()
