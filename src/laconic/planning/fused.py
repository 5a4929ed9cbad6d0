"""A step of fused buckets that can be priced again in microseconds when one layer's option changes.

What a layer adds to its bucket is a row of numbers: encoding before the first round, arithmetic between rounds,
decoding at the end, and bytes for each (round, op, scope, dtype) whose messages share a collective. A bucket is the sum
of its rows, and its conversation follows from the sum; `pricing.price_together` is the same thing from scratch.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from laconic.exchange import Compressor, Leg
from laconic.layer import Layer
from laconic.planning.costs import Work, steps
from laconic.planning.link import Line
from laconic.planning.pricing import resource
from laconic.planning.profile import Profile
from laconic.planning.timeline import SIDE, Talk, finish

DELAY, LAST = 0, 1  # the row's first numbers; then one for each gap between rounds, then the bytes
Choice = tuple[int, ...]  # an option for each layer


class Fused:
    """Layers in the order of ready, each with its options, in the buckets that they share."""

    def __init__(
        self,
        profile: Profile,
        groups: Sequence[Sequence[str]],
        options: Sequence[Sequence[Compressor]],
        commit: str = "step",
        tail: float = 0.0,
    ) -> None:
        self.profile, self.layers, self.options, self.tail = (
            profile,
            profile.trace.layers,
            [tuple(row) for row in options],
            tail,
        )
        self._commit = commit
        place = {layer.name: index for index, layer in enumerate(self.layers)}
        self.members = [[place[name] for name in names if name in place] for names in groups]
        self.members = [members for members in self.members if members]
        self.bucket_of = {index: b for b, members in enumerate(self.members) for index in members}
        self.ready = [profile.trace.ready[members[-1]] for members in self.members]
        self._slots: dict[tuple[object, ...], int] = {}
        self._lines: list[tuple[Line, ...]] = []
        self._resource: list[int] = []
        self._depth: list[int] = []
        known = {(option, layer.shape, layer.dtype): steps(option, layer, profile.world)
                 for layer, row in zip(self.layers, self.options, strict=True) for option in row}  # fmt: skip
        self._gaps = max((len(talk) // 2 for talk in known.values()), default=1)
        for talk in known.values():
            for depth, leg in enumerate(talk[1::2]):
                assert isinstance(leg, Leg)
                self._slot(profile, depth, leg)
        self.rows = [[self._row(profile, layer, option) for option in row]
                     for layer, row in zip(self.layers, self.options, strict=True)]  # fmt: skip
        per_byte = [min(line.beta for line in lines) for lines in self._lines]
        self._per_byte = np.array(per_byte)

    def _slot(self, profile: Profile, depth: int, leg: Leg) -> int:
        key = (depth, leg.op, leg.scope, leg.dtype)
        if key not in self._slots:
            self._slots[key] = len(self._slots)
            lines = profile.links.get((leg.op, leg.scope)) or (Line(0.0, 0.0),)
            self._lines.append(lines)
            self._resource.append(resource(profile, leg.scope))
            self._depth.append(depth)
        return self._slots[key]

    def _row(self, profile: Profile, layer: Layer, option: Compressor) -> NDArray[np.float64]:
        talk = steps(option, layer, profile.world)
        row = np.zeros(2 + self._gaps + len(self._slots))
        works = talk[::2]
        for depth, work in enumerate(works):
            assert isinstance(work, Work)
            seconds = profile.arithmetic.seconds(work)
            at = LAST if depth + 1 == len(works) else DELAY if depth == 0 else 1 + depth
            row[at] += seconds
        for depth, leg in enumerate(talk[1::2]):
            assert isinstance(leg, Leg)
            row[2 + self._gaps + self._slot(profile, depth, leg)] += leg.numel * leg.dtype.itemsize
        return row

    def link_seconds(self, row: NDArray[np.float64]) -> float:
        """What a layer's own bytes take, without the latency that its bucket pays once."""
        return float(row[2 + self._gaps :] @ self._per_byte)

    def work_seconds(self, row: NDArray[np.float64]) -> float:
        """What its arithmetic takes."""
        return float(row[: 2 + self._gaps].sum())

    def sums(self, choice: Choice) -> list[NDArray[np.float64]]:
        """Each bucket's row."""
        return [np.sum([self.rows[i][choice[i]] for i in members], axis=0) for members in self.members]

    def talk(self, total: NDArray[np.float64]) -> Talk:
        """A bucket's conversation."""
        row = total.tolist()
        made: list[tuple[int, float]] = []
        at = 2 + self._gaps
        for depth in range(self._gaps):
            if depth and row[1 + depth] > 0:
                made.append((SIDE, row[1 + depth]))
            for slot, lines in enumerate(self._lines):
                nbytes = row[at + slot]
                if nbytes > 0 and self._depth[slot] == depth:
                    seconds = min(line.seconds(nbytes) for line in lines)
                    if seconds > 0:
                        made.append((self._resource[slot], seconds))
        if self._commit == "bucket" and row[LAST] > 0:
            made.append((SIDE, row[LAST]))
        return Talk(row[DELAY], tuple(made), row[LAST] if self._commit == "step" else 0.0)

    def finish(self, talks: Sequence[Talk]) -> float:
        """The step's seconds."""
        return self.profile.trace.forward + finish(self.ready, talks) + self.tail

    def seconds(self, choice: Choice) -> float:
        return self.finish([self.talk(total) for total in self.sums(choice)])

    def prices(self, choice: Choice) -> list[tuple[float, float]]:
        """What a second of (link, arithmetic) in each bucket costs the step: 0 where it is hidden, 1 where it is not.

        By making each a hundredth shorter; where a bucket has none, by adding a little.
        """
        talks = [self.talk(total) for total in self.sums(choice)]
        base = self.finish(talks)
        found = []
        for index, talk in enumerate(talks):
            links = sum(seconds for kind, seconds in talk.steps if kind != SIDE)
            shorter = talk._replace(steps=tuple((k, s if k == SIDE else 0.99 * s) for k, s in talk.steps))
            less = 0.01 * links
            link = (base - self._swapped(talks, index, shorter)) / less if less > 0 else 1.0
            more = max(1e-4, 0.01 * talk.delay)
            work = (self._swapped(talks, index, talk._replace(delay=talk.delay + more)) - base) / more
            found.append((min(1.0, max(0.0, link)), min(1.0, max(0.0, work))))
        return found

    def _swapped(self, talks: list[Talk], index: int, talk: Talk) -> float:
        before, talks[index] = talks[index], talk
        seconds = self.finish(talks)
        talks[index] = before
        return seconds
