"""L-GreCo's candidates for a layer, and what is known of them from the windows so far."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laconic.compressors import Chain, Dense, PowerSGD, Quantize, TopK
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.stats import Table
from laconic.world import World

DENSITIES = tuple(float(f"{2 ** (-j / 2):.2g}") for j in range(4, 18))  # a quarter down to a 400th
MIXED: tuple[Compressor, ...] = (
    *(Quantize(bits=bits) for bits in range(1, 9)),
    *(PowerSGD(rank=rank) for rank in (1, 2, 3, 4, 6, 8)),
    *(Chain(TopK(density=density), Quantize(bits=bits)) for density in DENSITIES for bits in (3, 4, 6)),
)  # candidates of every family


@dataclass(frozen=True)
class Ladder:
    """A layer's candidates from gentle to harsh, and what each sends."""

    rungs: tuple[Compressor, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, layer: Layer, known: Sequence[Compressor], others: Iterable[Compressor], world: World) -> "Ladder":
        """The candidates that send less than the gradient itself, and what is known whatever it sends."""
        dense = Dense().wire_bytes(layer, world)
        sizes = {rung: rung.wire_bytes(layer, world) for rung in [*known, *others]}
        kept = [rung for rung, size in sizes.items() if rung in known or size < dense]
        kept.sort(key=lambda rung: -sizes[rung])
        return cls(tuple(kept), tuple(sizes[rung] for rung in kept))

    def covered(self, table: Table | None) -> bool:
        """Whether a table tells of these rungs."""
        return table is not None and table.rungs == self.rungs


class Past:
    """Errors of earlier windows, each counting `weight` times as much as the one after it.

    What a plan leaves piles up in the residual, where any other compressor finds it easy to send: a window alone speaks
    for whatever is not in use, and plans would swing from one to the other.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self.sums: dict[str, list[float]] = {}  # by layer: the windows' weights, energies and errors, added up

    def joined(self, tables: Mapping[str, Table]) -> dict[str, list[float]]:
        """The sums with another window."""
        made = {}
        for name, table in tables.items():
            fresh = [1.0, table.energy, *table.errors]
            old = self.sums.get(name, [])
            if len(old) == len(fresh):
                fresh = [self._weight * a + b for a, b in zip(old, fresh, strict=True)]
            made[name] = fresh
        return made

    @staticmethod
    def means(sums: Mapping[str, Sequence[float]], tables: Mapping[str, Table]) -> dict[str, Table]:
        """The same as tables."""
        made = {}
        for name, (weight, energy, *errors) in sums.items():
            table = tables[name]
            mean = tuple(error / weight for error in errors)
            made[name] = Table(table.rungs, mean, energy / weight, table.gradient, table.steps)
        return made

    def take(self, notes: Mapping[str, Any]) -> None:
        self.sums = {name: list(row) for name, row in notes.items()}
