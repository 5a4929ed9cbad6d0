"""The observer: adds up what buckets report, and offers it as Stats."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from torch import Tensor

from laconic.exchange import Op, wire_bytes
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.runtime.bucket import Tally
from laconic.runtime.ledger import Ledger
from laconic.runtime.watch import Measurement, Tables
from laconic.stats import BucketTrace, LayerStats, Stats
from laconic.world import World

EVERY = 10  # a step in so many has its errors measured
TRACED = 16  # steps whose buckets are remembered
ARITHMETIC = ("encode", "between", "leftover", "decode")  # how spans of arithmetic begin


@dataclass
class StepTally:
    """One step of this rank."""

    step: int
    wire_bytes: int = 0
    core_s: float = 0.0  # that laconic's threads took of a core
    compress_s: float = 0.0
    communicate_s: float = 0.0
    spoiled: bool = False
    spans: list[tuple[str, str, float, float]] = field(default_factory=list)  # bucket, what, start, stop
    buckets: list[BucketTrace] = field(default_factory=list)
    reduced: float = 0.0  # when the last mean was there


class Observer:
    """What happened since attach."""

    def __init__(
        self, layers: Sequence[Layer], world: World, on_step: Callable[[StepTally], None] | None = None
    ) -> None:
        self.steps = self.skipped = 0
        self.energies: dict[str, tuple[float, float]] = {}  # of a recent step, summed over all ranks
        self.tables = Tables()
        self._own: dict[str, tuple[float, float]] = {}  # observed here and not shared yet
        self._measured: dict[str, Measurement] = {}  # watched here and not shared yet
        self._wire = dict.fromkeys((layer.name for layer in layers), 0)
        self._dense = {layer.name: wire_bytes(Op.SUM, layer.nbytes, world.size) for layer in layers}
        self._seen = dict.fromkeys(self._wire, 0)
        self._wire_bytes = 0
        self._compress_s = self._communicate_s = 0.0
        self._on_step = on_step
        self._step = StepTally(0)
        self.recent: deque[StepTally] = deque(maxlen=TRACED)

    @property
    def observing(self) -> bool:
        """Whether the step under way is one whose errors are measured."""
        return self.steps % EVERY == 0

    @property
    def untold(self) -> tuple[dict[str, tuple[float, float]], dict[str, Measurement]]:
        """Energies and watched errors of the last step that this rank will tell with the next."""
        return self._own, self._measured

    @untold.setter
    def untold(self, what: tuple[dict[str, tuple[float, float]], dict[str, Measurement]]) -> None:
        self._own, self._measured = what

    @property
    def news(self) -> bool:
        """Whether this rank has anything to tell."""
        return bool(self._own or self._measured)

    def riding(self, names: Sequence[str]) -> list[float]:
        """What this rank has to tell about these layers."""
        told: list[float] = []
        for name in names:
            told += self._own.get(name, ())
            if name in self._measured:
                told += self._measured[name].values
        return told

    def heard(self, names: Sequence[str], values: Sequence[float]) -> None:
        """What all ranks together told."""
        told = iter(values)
        for name in names if values else ():
            if self._own.pop(name, None) is not None:
                self.energies[name] = (next(told), next(told))
            measured = self._measured.pop(name, None)
            if measured is not None:
                self.tables.add(name, measured.rungs, [next(told) for _ in measured.values])

    def spoil(self, spoiled: float | Tensor) -> None:
        """Note whether the step held a non-finite value; on a device that is not asked, it is not known here."""
        if isinstance(spoiled, float) and spoiled:
            self._step.spoiled = True

    def add(self, tally: Tally) -> None:
        """A bucket has ended."""
        for segment, sent in tally.wire:
            whole = sum(segment.weights) or 1
            for layer, weight in zip(segment.layers, segment.weights, strict=True):
                self._wire[layer.name] += sent * weight // whole
                self._seen[layer.name] += 1
        self._own.update(tally.energies)
        self._measured.update(tally.measured)
        self._step.wire_bytes += tally.wire_bytes
        self._step.core_s += tally.core_s
        self._step.compress_s += tally.compress_s
        self._step.communicate_s += tally.communicate_s
        self._step.spans += [(tally.label, *span) for span in tally.spans]
        arithmetic = tuple((start, stop) for what, start, stop in tally.spans if what.partition(" ")[0] in ARITHMETIC)
        *before, (names, ready) = tally.arrivals
        self._step.buckets += [BucketTrace(*bucket, (), ()) for bucket in before]
        self._step.buckets.append(BucketTrace(names, ready, tuple(tally.transfers), arithmetic))

    def close_step(self, reduced: float | None = None) -> None:
        """The step has ended, now or at the time given."""
        done, self._step = self._step, StepTally(self.steps + 1)
        done.reduced = perf_counter() if reduced is None else reduced
        self.recent.append(done)
        self.steps += 1
        self.skipped += done.spoiled
        self._wire_bytes += done.wire_bytes
        self._compress_s += done.compress_s
        self._communicate_s += done.communicate_s
        if self._on_step is not None:
            self._on_step(done)

    def forget(self, names: Sequence[str]) -> None:
        """These layers have another compressor now: what was seen of the old one no longer holds."""
        for name in names:
            self.energies.pop(name, None)
            self._own.pop(name, None)

    def stats(self, plan: Plan, ledger: Ledger, buffer_bytes: int) -> Stats:
        """Everything so far."""
        layers = {}
        for name in self._wire:
            energy, left = self.energies.get(name, (0.0, 0.0))
            dense = self._dense[name] * self._seen[name]
            held = ledger.accounts[name].nbytes
            layers[name] = LayerStats(str(plan[name]), self._wire[name], dense, energy, left, held)
        return Stats(
            self.steps, self.skipped, layers, self._wire_bytes, self._compress_s, self._communicate_s, buffer_bytes,
            self.tables.means(),
        )  # fmt: skip
