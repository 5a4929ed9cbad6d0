"""Rounds: the order in which buckets move through their conversations, the same on every rank.

A bucket's work is a row of stages: stage 0 opens its conversations and starts round 0, stage i waits for round i-1 and
starts round i, the last stage ends it. Measured on gloo: collectives that are chained from callbacks hang, or on a
second process group return wrong data, because callbacks run out of order. So order comes from structure here.
"""

import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

Word = Callable[[], None]  # what is told when a job has ended

PATIENCE = 5.0  # seconds that an exit waits for a thread that may hang on a dead peer


class Job(Protocol):
    """One bucket in one step."""

    brief: bool  # stage 0 only starts a collective: not worth a thread's waking

    def advance(self, stage: int) -> Word | None:
        """Do the work of one stage. Never raises: a job that fails says so itself. The last stage returns how to tell
        whoever waits; it is told when nothing here holds the job any more."""


class Rounds(Protocol):
    """Takes jobs through their stages."""

    def submit(self, job: Job) -> None:
        """Begin; jobs finish in the order in which they are submitted."""

    def resize(self, stages: int) -> None:
        """How many stages a job has. Only while no job is under way."""

    def close(self) -> None:
        """Take no more jobs."""


# A job goes from thread to thread in a box. The last one empties it before it tells that the job has ended: whoever
# then lets go of an engine lets go of its groups too, however late another thread is.
_Queue = queue.SimpleQueue[list[Job] | None]


class Lanes:
    """One thread a stage, each first in, first out: stage i is the only one that uses lane i."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queues: list[_Queue] = []
        self._end: Callable[[], object] = lambda: None
        self._submitted, self._opened = 0, [0]  # how many jobs stage 0 was given, and has handed on

    def resize(self, stages: int) -> None:
        if stages == len(self._queues):
            return
        self.close()
        self._queues = [queue.SimpleQueue() for _ in range(stages)]
        self._submitted, self._opened = 0, [0]
        threads = [
            threading.Thread(
                target=_work, args=(stage, self._queues, self._opened), name=f"{self._name} stage {stage}", daemon=True
            )
            for stage in range(stages)
        ]
        for thread in threads:
            thread.start()
        self._end = weakref.finalize(self, _end, self._queues[0], threads)

    def submit(self, job: Job) -> None:
        if job.brief and self._opened[0] == self._submitted and len(self._queues) > 1:
            job.advance(0)  # nothing is before it, so order holds
            self._queues[1].put([job])
            return
        self._submitted += 1
        self._queues[0].put([job])

    def close(self) -> None:
        self._end()
        self._queues = []


def _end(first: _Queue, threads: list[threading.Thread]) -> None:
    """Let the threads run out. Also at exit: one that is inside torch when the interpreter goes away aborts it."""
    first.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(PATIENCE)


def _work(stage: int, queues: list[_Queue], opened: list[int]) -> None:
    onward = queues[stage + 1] if stage + 1 < len(queues) else None
    while (box := queues[stage].get()) is not None:
        tell = box[0].advance(stage)
        if onward is not None:
            onward.put(box)
        if stage == 0:
            opened[0] += 1
        if onward is None:
            box.clear()
        if tell is not None:
            tell()
        del box, tell  # nothing of a step outlives it
    if onward is not None:
        onward.put(None)


class Stream:
    """All stages at once, from the thread that submits, on a side stream: for devices that order work by stream.

    The host enqueues everything in one order and waits for nothing; `wait()` on a collective blocks the stream.
    """

    def __init__(self, aside: Callable[[], AbstractContextManager[object]]) -> None:
        self._aside = aside
        self._stages = 0

    def resize(self, stages: int) -> None:
        self._stages = stages

    def submit(self, job: Job) -> None:
        with self._aside():
            tell = None
            for stage in range(self._stages):
                tell = job.advance(stage)
            if tell is not None:
                tell()

    def close(self) -> None:
        """Nothing is held."""
