"""The step as the engine takes it: buckets through stages, on cores that they share with the backward pass.

The model. A rank has `cores` cores. The backward pass is one thread; stage i of the engine is another, first in, first
out (runtime/rounds.py): stage 0 encodes a bucket and starts its round 0, stage i waits for round i-1, does the
arithmetic between and starts round i, the last stage ends it. While more threads run than there are cores, each gets an
equal share. A collective waits for its latency and then moves its bytes; transfers on one link share it equally, and
take their part of the cores. With commit="step" all buckets end together when the last one's replies are there.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import NamedTuple

TINY = 1e-12


class Send(NamedTuple):
    """One collective: its link, its latency, its seconds on the idle link, and the cores' seconds that it takes."""

    link: int
    latency: float
    seconds: float
    computing: float = 0.0


class Round(NamedTuple):
    """Arithmetic, and then collectives that start together."""

    work: float
    sends: tuple[Send, ...]


class Load(NamedTuple):
    """A bucket: when the backward pass alone would have it ready, its rounds, and the arithmetic that ends it.

    `inline`: it is opened by the backward pass itself and not by a thread (nothing to encode).
    """

    ready: float
    rounds: tuple[Round, ...]
    ending: float = 0.0
    inline: bool = False


class Passage(NamedTuple):
    """When things end, in seconds from the start of the backward pass."""

    end: float  # every gradient is there
    backward: float  # the backward pass's own computing
    arrived: tuple[float, ...]  # each bucket's last reply
    sending: float  # seconds in which something was on a link


class _Transfer:
    __slots__ = ("bucket", "computing", "latency", "left", "link")

    def __init__(self, bucket: int, send: Send) -> None:
        self.bucket, self.link, self.latency, self.left = bucket, send.link, send.latency, send.seconds
        self.computing = min(1.0, send.computing / send.seconds) if send.seconds > TINY else 0.0


class _Stage:
    """A thread: the bucket it is at, and the work that is left; `waiting` for replies before that."""

    __slots__ = ("at", "left", "waiting")

    def __init__(self) -> None:
        self.at, self.left, self.waiting = 0, 0.0, True


def travel(loads: Sequence[Load], cores: float = 1.0, commit: str = "step") -> Passage:
    """Play a step; exact for the model above.

    >>> one = Load(1.0, (Round(0.5, (Send(0, 0.0, 2.0),)),), ending=0.25)
    >>> travel([one]).end
    3.75
    """
    native = _compiled()
    if native is None:
        return played(loads, cores, commit)
    end, backward, arrived, sending = native(loads, cores, commit == "step")
    return Passage(end, backward, tuple(arrived), sending)


@cache
def _compiled() -> Callable[[Sequence[Load], float, bool], tuple[float, float, list[float], float]] | None:
    """The same in C++ (csrc/lanes.cpp), where it was built."""
    try:
        from laconic.kernels._native import travel
    except ImportError:
        return None
    return travel


def played(loads: Sequence[Load], cores: float = 1.0, commit: str = "step") -> Passage:
    """`travel` in plain Python, which says what it means."""
    depth = max((len(load.rounds) for load in loads), default=0)
    stages = [_Stage() for _ in range(depth + 1)]
    pending = [0] * len(loads)  # collectives under way of each bucket's present round
    passed = [-1] * len(loads)  # the last stage that each bucket has come through
    arrived = [0.0] * len(loads)
    transfers: list[_Transfer] = []
    opened = 0  # buckets that the backward pass has handed over
    left = loads[0].ready if loads else 0.0  # of the backward pass, until the next bucket
    opening = False  # the backward pass does stage 0 itself
    now = backward = sending = 0.0
    ended = 0

    def start(bucket: int, stage: int) -> None:
        passed[bucket] = stage
        if stage < len(loads[bucket].rounds):
            for send in loads[bucket].rounds[stage].sends:
                pending[bucket] += 1
                transfers.append(_Transfer(bucket, send))

    def work_of(bucket: int, stage: int) -> float:
        load = loads[bucket]
        if stage < depth:
            return load.rounds[stage].work if stage < len(load.rounds) else 0.0
        if commit == "bucket":
            return load.ending
        return sum(other.ending for other in loads) if bucket == len(loads) - 1 else 0.0

    def settle() -> None:
        """All that takes no time."""
        nonlocal opened, left, opening, backward, ended
        moving = True
        while moving:
            moving = False
            for transfer in [t for t in transfers if t.latency <= TINY and t.left <= TINY]:
                transfers.remove(transfer)
                pending[transfer.bucket] -= 1
                moving = True
            while opened < len(loads) and left <= TINY:
                load = loads[opened]
                if load.inline and not opening and stages[0].at == opened:
                    opening, left = True, load.rounds[0].work if load.rounds else 0.0
                    continue
                if opening:
                    opening = False
                    start(opened, 0)
                    stages[0].at += 1
                opened += 1
                if opened < len(loads):
                    left = loads[opened].ready - load.ready
                else:
                    backward = now
                moving = True
            for index, stage in enumerate(stages):
                while stage.at < len(loads):
                    bucket = stage.at
                    if stage.waiting:
                        before = opened > bucket and not (index == 0 and opening and opened == bucket)
                        if index:
                            before = passed[bucket] >= index - 1 and not pending[bucket]
                        if not before:
                            break
                        if index == depth:
                            arrived[bucket] = now
                        stage.waiting, stage.left = False, work_of(bucket, index)
                    if stage.left > TINY:
                        break
                    start(bucket, index)
                    stage.at, stage.waiting = bucket + 1, True
                    if index == depth:
                        ended += 1
                    moving = True

    settle()
    while ended < len(loads) or opened < len(loads):
        running = [stage for stage in stages if not stage.waiting]
        threads = len(running) + (opened < len(loads))
        busy: dict[int, int] = {}
        for transfer in transfers:
            if transfer.latency <= TINY:
                busy[transfer.link] = busy.get(transfer.link, 0) + 1
        taken = sum(t.computing / busy[t.link] for t in transfers if t.latency <= TINY)
        pace = min(1.0, max(0.05, cores - taken) / threads) if threads else 1.0
        spans = [stage.left / pace for stage in running]
        if opened < len(loads):
            spans.append(left / pace)
        spans += [t.latency if t.latency > TINY else t.left * busy[t.link] for t in transfers]
        step = min(spans, default=inf)
        if not step < inf:
            raise ValueError("a step that never ends: its costs are not finite, or a bucket has no rounds")
        now += step
        sending += step * bool(busy)
        for stage in running:
            stage.left -= step * pace
        if opened < len(loads):
            left -= step * pace
        for transfer in transfers:
            if transfer.latency > TINY:
                transfer.latency -= step
            else:
                transfer.left -= step / busy[transfer.link]
        settle()
    return Passage(max(now, backward), backward, tuple(arrived), sending)
