"""N ranks in one process, each with its engine and controller, driven step by step from one thread."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from laconic import Layer, Plan, Policy, Static
from laconic.comm.loopback import Loopback
from laconic.control.controller import Controller
from laconic.exchange import Op
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import Lanes
from laconic.world import Scope

LAYERS = (Layer("a.weight", (40, 64)), Layer("b.weight", (64, 48)), Layer("b.bias", (48,)), Layer("c.weight", (32, 64)))
Gradients = Mapping[str, Tensor]


class Logged(Loopback):
    """Loopback that notes each collective: what, how many bytes, and where they lie."""

    log: list[tuple[Op, int, int]]

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None):  # type: ignore[no-untyped-def]
        if lane >= 0:
            self.log.append((op, data.nbytes, data.data_ptr()))
        return super().start(op, scope, data, lane, result)


class Team:
    """Ranks under one policy."""

    def __init__(
        self, policy: Callable[[], Policy], size: int = 2, layers: Sequence[Layer] = LAYERS,
        learning_rate: Callable[[int], float | None] = lambda rank: None,
    ) -> None:  # fmt: skip
        self.layers = layers
        self.comms = [Logged(comm.hub, comm.world, comm.lanes) for comm in Loopback.ranks(size)]
        self.policies = [policy() for _ in self.comms]
        self.engines, self.controllers = [], []
        for comm, own in zip(self.comms, self.policies, strict=True):
            comm.log = []
            engine = Engine(layers, comm, Lanes(f"rank {comm.world.rank}"))
            engine.adopt(own.start(layers, comm.world))
            self.engines.append(engine)
            rate = partial(learning_rate, comm.world.rank)
            self.controllers.append(Controller(engine, comm, own, learning_rate=rate))
        self.flats: list[Tensor] = []

    @property
    def plan(self) -> Plan:
        """The plan in use, which must be one."""
        plans = [engine.plan for engine in self.engines]
        assert all(plan == plans[0] for plan in plans)
        assert plans[0] is not None
        return plans[0]

    def step(self, gradients: Sequence[Gradients]) -> list[Tensor]:
        """One reduction in one bucket, and what is due before it; each rank's means, side by side."""
        for controller in self.controllers:
            controller.tick()
        self.flats = [torch.cat([own[layer.name].flatten() for layer in self.layers]) for own in gradients]
        sizes = [layer.numel for layer in self.layers]
        names = [layer.name for layer in self.layers]
        for comm in self.comms:
            comm.log.clear()
        waiting = [
            engine.reduce(dict(zip(names, flat.split(sizes), strict=True)), flat)
            for engine, flat in zip(self.engines, self.flats, strict=True)
        ]
        means = [future.wait() for future in waiting]
        assert all(torch.equal(mean, means[0]) or bool(mean.isnan().any()) for mean in means)
        return means

    def run(self, steps: int, seed: int = 0, scale: Callable[[int, str], float] = lambda step, name: 1.0) -> None:
        """Random gradients, `scale` times as large."""
        for step in range(steps):
            self.step([draw(seed + step, rank, self.layers, scale, step) for rank in range(len(self.comms))])

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


def draw(
    seed: int, rank: int, layers: Sequence[Layer] = LAYERS,
    scale: Callable[[int, str], float] = lambda step, name: 1.0, step: int = 0,
) -> dict[str, Tensor]:  # fmt: skip
    """One rank's gradients: of low rank and heavy tails, each layer in a measure of its own, so that degrees matter."""
    rng = torch.Generator().manual_seed(1000 * seed + rank)
    made = {}
    for index, layer in enumerate(layers):
        rows, columns = layer.shape if len(layer.shape) == 2 else (1, layer.numel)
        core = torch.randn(rows, 6, generator=rng) * 0.5 ** torch.arange(6) @ torch.randn(6, columns, generator=rng)
        noise = torch.randn(rows, columns, generator=rng) ** 3
        made[layer.name] = (
            scale(step, layer.name) * 4.0**index * (core + 0.05 * (1 + 3 * index) * noise).view(layer.shape)
        )
    return made


def static(plan: Plan) -> Callable[[], Policy]:
    return lambda: Static(plan)
