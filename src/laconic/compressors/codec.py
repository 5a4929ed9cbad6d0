"""One-shot compressors: encode, send to everyone, decode and add.

A codec says how many bytes a stretch of elements takes, writes them, and adds what they mean to an output. That is all
that the plain route (here), the divided and hierarchical routes and chains need to know.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from laconic import kernels
from laconic.exchange import Compressor, Exchange, Leg, Memory, Message, Op
from laconic.kernels.energy import Energy
from laconic.layer import Layer
from laconic.world import World


def aligned(nbytes: int) -> int:
    """Up to the next multiple of 8, and not 0, so that every part of a payload can be viewed as any number type."""
    return max(1, -(-nbytes // 8)) * 8


class Codec(Compressor):
    """A compressor that needs one message."""

    variable: ClassVar[bool] = False  # the payload's size is learnt from the data, below that of `nbytes(numel)`

    @abstractmethod
    def nbytes(self, numel: int, warm: Mapping[str, Tensor] | None = None) -> int:
        """The payload's size for `numel` elements: a multiple of 8, equal on every rank."""

    @abstractmethod
    def encode(self, x: Tensor, payload: Tensor, residual: Tensor | None, seed: int) -> Energy:
        """Add residual to x, write the payload, leave in x what it does not carry; the energy of x + residual."""

    @abstractmethod
    def decode(self, payload: Tensor, out: Tensor, weight: float) -> None:
        """out += weight * what was encoded. Raises CorruptPayload on anything out of bounds."""

    def recode(self, payloads: Tensor, x: Tensor, payload: Tensor, seed: int) -> None:
        """Encode the sum of what the rows of `payloads` carry; x becomes what is left of that sum."""
        x.zero_()
        for row in payloads:
            self.decode(row, x, 1.0)
        self.encode(x, payload, None, seed)

    def learn(self, payloads: Tensor, warm: dict[str, Tensor]) -> None:
        """Take from everyone's payloads what the next step's size depends on."""

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        return (Leg(Op.GATHER, world.scope, torch.uint8, self.nbytes(layer.numel)),)

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        flat, total = x.view(-1), out.view(-1)
        payload = memory.take(self.nbytes(flat.numel(), memory.warm), torch.uint8, x.device)
        payload.zero_()  # gaps between its parts would else carry whatever the buffer held before
        memory.energy = self.encode(flat, payload, memory.residual, memory.draw(world.rank) if self.random else 0)
        everyone = yield Message(Op.GATHER, world.scope, payload)
        self.learn(everyone, memory.warm)
        total.zero_()
        for row in everyone:
            self.decode(row, total, 1 / world.size)

    def for_layer(self, layer: Layer) -> "Codec":
        return self

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence["Codec"]:
        return (self,)

    def unsuited(self, layer: Layer) -> str | None:
        if 2 * self.nbytes(layer.numel) > layer.nbytes and not self.variable:
            return "the code would save less than half"
        return None

    def error(self, x: Tensor) -> float:
        left = x.flatten().clone()
        payload = torch.empty(self.nbytes(left.numel()), dtype=torch.uint8, device=x.device)
        self.encode(left, payload, None, 1)
        return float(kernels.of(left).energy(left))
