"""What the cells of one method came to, over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from laconic.lab.matrix import Row

LAST = 3  # evaluations at the end whose mean is the final quality


@dataclass(frozen=True)
class Figure:
    """A mean, and the standard deviation over seeds."""

    mean: float
    spread: float
    seeds: int = 3

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))

    def equals(self, other: "Figure") -> bool:
        """The means differ by less than the larger spread."""
        return abs(self.mean - other.mean) < max(self.spread, other.spread)


class Outcome:
    """One method's runs, by seed."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row["cell"]["seed"])

    @property
    def loss(self) -> Figure:
        return Figure.of([fmean(e[1] for e in row["evaluations"][-LAST:]) for row in self.rows])

    @property
    def least(self) -> float:
        """The lowest held-out loss that every seed reached."""
        return max(min(e[1] for e in row["evaluations"]) for row in self.rows)

    @property
    def accuracy(self) -> Figure:
        return Figure.of([fmean(e[2] for e in row["evaluations"][-LAST:]) for row in self.rows])

    def bytes_per_step(self, after: int = 0) -> float:
        """What a rank sent in a step, of those after so many."""
        return fmean(fmean(row["sent"][after:]) for row in self.rows)

    def compressed(self) -> dict[str, float]:
        """Bytes that a rank sends in a step for each layer that is compressed, once the run has settled."""
        sums: dict[str, float] = {}
        for row in self.rows:
            for name, layer in row["layers"].items():
                if layer["bytes"] < layer["dense"]:
                    sums[name] = sums.get(name, 0.0) + layer["bytes"] / len(self.rows)
        return sums

    def crossings(self, target: float) -> list[float | None]:
        """Steps until the held-out loss, joined by straight lines, is at the target; None where it never is."""
        return [_crossing(row["evaluations"], target) for row in self.rows]

    def rates(self) -> dict[str, float]:
        """How many times fewer bytes than dense, by the kind of layer, once the run has settled."""
        sums: dict[str, list[float]] = {}
        for row in self.rows:
            for name, layer in row["layers"].items():
                if len(layer["shape"]) > 1 and layer["bytes"] < layer["dense"]:
                    total = sums.setdefault(_kind(name, layer["shape"]), [0.0, 0.0])
                    total[0] += layer["dense"]
                    total[1] += layer["bytes"]
        return {kind: dense / sent for kind, (dense, sent) in sums.items()}


def _kind(name: str, shape: Sequence[int]) -> str:
    if len(shape) == 4:
        return "convolution"
    return "recurrent" if "lstm" in name else "embedding" if "embedding" in name else "fully connected"


def _crossing(evaluations: Sequence[Sequence[float]], target: float) -> float | None:
    before: Sequence[float] | None = None
    for step, loss, *_ in evaluations:
        if loss <= target:
            if before is None or before[1] <= loss:
                return float(step)
            return before[0] + (step - before[0]) * (before[1] - target) / (before[1] - loss)
        before = (step, loss)
    return None
