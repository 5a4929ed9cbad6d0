"""Several engines in one process, one for each rank, stepped together."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from laconic.comm.loopback import Loopback
from laconic.comm.protocol import Comm, Pending
from laconic.exchange import Op
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import Lanes, Rounds
from laconic.world import Scope

Gradients = dict[str, Tensor]


class Recording:
    """A comm that notes what is started, and may dawdle before it."""

    def __init__(self, comm: Loopback, dawdle: random.Random | None = None) -> None:
        self.world, self.lanes, self.futures = comm.world, comm.lanes, comm.futures
        self.started: list[tuple[int, Op, Scope, torch.dtype, int]] = []
        self._comm, self._dawdle = comm, dawdle

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> Pending:
        if self._dawdle is not None:
            time.sleep(self._dawdle.random() * 0.003)
        self.started.append((lane, op, scope, data.dtype, data.numel()))
        return self._comm.start(op, scope, data, lane, result)

    def lane(self, lane: int) -> list[tuple[int, Op, Scope, torch.dtype, int]]:
        """What was started on one lane, in order."""
        return [entry for entry in self.started if entry[0] == lane]

    def broadcast(self, data: Tensor) -> Tensor:
        return self._comm.broadcast(data)

    def gather(self, data: Tensor) -> Tensor:
        return self._comm.gather(data)

    def close(self) -> None:
        self._comm.close()


class Fleet:
    """Engines that hold the same layers and plan."""

    def __init__(
        self,
        layers: Sequence[Layer],
        plan: Plan,
        size: int = 2,
        node_size: int = 1,
        *,
        comms: Sequence[Comm] | None = None,
        rounds: Callable[[], Rounds] = lambda: Lanes("test"),
        twins: bool = False,
        **options: Any,
    ) -> None:
        self._twins = twins  # offer a copy of every gradient
        self.layers = {layer.name: layer for layer in layers}
        self.comms = Loopback.ranks(size, node_size) if comms is None else list(comms)
        self.engines = [Engine(layers, comm, rounds(), **options) for comm in self.comms]
        self.size = len(self.engines)
        self.adopt(plan)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for engine in self.engines:
            engine.close()

    def adopt(self, plan: Plan) -> None:
        for engine in self.engines:
            engine.adopt(plan.resolve(list(self.layers.values())))

    def start(
        self, gradients: Sequence[Gradients], buckets: Sequence[Sequence[str]]
    ) -> tuple[list[list["torch.futures.Future[Tensor]"]], list[Gradients]]:
        """Hand every rank's buckets to its engine; each bucket is a flat buffer, as DDP makes them."""
        futures: list[list[torch.futures.Future[Tensor]]] = []
        slices: list[Gradients] = []
        for engine, own in zip(self.engines, gradients, strict=True):
            waiting, views = [], {}
            for index, names in enumerate(buckets):
                buffer = torch.cat([own[name].flatten() for name in names])
                cut = dict(zip(names, buffer.split([own[name].numel() for name in names]), strict=True))
                views.update(cut)
                last = index == len(buckets) - 1
                twins = {n: t.clone() for n, t in cut.items() if t.dtype is torch.float32}
                waiting.append(
                    engine.reduce(
                        cut, buffer, last=last, label=f"bucket {index}", twins=twins.get if self._twins else None
                    )
                )
            futures.append(waiting)
            slices.append(views)
        return futures, slices

    def step(self, gradients: Sequence[Gradients], buckets: Sequence[Sequence[str]] | None = None) -> list[Gradients]:
        """One whole step; every rank's means by layer."""
        futures, slices = self.start(gradients, buckets or [list(self.layers)])
        for waiting in futures:
            torch.futures.wait_all(waiting)
        return slices

    def ledgers(self) -> list[dict[str, dict[str, Tensor]]]:
        """Copies of what every rank remembers."""
        return [engine.ledger.state_dict() for engine in self.engines]

    def mean_residual(self, name: str) -> Tensor:
        """Over all ranks, flat, in double precision."""
        total = torch.zeros(self.layers[name].numel, dtype=torch.float64)
        for engine in self.engines:
            residual = engine.ledger.accounts[name].residual
            if residual is not None:
                total += residual.double()
        return total / self.size

    def gradients(self, seed: int) -> list[Gradients]:
        """Every rank's gradients of one step."""
        rng = torch.Generator().manual_seed(seed)
        return [
            {name: torch.randn(layer.shape, generator=rng).to(layer.dtype) for name, layer in self.layers.items()}
            for _ in self.engines
        ]


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal as bytes, so that NaN equals NaN and 0.0 is not -0.0."""
    return a.dtype == b.dtype and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def same_ledgers(
    a: Sequence[Mapping[str, Mapping[str, Tensor]]], b: Sequence[Mapping[str, Mapping[str, Tensor]]]
) -> bool:
    """Whether every rank remembers the same, bit by bit."""
    for ours, theirs in zip(a, b, strict=True):
        if ours.keys() != theirs.keys():
            return False
        for name, entry in ours.items():
            if entry.keys() != theirs[name].keys():
                return False
            if not all(same_bits(value, theirs[name][key]) for key, value in entry.items()):
                return False
    return True
