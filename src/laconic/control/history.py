"""What was decided, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from laconic.plan import Plan
from laconic.stats import Stats

LONGEST = 1000  # changes that are remembered; the run record holds them all


@dataclass(frozen=True)
class Change:
    """A plan that was adopted: before which step, what changed, why, what was expected and what was seen.

    `predicted` and `measured` hold the "bytes" that this rank sends in a step, the relative "error" of the compressed
    layers and "step_s", where they are known. `measured` is empty until the next decision.
    """

    step: int
    plan: Plan
    changed: dict[str, tuple[str, str]]
    why: str
    predicted: Mapping[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)


class History:
    """Changes in order, each of which is measured until the next decision."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._open: tuple[Change, int, int] | None = None  # with the steps and bytes before it

    def add(self, change: Change, now: Stats) -> None:
        """A plan takes effect."""
        self.changes = [*self.changes[1 - LONGEST :], change]
        self._open = (change, now.steps, now.wire_bytes)

    def close(self, now: Stats) -> Change | None:
        """Write down what came of the last change, once; None if that is done, or if no step has used it."""
        if self._open is None or now.steps <= self._open[1]:
            return None
        (change, steps, sent), self._open = self._open, None
        change.measured["bytes"] = (now.wire_bytes - sent) / (now.steps - steps)
        if any(layer.energy for layer in now.layers.values()):
            change.measured["error"] = now.error
        if now.step_s:
            change.measured["step_s"] = now.step_s
        return change
