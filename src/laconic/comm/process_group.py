"""Comm over torch.distributed: one process group per lane and scope, so that order comes from structure.

On gloo, each lane's groups are used by one thread only (runtime/rounds.py) and carry one round; nothing is started from
a callback. On NCCL the host enqueues everything from one thread in one order, and one group serves all lanes.
"""

import atexit
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor

from laconic.exchange import Op
from laconic.world import Scope, World

_gather_rows = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCTIONS = {Op.SUM: dist.ReduceOp.SUM, Op.MAX: dist.ReduceOp.MAX}


def _gather_on(group: "dist.ProcessGroup") -> Any:
    """Its name has changed in torch 2.13."""
    return getattr(group, "all_gather_single", None) or group._allgather_base


@cache
def _options(op: Op) -> Any:
    """For a collective that is started on its group, past the checks of torch.distributed's functions: in every round
    they cost as much as a small collective's own work."""
    made: Any = c10d.AllgatherOptions() if op is Op.GATHER else c10d.AllreduceOptions()  # type: ignore[attr-defined]
    made.asyncOp = True
    if op in _REDUCTIONS:
        made.reduceOp = _REDUCTIONS[op]
    return made


@dataclass
class _Work:
    work: "dist.Work"
    result: Tensor
    source: Tensor  # held until the network has read it

    def wait(self) -> Tensor:
        self.work.wait()
        return self.result

    def future(self) -> "torch.futures.Future[object]":
        made: torch.futures.Future[object] = self.work.get_future()
        return made


@dataclass
class _Done:
    result: Tensor

    def wait(self) -> Tensor:
        return self.result

    def future(self) -> "torch.futures.Future[object]":
        made: torch.futures.Future[object] = torch.futures.Future()
        made.set_result(self.result)
        return made


class ProcessGroupComm:
    """A door to the ranks of `group`. Making one is a collective act, and so is `open`, which makes the lanes."""

    def __init__(self, group: "dist.ProcessGroup") -> None:
        self.world = World(dist.get_rank(group), dist.get_world_size(group))
        self.lanes = 0
        self.backend = dist.get_backend(group)
        self.futures = self.backend == "gloo"  # NCCL's order is the stream's
        self._timeout = _timeout_of(group)
        self._ranks = dist.get_process_group_ranks(group)
        self._own: list[dist.ProcessGroup] = []
        self._groups: dict[tuple[Scope, int], dist.ProcessGroup] = {}
        # Where gradients travel by NCCL, words still lie in the host's memory, which NCCL does not send.
        self._control = self._new(Scope.WORLD, "gloo" if self.backend == "nccl" else self.backend)

    def open(self, lanes: int, node_size: int = 1) -> None:
        """Make `lanes` channels; ranks are numbered machine by machine, `node_size` to each."""
        self.world = World(self.world.rank, self.world.size, node_size)
        self.lanes = lanes
        scopes = [Scope.WORLD] if node_size in (1, self.world.size) else list(Scope)
        channels = 1 if self.backend == "nccl" else lanes
        self._groups = {(scope, lane): self._new(scope, self.backend) for lane in range(channels) for scope in scopes}

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device()) if self.backend == "nccl" else torch.device("cpu")

    def _new(self, scope: Scope, backend: str) -> "dist.ProcessGroup":
        ranks = [self._ranks[member] for member in self.world.members(scope)]
        made: dist.ProcessGroup = dist.new_group(
            ranks, timeout=self._timeout, backend=backend, use_local_synchronization=True
        )
        self._own.append(made)
        return made

    def _group(self, scope: Scope, lane: int) -> "dist.ProcessGroup | None":
        """The lane's group for a scope, or None where this rank is alone in it."""
        size = self.world.sizes[scope]
        if size == 1:
            return None
        if size == self.world.size:
            scope = Scope.WORLD
        return self._groups[scope, 0 if self.backend == "nccl" else lane]

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> _Work | _Done:
        group = self._group(scope, lane)
        if group is None:
            return _Done(data.unsqueeze(0) if op is Op.GATHER else data)
        if op in _REDUCTIONS:
            return _Work(group.allreduce([data], _options(op)), data, data)
        size = self.world.sizes[scope]
        rows = data.new_empty(size, data.numel() // (1 if op is Op.GATHER else size)) if result is None else result
        if op is Op.GATHER:
            return _Work(_gather_on(group)(rows.view(-1), data, _options(op)), rows, data)
        work = dist.all_to_all_single(rows.view(-1), data.view(-1), group=group, async_op=True)
        return _Work(work, rows, data)

    def broadcast(self, data: Tensor) -> Tensor:
        dist.broadcast(data, self._ranks[0], self._control)
        return data

    def gather(self, data: Tensor) -> Tensor:
        rows = data.new_empty(self.world.size, data.numel())
        _gather_rows(rows.view(-1), data, self._control)
        return rows

    def close(self) -> None:
        """Destroy the groups that were made here, those apart that `dist.destroy_process_group()` has destroyed."""
        self._groups.clear()
        del self._control
        while self._own:
            _destroy(self._own.pop())

    def close_at_exit(self, idle: Callable[[], bool]) -> None:
        """End the groups while there is an interpreter, also where this comm is gone by then: gloo's threads need it
        to let go of the last collective, and one that finds it gone aborts the process. Not unless `idle` then: a
        collective that waits for a dead peer would hold up the exit."""
        atexit.register(_end, weakref.ref(self), [weakref.ref(group) for group in self._own], idle)


def _end(comm: "weakref.ref[ProcessGroupComm]", groups: "list[weakref.ref[Any]]", idle: Callable[[], bool]) -> None:
    if not idle():
        return
    if (living := comm()) is not None:
        living.close()
    for group in groups:
        if (left := group()) is not None:
            _destroy(left)


def _destroy(group: "dist.ProcessGroup") -> None:
    """Unless `dist.destroy_process_group()` has."""
    with suppress(AssertionError, ValueError):
        dist.destroy_process_group(group)


def _timeout_of(group: "dist.ProcessGroup") -> timedelta:
    """How long the user's own group waits, so that ours fails no later and no earlier."""
    for device in ("cpu", "cuda"):
        try:
            return group._get_backend(torch.device(device)).options._timeout
        except (RuntimeError, AttributeError):
            continue
    return timedelta(minutes=30)
