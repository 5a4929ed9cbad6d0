"""The timeline of a step: who waits for whom, exact for its model.

The model. The device computes the backward pass; encoding on it happens as soon as a gradient is ready and delays this
and all later gradients. Then a conversation goes through its steps. Each step needs one resource: the link inside the
machine, the link between machines, the device's side stream (decoding, and encoding between rounds), the host's cores.
A resource serves one step at a time, in the order in which steps ask for it; at equal times the earlier gradient first.
What a step takes does not depend on what else runs. The step of training ends when everything has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from itertools import pairwise
from typing import NamedTuple

NODE, INTER, SIDE, HOST = range(4)
RESOURCES = ("link inside", "link between", "side stream", "host")


class Talk(NamedTuple):
    """A conversation as the timeline sees it: (resource, seconds) in turn, no step of length zero."""

    delay: float = 0.0  # encoding on the device, before the first step
    steps: tuple[tuple[int, float], ...] = ()
    settle: float = 0.0  # decoding that waits for the end of the step (the engine's commit="step")

    @property
    def seconds(self) -> float:
        """How long it takes with everything idle."""
        return self.delay + sum(seconds for _, seconds in self.steps) + self.settle


class Span(NamedTuple):
    """A step of conversation `talk` that held a resource; `asked` is when it could have started."""

    talk: int
    resource: int
    asked: float
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What happens when, in seconds from the start of the backward pass; `seconds` counts the forward pass too."""

    seconds: float
    backward: float  # end of the backward pass, delayed by encoding
    delayed: float  # of which encoding
    spans: tuple[Span, ...]
    settle: float = 0.0

    def busy(self, resource: int) -> float:
        """Seconds in which a resource was used."""
        return sum(span.end - span.start for span in self.spans if span.resource == resource)

    def bubbles(self, resource: int = INTER) -> list[tuple[int, float, float]]:
        """(conversation, from, to): the resource had been used and idled until that conversation first asked for it.

        Idling between a conversation's own rounds is no bubble: no gradient was late.
        """
        held = [span for span in self.spans if span.resource == resource]
        begun, found = {span.talk for span in held[:1]}, []
        for before, span in pairwise(held):
            if span.start > before.end and span.talk not in begun:
                found.append((span.talk, before.end, span.start))
            begun.add(span.talk)
        return found


@dataclass
class _State:
    """A simulation before conversation `at` asks for its first resource."""

    at: int = 0
    late: float = 0.0
    end: float = 0.0
    free: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    heap: list[tuple[float, int, int]] = field(default_factory=list)

    def copy(self) -> "_State":
        return _State(self.at, self.late, self.end, self.free.copy(), self.heap.copy())


def _run(
    ready: Sequence[float],
    talks: Sequence[Talk],
    state: _State,
    spans: list[Span] | None = None,
    saved: list[_State] | None = None,
    stride: int = 16,
) -> float:
    """Play on from `state`; the time at which all has ended. Requests come off the heap in the order of service."""
    late, end, free, heap = state.late, state.end, state.free, state.heap
    for index in range(state.at, len(ready) + 1):
        if index == len(ready):
            now = float("inf")
        else:
            delay, steps, _ = talks[index]
            if saved is not None and index % stride == 0:
                saved.append(_State(index, late, end, free.copy(), heap.copy()))
            late += delay
            now = ready[index] + late
        while heap and heap[0][0] <= now:
            asked, talk, step = heap[0]
            line = talks[talk][1]
            resource, seconds = line[step]
            start = free[resource]
            if start < asked:
                start = asked
            done = free[resource] = start + seconds
            step += 1
            if step < len(line):
                heapreplace(heap, (done, talk, step))
            else:
                heappop(heap)
                if done > end:
                    end = done
            if spans is not None:
                spans.append(Span(talk, resource, asked, start, done))
        if index < len(ready) and steps:
            resource, seconds = steps[0]
            start = free[resource]
            if start < now:
                start = now
            done = free[resource] = start + seconds
            if len(steps) > 1:
                heappush(heap, (done, index, 1))
            elif done > end:
                end = done
            if spans is not None:
                spans.append(Span(index, resource, now, start, done))
    backward = ready[-1] + late
    return end if end > backward else backward


def finish(ready: Sequence[float], talks: Sequence[Talk]) -> float:
    """When all has ended: `play` without the record of it, several times as fast.

    >>> finish([1, 4], [Talk(0, ((INTER, 2),)), Talk(0.5, ((INTER, 1),))])
    5.5
    """
    return _run(ready, talks, _State()) + sum(talk.settle for talk in talks)


def play(ready: Sequence[float], talks: Sequence[Talk], forward: float = 0.0) -> Timeline:
    """The timeline of conversations whose gradients are ready at these times, in this order."""
    spans: list[Span] = []
    end = _run(ready, talks, _State(), spans)
    delayed, settle = sum(talk.delay for talk in talks), sum(talk.settle for talk in talks)
    return Timeline(forward + end + settle, ready[-1] + delayed, delayed, tuple(spans), settle)


class Replay:
    """Simulates again after a change of one conversation, from the nearest saved state before it.

    >>> replay = Replay([1, 4], [Talk(0, ((INTER, 2),)), Talk(0, ((INTER, 9),))])
    >>> replay.seconds, replay.with_change(1, Talk(0.5, ((INTER, 1),))), replay.seconds
    (13.0, 5.5, 13.0)
    """

    def __init__(self, ready: Sequence[float], talks: Sequence[Talk], stride: int = 16) -> None:
        self._ready, self._stride = ready, stride
        self.talks = list(talks)
        self._saved: list[_State] = [_State()]
        self._tried: dict[tuple[int, int], float] = {}  # by conversation and identity of what it would be
        self._settle = sum(talk.settle for talk in talks)
        self.seconds = self._again() + self._settle

    def _again(self) -> float:
        """Play on from the last saved state, and save more."""
        return _run(self._ready, self.talks, self._saved.pop(), None, self._saved, self._stride)

    def with_change(self, index: int, talk: Talk) -> float:
        """The end, were conversation `index` another."""
        if index // self._stride >= len(self._saved):
            self._again()
        before, self.talks[index] = self.talks[index], talk
        end = _run(self._ready, self.talks, self._saved[index // self._stride].copy())
        self.talks[index] = before
        self._tried[index, id(talk)] = end
        return end + self._settle - before.settle + talk.settle

    def change(self, index: int, talk: Talk) -> None:
        """Replace conversation `index`. States before it stay; later ones are made again when they are asked for."""
        self._settle += talk.settle - self.talks[index].settle
        self.talks[index] = talk
        del self._saved[index // self._stride + 1 :]
        end = self._tried.get((index, id(talk)))
        self._tried.clear()
        self.seconds = (self._again() if end is None else end) + self._settle
