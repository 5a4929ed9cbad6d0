"""Low rank by one power iteration (PowerSGD, arXiv 1905.13727)."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.codec import aligned
from laconic.exchange import Compressor, Exchange, Leg, Memory, Message, Op
from laconic.layer import Layer
from laconic.world import World

RUNGS = 16  # about the most of a ladder
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CODED = "int8"
SPARE = 8  # columns of a sketch beyond the rank that is asked for


Told = Callable[[Tensor], None] | None
AddUp = Callable[[Tensor, float, Memory, World, Told], Generator[Message, Tensor, Tensor]]


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


def coded_bytes(length: int, rank: int) -> int:
    """As kernels lay it out: a step per column and a byte per element."""
    return aligned(4 * rank) + aligned(length * rank)


def coded(factor: Tensor, memory: Memory) -> Tensor:
    """A factor as bytes; what is rounded off is gone from the factor too."""
    payload = memory.take(coded_bytes(*factor.shape), torch.uint8, factor.device)
    kernels.of(factor).code_factor(factor, payload)
    return payload


@dataclass(frozen=True)
class PowerSGD(Compressor):
    """Two skinny factors in place of a matrix, warm-started from the step before.

    With `dtype="bf16"` the factors travel in half the bytes: the first is made orthonormal again whatever was rounded,
    and what is rounded off the second stays in the residual. With "int8" a column has a scale and a byte an element;
    codes cannot be added up, so that everyone gets everyone's, which pays between two or three (and see ByMachine).

    >>> [leg.numel for leg in PowerSGD(rank=4).legs(Layer("w", (100, 50)), World(size=2))]
    [400, 200]
    """

    rank: int = 4
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        check.whole("rank", self.rank, 1, 1 << 16)
        check.one_of("dtype", self.dtype, (*DTYPES, CODED))

    def shape(self, layer: Layer) -> tuple[int, int, int]:
        """Rows, columns and the rank that the matrix can have."""
        rows = layer.shape[0] if layer.shape else 1
        columns = layer.numel // rows if rows else 0
        return rows, columns, min(self.rank, rows, columns)

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        rows, columns, rank = self.shape(layer)
        if self.dtype != CODED:
            return tuple(Leg(Op.SUM, world.scope, DTYPES[self.dtype], length * rank) for length in (rows, columns))
        sizes = (coded_bytes(length, rank) for length in (rows, columns))
        return tuple(Leg(Op.GATHER, world.scope, torch.uint8, size) for size in sizes)

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Random factors, in whose first columns an earlier plan's are kept: truncated or padded."""
        _, columns, rank = self.shape(layer)
        q = torch.randn(columns, rank, generator=rng)
        old = warm.get("q")
        if old is not None and old.shape[0] == columns:
            kept = min(rank, old.shape[1])
            q = q.to(old.device)
            q[:, :kept] = old[:, :kept]
        return {"q": q}

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        yield from self.iteration(x, out, memory, world, self.added_up)

    def iteration(self, x: Tensor, out: Tensor, memory: Memory, world: World, added_up: AddUp) -> Exchange:
        """The conversation, given how factors are added up."""
        on, m = kernels.of(x), as_matrix(x)
        q = of_unit_size(memory.warm["q"].to(x.device)).contiguous()
        p = x.new_empty(len(m), q.shape[1])
        memory.energy = on.sketch(m, memory.residual, q, p)
        p = orthonormal((yield from added_up(p, 1.0, memory, world, None))).contiguous()
        on.sketch_back(m, p, q)
        leave = partial(on.subtract_product, m, p)  # x then holds the leftover
        memory.warm["q"] = yield from added_up(q, 1 / world.size, memory, world, leave)
        on.product(p, memory.warm["q"], as_matrix(out))

    def added_up(
        self, factor: Tensor, weight: float, memory: Memory, world: World, tell: Told
    ) -> Generator[Message, Tensor, Tensor]:
        """All ranks' factors, added up and weighed, perhaps in the memory of mine; `tell` hears in time what of mine is
        in the sum."""
        if self.dtype != CODED:
            sent = factor.to(DTYPES[self.dtype])
            if tell is not None:
                tell(sent.float())
            total = (yield Message(Op.SUM, world.scope, sent.flatten())).float().view_as(factor)
            return total if weight == 1 else total * weight
        payload = coded(factor, memory)
        if tell is not None:
            tell(factor)
        reply = yield Message(Op.GATHER, world.scope, payload)
        kernels.of(factor).sum_factors(reply, factor, weight)
        return factor

    def unsuited(self, layer: Layer) -> str | None:
        rows, columns, rank = self.shape(layer)
        if (rows + columns) * rank * 2 >= rows * columns:
            return f"two factors of rank {rank} would save less than half"
        return None

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["PowerSGD"]:
        rows, columns, rank = self.shape(layer)
        most, least = min(rows, columns, floor(high * self.rank)), max(1, ceil(low * self.rank))
        ranks = {most, rank, least, *range(least, most + 1, max(1, -(-(most - least) // RUNGS)))}
        return tuple(self.replace(rank=rank) for rank in sorted(ranks, reverse=True))

    def error(self, x: Tensor) -> float:
        return float(torch.linalg.svdvals(as_matrix(x)).double()[self.rank :].square().sum())

    def errors(self, x: Tensor, ladder: Sequence[Compressor]) -> Tensor:
        rungs = [rung for rung in ladder if isinstance(rung, PowerSGD)]
        if len(rungs) < len(ladder):
            return super().errors(x, ladder)
        m, most = as_matrix(x), max(rung.rank for rung in rungs)
        if min(m.shape) <= 4 * (most + SPARE):
            energy = spectrum(m if len(m) <= m.shape[1] else m.T)
            tails = torch.cat([energy.flip(0).cumsum(0).flip(0), energy.new_zeros(1)])
        else:
            within = torch.cat([torch.zeros(1, dtype=torch.float64), largest(m, most + SPARE)])
            tails = (float(kernels.of(m).energy(m.reshape(-1))) - within.cumsum(0)).clamp_min(0)
        return torch.stack([tails[min(rung.rank, len(tails) - 1)] for rung in rungs]).cpu()


def largest(m: Tensor, count: int) -> Tensor:
    """About the squares of the largest singular values, from below, by a seeded sketch with two power iterations
    (arXiv 0909.4061). Without a basis between m and its transpose, directions below 1e-7 of the energy are lost."""
    sketch = torch.randn(m.shape[1], count, generator=torch.Generator().manual_seed(0)).to(m.device)
    for _ in range(2):
        sketch = orthonormal(m.T @ of_unit_size(m @ sketch))
    return spectrum((m @ sketch).T).cpu()


def spectrum(m: Tensor) -> Tensor:
    """The squares of the singular values of a matrix that is wider than high, the largest first."""
    wide = m.double()
    values: Tensor = torch.linalg.eigvalsh(wide @ wide.T)
    return values.flip(0).clamp_min(0)
