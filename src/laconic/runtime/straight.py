"""Straight through: the steps in which every layer is sent as it is and nothing is kept.

Such a bucket needs no thread, no rider and no verdict. Its one sum is started on lane 0 by the thread that brings the
bucket, so that order is the order of calls there as for any other bucket; and the collective's own future resolves it.
On the way back nothing is done but a look at the clock: a collective is never started from a callback, and the books
are made up by the next one who reads them, after the step and on the reader's thread (`through` is called at once, for
those who listen to every step).
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from time import perf_counter

import torch
from torch import Tensor

from laconic.comm.protocol import Comm
from laconic.errors import ExchangeFailed
from laconic.exchange import Exchange, Memory, Op, wire_bytes
from laconic.plan import Plan
from laconic.runtime.bucket import Fault, Tally
from laconic.runtime.ledger import Ledger
from laconic.runtime.talk import Segment
from laconic.stats import Transfer
from laconic.world import Scope

Future = torch.futures.Future[Tensor]


@dataclass(slots=True)
class _Passage:
    """A bucket on its way."""

    where: Callable[[], str]
    segment: Segment
    op: Op
    scope: Scope
    nbytes: int
    ready: float
    started: float
    ended: float = 0.0


class _Road:
    """What the network's threads see of a step. Nothing here leads to a process group: a thread that lets go of it last
    would end the group, and with it itself."""

    def __init__(self, fault: Fault, idle: threading.Event, through: Callable[[], None] | None) -> None:
        self.lock = threading.Lock()
        self.step: list[_Passage] = []
        self.under_way, self.closed = 0, False
        self._fault, self._idle = fault, idle
        self._through = through and weakref.WeakMethod(through)

    def enter(self, passage: _Passage, last: bool) -> None:
        with self.lock:
            self.step.append(passage)
            self.under_way += 1
            self.closed = last

    def arrive(
        self, passage: _Passage, talk: Exchange, buffer: Tensor, total: "torch.futures.Future[object]"
    ) -> Tensor:
        """On a thread of the network. A failure is raised: DDP takes an exception that is set for a result."""
        try:
            total.value()
            talk.send(buffer)
        except StopIteration:
            pass
        except Exception as error:
            raise self.failure(passage, "waiting for round 0", error) from error
        passage.ended = perf_counter()
        with self.lock:
            self.under_way -= 1
            through = self.closed and not self.under_way
        if through:
            if self._through is not None and (tell := self._through()) is not None:
                tell()
            self._idle.set()
        return buffer

    def failure(self, passage: _Passage, phase: str, error: Exception) -> ExchangeFailed:
        """Nothing more is exchanged, and nobody waits for this step."""
        failure = ExchangeFailed(f"{passage.where()}, {phase}: {type(error).__name__}: {error}")
        self._fault.error = self._fault.error or failure
        self._idle.set()
        return failure


class Straight:
    """Takes whole buckets, one step at a time: `idle` is set when a step is through, and the next begins after that.

    `through`, where it is given, is a method: it is held weakly.
    """

    def __init__(
        self, comm: Comm, ledger: Ledger, fault: Fault, idle: threading.Event, through: Callable[[], None] | None
    ) -> None:
        self._comm, self._ledger = comm, ledger
        self._plan: Plan | None = None
        self._segments: dict[Sequence[str], Segment] = {}
        self._road = _Road(fault, idle, through)

    def adopt(self, plan: Plan) -> bool:
        """Whether this plan is one sum for each layer, alike for all, and no residual waits to be sent along."""
        layers = [account.layer for account in self._ledger.accounts.values()]
        kept = any(account.residual is not None for account in self._ledger.accounts.values())
        self._plan, self._segments = plan, {}
        if not layers or kept or not self._comm.futures or len({plan[layer.name] for layer in layers}) > 1:
            return False
        legs = [plan[layer.name].legs(layer, self._comm.world) for layer in layers]
        return plan[layers[0].name].lossless and all([leg.op for leg in own] == [Op.SUM] for own in legs)

    def take(self, names: tuple[str, ...], buffer: Tensor, last: bool, where: Callable[[], str]) -> Future:
        """Start a bucket; the future resolves to its buffer, where the mean is then. ExchangeFailed if it cannot."""
        ready = perf_counter()
        segment = self._segments.get(names) or self._segment(names)
        talk = segment.compressor.exchange(buffer, buffer, Memory(), self._comm.world)
        message = next(talk)
        passage = _Passage(where, segment, message.op, message.scope, message.data.nbytes, ready, perf_counter())
        self._road.enter(passage, last)
        try:
            pending = self._comm.start(message.op, message.scope, message.data, 0)
        except Exception as error:
            raise self._road.failure(passage, "opening", error) from error
        return pending.future().then(partial(self._road.arrive, passage, talk, buffer))

    def _segment(self, names: tuple[str, ...]) -> Segment:
        assert self._plan is not None
        layers = tuple(self._ledger.accounts[name].layer for name in names)
        own = [Segment.of(layer, self._plan[names[0]], False, self._comm.world) for layer in layers]
        segment = self._segments[names] = reduce(Segment.joined, own)
        return segment

    def ended(self) -> list[Tally]:
        """What the buckets of the last step did, told once and when all are through."""
        road = self._road
        with road.lock:
            if not road.closed or road.under_way:
                return []
            step, road.step, road.closed = road.step, [], False
        return [self._tally(passage) for passage in step]

    def _tally(self, passage: _Passage) -> Tally:
        op, scope, began, ended = passage.op, passage.scope, passage.started, passage.ended
        sent = wire_bytes(op, passage.nbytes, self._comm.world.sizes[scope])
        return Tally(
            passage.where().rpartition(", ")[2],
            ((tuple(layer.name for layer in passage.segment.layers), passage.ready),),
            [Transfer(op, scope, passage.nbytes, began, ended)],
            sent,
            [(passage.segment, sent)],
            compress_s=began - passage.ready,
            communicate_s=ended - began,
            spans=[("encode", passage.ready, began), (f"{op.value} {scope.value}", began, ended)],
        )
