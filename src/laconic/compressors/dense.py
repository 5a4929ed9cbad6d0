"""The gradient as it is."""

from dataclasses import dataclass

from torch import Tensor

from laconic.compressors.fold import fold
from laconic.exchange import Compressor, Exchange, Leg, Memory, Message, Op
from laconic.layer import Layer
from laconic.world import World


@dataclass(frozen=True)
class Dense(Compressor):
    """Divide, then sum, as DDP does without a hook: the same bits.

    >>> print(Dense())
    Dense
    """

    @property
    def lossless(self) -> bool:
        return True

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        return (Leg(Op.SUM, world.scope, layer.dtype, layer.numel),)

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        if memory.residual is not None:  # left by an earlier plan
            fold(x, memory)
        if world.size > 1:
            x *= 1 / world.size  # by the reciprocal, as DDP does: for a world of 3 the bits differ
        total = yield Message(Op.SUM, world.scope, x.view(-1))
        if total.data_ptr() != out.data_ptr():
            out.view(-1).copy_(total)

    def error(self, x: Tensor) -> float:
        return 0.0

    def contraction(self, numel: int) -> float | None:
        return 1.0
