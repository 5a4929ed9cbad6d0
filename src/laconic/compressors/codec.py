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
from laconic.exchange import Choral, Exchange, Leg, Message, Op, Voice
from laconic.kernels.energy import Energy
from laconic.layer import Layer
from laconic.world import World


class Codec(Choral):
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

    def chorus(self, voices: Sequence[Voice], world: World) -> Exchange:
        first = voices[0]
        rooms = [self.nbytes(voice.x.numel(), voice.memory.warm) for voice in voices]
        payload = first.memory.take(sum(rooms), torch.uint8, first.x.device)
        seeds = [voice.memory.draw(world.rank) for voice in voices] if self.random else []
        xs, residuals = [voice.x.view(-1) for voice in voices], [voice.memory.residual for voice in voices]
        for voice, energy in zip(voices, self.encode_all(xs, residuals, payload, rooms, seeds), strict=True):
            voice.memory.energy = energy
        everyone = yield Message(Op.GATHER, world.scope, payload)
        for voice, own in zip(voices, torch.split(everyone, rooms, 1), strict=True) if self.variable else ():
            self.learn(own, voice.memory.warm)
        self.decode_all(everyone, [voice.out.view(-1) for voice in voices], rooms, 1 / world.size)

    def encode_all(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor,
        rooms: Sequence[int], seeds: Sequence[int],
    ) -> Sequence[Energy]:  # fmt: skip
        """`encode` for layers whose payloads lie side by side, each in its room."""
        payload.zero_()  # gaps between its parts would else carry whatever the buffer held before
        parts = zip(xs, torch.split(payload, list(rooms)), residuals, seeds or [0] * len(xs), strict=True)
        return [self.encode(x, own, residual, seed) for x, own, residual, seed in parts]

    def decode_all(self, payloads: Tensor, outs: Sequence[Tensor], rooms: Sequence[int], weight: float) -> None:
        """outs = weight times the sum of what the rows of `payloads` carry."""
        for out, own in zip(outs, torch.split(payloads, list(rooms), 1), strict=True):
            out.zero_()
            for row in own:
                self.decode(row, out, weight)

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
