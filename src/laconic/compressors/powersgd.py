"""Low rank by one power iteration (PowerSGD, arXiv 1905.13727)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.exchange import Choral, Compressor, Exchange, Leg, Lines, Message, Op, Voice
from laconic.kernels.payload import BRAIN, EXACT, IN_3_BITS, IN_4_BITS, IN_6_BITS, IN_8_BITS, Form
from laconic.kernels.together import of_unit_size, orthonormal
from laconic.layer import Layer
from laconic.world import World

RUNGS = 16  # about the most of a ladder
FORMS = {  # of the first factor and of the second
    "fp32": (EXACT, EXACT), "bf16": (BRAIN, BRAIN), "int8": (IN_8_BITS, IN_8_BITS), "int4": (IN_6_BITS, IN_4_BITS),
    "int3": (IN_6_BITS, IN_3_BITS),
}  # fmt: skip
# What codes take off a factor, as a share of its energy times the square of their levels, about: a twelfth of a squared
# step, which a row's largest sets, in square 4.6 times the mean of 16; and 1.06 times it, as it is rounded up.
ROUNDING = 4.6 / 12 * 1.06**2
SPARE = 8  # columns of a sketch beyond the rank that is asked for


def as_matrix(x: Tensor) -> Tensor:
    """The first dimension against all others."""
    rows = x.shape[0] if x.dim() else 1
    return x.view(rows, x.numel() // max(1, rows))


@dataclass(frozen=True)
class PowerSGD(Choral):
    """Two skinny factors in place of a matrix, warm-started from the step before.

    The first factor is that of the matrix's shorter side, the second that of the longer one. With `dtype="bf16"` they
    travel in half the bytes: the first is made orthonormal again whatever was rounded, and what is rounded off the
    second stays in the residual. With "int8", "int4" or "int3" columns and rows have scales and elements codes; codes
    cannot be added up, so that everyone gets everyone's, which pays between two or three (and see ByMachine). With
    "int4" and "int3" the first one's codes have 6 bits: its columns are nearly parallel, and making them orthonormal
    enlarges their errors.

    >>> [leg.numel for leg in PowerSGD(rank=4).legs(Layer("w", (100, 50)), World(size=2))]
    [200, 400]
    """

    rank: int = 4
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        check.whole("rank", self.rank, 1, 1 << 16)
        check.one_of("dtype", self.dtype, tuple(FORMS))

    def shape(self, layer: Layer) -> tuple[int, int, int]:
        """Rows, columns and the rank that the matrix can have."""
        rows = layer.shape[0] if layer.shape else 1
        columns = layer.numel // rows if rows else 0
        return rows, columns, min(self.rank, rows, columns)

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        rows, columns, rank = self.shape(layer)
        lengths = zip(self.forms, sorted((rows, columns)), strict=True)
        return tuple(Leg(self._op, world.scope, form.dtype, form.room(length, rank)) for form, length in lengths)

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Random factors, in whose first columns an earlier plan's are kept: truncated or padded."""
        rows, columns, rank = self.shape(layer)
        q = torch.randn(max(rows, columns), rank, generator=rng)
        old = warm.get("q")
        if old is not None and len(old) == len(q):
            kept = min(rank, old.shape[1])
            q = q.to(old.device)
            q[:, :kept] = old[:, :kept]
        return {"q": q}

    @property
    def forms(self) -> tuple[Form, Form]:
        """How the factors travel."""
        return FORMS[self.dtype]

    def chorus(self, voices: Sequence[Voice], world: World) -> Exchange:
        """A power iteration each: p = x q of everyone, made orthonormal; q = x' p of everyone; p q' is the mean."""
        device, take = voices[0].x.device, voices[0].memory.take
        down, across = self.forms
        xs, residuals = [as_matrix(voice.x) for voice in voices], [voice.memory.residual for voice in voices]
        warm = [voice.memory.warm["q"].to(device).contiguous() for voice in voices]
        shorter = [(min(x.shape), q.shape[1]) for x, q in zip(xs, warm, strict=True)]
        longer = [(max(x.shape), q.shape[1]) for x, q in zip(xs, warm, strict=True)]
        on = kernels.together(xs[0])
        message = take(sum(down.room(*shape) for shape in shorter), down.dtype, device)
        for voice, energy in zip(voices, on.sketch(xs, residuals, warm, message, down), strict=True):
            voice.memory.energy = energy
        reply = yield Message(self._op, world.scope, message)
        held = take(sum(n * rank for n, rank in shorter), torch.float32, device)
        ps = _matrices(held, shorter)
        qs = _matrices(torch.empty(sum(n * rank for n, rank in longer), device=device), longer)  # they stay warm
        message = take(sum(across.room(*shape) for shape in longer), across.dtype, device)
        on.turn(reply, xs, ps, qs, message, down, across)
        on.leave(xs, ps, qs)
        reply = yield Message(self._op, world.scope, message)
        outs = [as_matrix(voice.out) for voice in voices]
        on.product(reply, ps, qs, outs, 1 / world.size, across)
        for voice, q in zip(voices, qs, strict=True):
            voice.memory.warm["q"] = q
        voices[0].memory.give(held)

    def lines(self, layers: Sequence[Layer], world: World) -> Lines | None:
        on, shapes = kernels.lines(), [self.shape(layer) for layer in layers]
        return on.LowRank(shapes, self.forms) if on is not None and on.LowRank.fits(shapes) else None

    @property
    def coded(self) -> bool:
        """Whether factors travel as codes, which cannot be added up on the way."""
        return all(form.coded for form in self.forms)

    def _unsent(self, energy: Tensor, beyond: Tensor) -> Tensor:
        """Of a layer's energy what lies beyond the rank, and what codes take off the second factor."""
        last = self.forms[1]
        share = ROUNDING / (2 ** (last.bits - 1) - 1) ** 2 if last.coded else 0.0
        return beyond + share * (energy - beyond)

    @property
    def _op(self) -> Op:
        return Op.GATHER if self.coded else Op.SUM

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
        energy = torch.linalg.svdvals(as_matrix(x)).double().square()
        return float(self._unsent(energy.sum(), energy[self.rank :].sum()))

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
        return torch.stack([rung._unsent(tails[0], tails[min(rung.rank, len(tails) - 1)]) for rung in rungs]).cpu()


def _matrices(flat: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """A flat buffer as matrices that lie side by side."""
    parts = torch.split(flat, [length * rank for length, rank in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


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
