"""Elements at random, the same on every rank, so that they can be summed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic import kernels
from laconic.compressors import check
from laconic.compressors.sparse import Sparsifier
from laconic.compressors.topk import how_many, rungs
from laconic.exchange import Exchange, Leg, Memory, Message, Op
from laconic.kernels.energy import Energy
from laconic.layer import Layer
from laconic.world import World


@dataclass(frozen=True)
class RandomK(Sparsifier):
    """One element at random in each of k equal stretches, by a seed that all ranks share: no indices travel.

    >>> RandomK(density=0.1).legs(Layer("w", (10, 100)), World(size=2))[0].numel
    100
    """

    density: float = 0.1

    coded = False

    @property
    def random(self) -> bool:
        return True

    def __post_init__(self) -> None:
        check.share("density", self.density)

    def room(self, numel: int) -> int:
        return how_many(self.density, numel)

    def pick(
        self, x: Tensor, residual: Tensor | None, seed: int, indices: Tensor, values: Tensor
    ) -> tuple[Energy, int]:
        ops = kernels.of(x)
        energy = ops.fold(x, residual)
        ops.strata(x.numel(), seed, indices)
        ops.take(x, indices, values)
        return energy, indices.numel()

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        return (Leg(Op.SUM, world.scope, torch.float32, self.room(layer.numel)),)

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        room = self.room(x.numel())
        indices = memory.take(room, torch.int32, x.device)
        values = memory.take(room, torch.float32, x.device)
        memory.energy, _ = self.pick(x.view(-1), memory.residual, memory.draw(), indices, values)
        values /= world.size
        total = yield Message(Op.SUM, world.scope, values)
        out.zero_()
        kernels.of(out).scatter_add(indices, total, out.view(-1), 1.0)
        memory.give(indices)

    def unsuited(self, layer: Layer) -> str | None:
        return "the code would save less than half" if 2 * self.room(layer.numel) > layer.numel else None

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["RandomK"]:
        return tuple(self.replace(density=density) for density in rungs(self.density, low, high))

    def contraction(self, numel: int) -> float | None:
        return 1 / -(-numel // self.room(numel)) if numel else 1.0  # one in each stretch, the longest deciding
