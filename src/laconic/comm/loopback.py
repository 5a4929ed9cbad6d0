"""N ranks in one process: for tests, documentation and what-if.

A collective completes when every rank of its scope has started it. Ranks may be threads, or one thread may play them
all in turn: `start` never blocks.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from laconic.exchange import Exchange, Message, Op
from laconic.world import Scope, World

TIMEOUT = 60.0


def reduce(op: Op, contributions: Sequence[Tensor], rank: int) -> Tensor:
    """What `rank` receives when everyone contributes; sums are made in rank order, so every rank has the same bits."""
    match op:
        case Op.SUM:
            total = contributions[0].clone()
            for other in contributions[1:]:
                total += other
            return total
        case Op.MAX:
            return torch.stack(list(contributions)).amax(0)
        case Op.GATHER:
            return torch.stack(list(contributions))
        case Op.SCATTER:
            return torch.stack([rows[rank] for rows in contributions])


@dataclass
class _Meeting:
    op: Op
    size: int
    given: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class _Hub:
    changed: threading.Condition = field(default_factory=threading.Condition)
    meetings: dict[tuple[object, ...], _Meeting] = field(default_factory=dict)


@dataclass
class _Waiting:
    hub: _Hub
    meeting: _Meeting
    rank: int
    target: Tensor | None

    def wait(self) -> Tensor:
        with self.hub.changed:
            met = self.hub.changed.wait_for(lambda: len(self.meeting.given) == self.meeting.size, TIMEOUT)
        if not met:
            raise TimeoutError(f"{self.meeting.op.name}: {len(self.meeting.given)} of {self.meeting.size} ranks came")
        result = reduce(self.meeting.op, [self.meeting.given[r] for r in sorted(self.meeting.given)], self.rank)
        return result if self.target is None else self.target.copy_(result)

    def future(self) -> "torch.futures.Future[object]":
        raise NotImplementedError("a world in one process has no thread that could tell")


class Loopback:
    """One rank of a world that lives in this process; make them all with `Loopback.ranks`."""

    device = torch.device("cpu")
    futures = False

    def __init__(self, hub: _Hub, world: World, lanes: int) -> None:
        self.hub, self.world, self.lanes = hub, world, lanes
        self._turn: dict[tuple[object, ...], int] = {}

    @staticmethod
    def ranks(size: int, node_size: int = 1, lanes: int = 8) -> list["Loopback"]:
        """Every rank of a world of `size`."""
        hub = _Hub()
        return [Loopback(hub, World(rank, size, node_size), lanes) for rank in range(size)]

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> _Waiting:
        members = self.world.members(scope)
        place = members.index(self.world.rank)
        channel = (lane, scope, members[0])
        with self.hub.changed:
            turn = self._turn.get(channel, 0)
            self._turn[channel] = turn + 1
            meeting = self.hub.meetings.setdefault((*channel, turn), _Meeting(op, len(members)))
            assert meeting.op is op, f"rank {self.world.rank} starts {op} where others started {meeting.op}"
            meeting.given[place] = data.clone()
            if len(meeting.given) == meeting.size:
                del self.hub.meetings[(*channel, turn)]
                self.hub.changed.notify_all()
        return _Waiting(self.hub, meeting, place, data if op in (Op.SUM, Op.MAX) else result)

    def broadcast(self, data: Tensor) -> Tensor:
        return self.gather(data)[0]

    def gather(self, data: Tensor) -> Tensor:
        return self.start(Op.GATHER, Scope.WORLD, data, -1).wait()

    def close(self) -> None:
        """Nothing is held."""


def converse(exchanges: Sequence[Exchange], comms: Sequence[Loopback]) -> list[list[Message]]:
    """Play every rank's conversation in lockstep to its end; the messages that each rank sent, in order.

    >>> from laconic import Dense
    >>> from laconic.exchange import Memory
    >>> comms = Loopback.ranks(2)
    >>> xs = [torch.tensor([1.0]), torch.tensor([3.0])]
    >>> outs = [torch.empty(1), torch.empty(1)]
    >>> talks = [Dense().exchange(x, o, Memory(), c.world) for x, o, c in zip(xs, outs, comms)]
    >>> _ = converse(talks, comms)
    >>> outs
    [tensor([2.]), tensor([2.])]
    """
    said: list[list[Message]] = [[] for _ in exchanges]
    messages = [next(talk) for talk in exchanges]
    while messages:
        for log, message in zip(said, messages, strict=True):
            log.append(Message(message.op, message.scope, message.data.clone()))
        pending = [c.start(m.op, m.scope, m.data, 0) for c, m in zip(comms, messages, strict=True)]
        replies = [p.wait() for p in pending]
        messages = []
        for talk, reply in zip(exchanges, replies, strict=True):
            try:
                messages.append(talk.send(reply))
            except StopIteration:
                continue
        assert len(messages) in (0, len(exchanges)), "some ranks went on while others had finished"
    return said
