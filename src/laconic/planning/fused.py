"""A step of fused buckets that is priced again quickly when one layer's option changes.

What a layer adds to its bucket is a row of numbers: arithmetic before each round and at the end, and bytes for each
(round, op, scope, dtype) whose messages share a collective. A bucket is the sum of its rows, and its load on the lanes
follows from the sum; `pricing.load` is the same thing from scratch.
"""

from collections.abc import Collection, Sequence
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange import ALONG, Compressor, Leg, Op
from laconic.layer import Layer
from laconic.planning.buckets import together
from laconic.planning.lanes import Load, Round, Send, travel
from laconic.planning.pricing import parts, send
from laconic.planning.profile import Profile
from laconic.world import Scope

LARGE = 1 << 20  # bytes: what one of them takes in a message of so many
Row = NDArray[np.float64]
Choice = tuple[int, ...]  # an option for each layer


class Fused:
    """Layers in the order of ready, each with its options, in the buckets that they share."""

    def __init__(
        self,
        profile: Profile,
        groups: Sequence[Sequence[str]],
        options: Sequence[Sequence[Compressor]],
        commit: str = "step",
        starting: float = 0.0,  # a core's seconds for a collective, whatever its size
    ) -> None:
        self.profile, self.layers, self._commit, self._starting = profile, profile.trace.layers, commit, starting
        self.options = [tuple(row) for row in options]
        place = {layer.name: index for index, layer in enumerate(self.layers)}
        held = [[place[name] for name in names if name in place] for names in groups]
        self._loads: dict[tuple[int, bytes], Load] = {}
        self._gather([members for members in held if members])
        self._slots: dict[tuple[int, Op, Scope, torch.dtype], int] = {}  # where a round's bytes stand in a row
        pairs = [(layer, option) for layer, row in zip(self.layers, self.options, strict=True) for option in row]
        legs = {pair: pair[1].legs(pair[0], profile.world) for pair in pairs}
        self._rounds = max((len(told) for told in legs.values()), default=1)
        for told in legs.values():
            for depth, leg in enumerate(told):
                self._slot(depth, leg)
        self._width = self._rounds + 1 + len(self._slots)
        self._along = [  # what goes with what between two ranks, as `carried` has it
            (slot, self._slots[depth, Op.GATHER, scope, torch.uint8])
            for (depth, op, scope, dtype), slot in self._slots.items()
            if (op, dtype) == (Op.SUM, torch.float32)
            and profile.world.sizes[scope] == 2
            and (depth, Op.GATHER, scope, torch.uint8) in self._slots
        ]
        made = {pair: self._row(*pair, told) for pair, told in legs.items()}
        self.rows = [
            [made[layer, option] for option in row] for layer, row in zip(self.layers, self.options, strict=True)
        ]
        self._sends: dict[tuple[int, float], Send] = {}
        per_byte = np.array([send(profile, op, scope, LARGE).seconds / LARGE for _, op, scope, _ in self._slots])
        # What a layer's own bytes take, without the latency that its bucket pays once; and its arithmetic.
        self.link_seconds = [[float(row[self._rounds + 1 :] @ per_byte) for row in rows] for rows in self.rows]
        self.work_seconds = [[float(row[: self._rounds + 1].sum()) for row in rows] for rows in self.rows]

    def only(self, index: Sequence[Sequence[int]]) -> "Fused":
        """The same with these options of each layer."""
        fewer = copy(self)
        fewer.options = [tuple(row[k] for k in kept) for row, kept in zip(self.options, index, strict=True)]
        fewer.rows = [[row[k] for k in kept] for row, kept in zip(self.rows, index, strict=True)]
        for name in ("link_seconds", "work_seconds"):
            setattr(fewer, name, [[row[k] for k in kept] for row, kept in zip(getattr(self, name), index, strict=True)])
        return fewer

    def joined(self, waits: Collection[str]) -> "Fused":
        """The same where buckets that end with one of these layers travel with the next."""
        other = copy(self)
        other._gather(together(self.members, self.layers, waits))
        return other

    def _gather(self, members: list[list[int]]) -> None:
        """Take these layers for the buckets."""
        self.members, self._loads = members, {}  # a search comes back to a bucket's rows two times in three
        self.bucket_of = {index: b for b, members in enumerate(self.members) for index in members}
        self._ready = [self.profile.trace.ready[members[-1]] for members in self.members]

    def under(self, profile: Profile) -> "Fused":
        """The same where messages take other times; layers, options and arithmetic are as they were."""
        other = copy(self)
        other.profile, other._sends, other._loads = profile, {}, {}
        return other

    def _slot(self, depth: int, leg: Leg) -> int:
        return self._slots.setdefault((depth, leg.op, leg.scope, leg.dtype), len(self._slots))

    def _row(self, layer: Layer, option: Compressor, legs: Sequence[Leg]) -> Row:
        row = np.zeros(self._width)
        *before, last = parts(self.profile, layer, option)
        row[: len(before)] = before
        row[self._rounds] = last
        for depth, leg in enumerate(legs):
            row[self._rounds + 1 + self._slot(depth, leg)] += leg.numel * leg.dtype.itemsize
        return row

    def sums(self, choice: Choice) -> list[Row]:
        """Each bucket's row."""
        return [np.sum([self.rows[i][choice[i]] for i in members], axis=0) for members in self.members]

    def load(self, bucket: int, total: Row) -> Load:
        """What a bucket with this row asks of the lanes."""
        key = (bucket, total.tobytes())
        known = self._loads.get(key)
        if known is None:
            known = self._loads[key] = self._load(bucket, total.tolist())
        return known

    def _load(self, bucket: int, row: list[float]) -> Load:
        sends: list[list[Send]] = [[] for _ in range(self._rounds)]
        base = self._rounds + 1
        for sums, codes in self._along:
            if 0 < row[base + sums] <= ALONG and row[base + codes]:
                row[base + codes] += row[base + sums]
                row[base + sums] = 0.0
        for slot, (depth, op, scope, _) in enumerate(self._slots):
            nbytes = row[self._rounds + 1 + slot]
            if nbytes > 0:
                known = self._sends.get((slot, nbytes))
                if known is None:
                    known = self._sends[slot, nbytes] = send(self.profile, op, scope, nbytes)
                sends[depth].append(known)
        used = max((depth + 1 for depth, some in enumerate(sends) if some), default=0)
        rounds = tuple(
            Round(row[depth] + self._starting * len(sends[depth]), tuple(sends[depth])) for depth in range(used)
        )
        return Load(self._ready[bucket], rounds, row[self._rounds])

    def finish(self, loads: Sequence[Load]) -> float:
        """The step's seconds."""
        trace = self.profile.trace
        return trace.forward + travel(loads, self.profile.cores, self._commit).end + trace.after

    def seconds(self, choice: Choice) -> float:
        return self.finish([self.load(bucket, total) for bucket, total in enumerate(self.sums(choice))])

    def work(self, choice: Choice) -> float:
        """A core's seconds for all that the engine's threads do."""
        loads = [self.load(bucket, total) for bucket, total in enumerate(self.sums(choice))]
        return sum(load.ending + sum(one.work for one in load.rounds) for load in loads)

    def prices(self, choice: Choice) -> list[tuple[float, float]]:
        """What a second of (link, arithmetic) in each bucket costs the step: 0 where it is hidden, 1 where it is not.

        By making each a little longer.
        """
        loads = [self.load(bucket, total) for bucket, total in enumerate(self.sums(choice))]
        base = self.finish(loads)
        found = []
        for index, load in enumerate(loads):
            link = work = 1.0
            if load.rounds:
                (first, *rest), more = load.rounds, max(1e-4, 0.01 * base)
                heavier = load._replace(rounds=(first._replace(work=first.work + more), *rest))
                work = (self._swapped(loads, index, heavier) - base) / more
                send, *others = first.sends
                longer = first._replace(sends=(send._replace(seconds=send.seconds + more), *others))
                link = (self._swapped(loads, index, load._replace(rounds=(longer, *rest))) - base) / more
            found.append((min(1.0, max(0.0, link)), min(1.0, max(0.0, work))))
        return found

    def _swapped(self, loads: list[Load], index: int, load: Load) -> float:
        before, loads[index] = loads[index], load
        seconds = self.finish(loads)
        loads[index] = before
        return seconds
