"""One layer's conversations over a world in this process, played as the engine plays them and harder.

Harder: every buffer that is lent is full of NaN, every reply is a slice of something wider, and `out` is x.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from laconic.comm.loopback import Loopback
from laconic.exchange import Compressor, Memory, Message, Op
from laconic.layer import Layer

UNIT = 2.0**-24  # half a unit in the last place of float32, relative
GUARD = 8  # elements on either side of a reply, so that eight-byte alignment is kept


def dirty(numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer as an arena lends it: whatever was there before. All ones is a NaN in every float type."""
    return torch.full((numel * dtype.itemsize,), 255, dtype=torch.uint8, device=device).view(dtype)


def packed(reply: Tensor) -> Tensor:
    """The reply as it comes out of a collective that carried other messages too."""
    wide = torch.zeros(*reply.shape[:-1], reply.shape[-1] + 2 * GUARD, dtype=reply.dtype)
    wide[..., GUARD:-GUARD] = reply
    return wide[..., GUARD:-GUARD]


@dataclass
class Ranks:
    """Every rank's memory of one layer."""

    compressor: Compressor
    layer: Layer
    size: int = 1
    node_size: int = 1
    alias: bool = True  # out is x, as in the engine
    seed: int = 0
    residuals: list[Tensor | None] = field(init=False)
    warm: list[dict[str, Tensor]] = field(init=False)
    said: list[list[Message]] = field(init=False)  # the last step's messages, by rank
    energies: list[float] = field(init=False)
    magnitude: float = 0.0  # the largest of any element so far: to send, left, or of any rank's sent part
    steps: int = 0

    def __post_init__(self) -> None:
        self.comms = Loopback.ranks(self.size, self.node_size)
        self.residuals = [None] * self.size
        self.warm = [
            self.compressor.init(self.layer, comm.world, torch.Generator().manual_seed(self.seed), {})
            for comm in self.comms
        ]

    def step(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """One conversation; the mean that each rank was given."""
        xs = [gradient.clone() for gradient in gradients]
        outs = xs if self.alias else [torch.full_like(x, torch.nan) for x in xs]
        pairs = list(zip(self.residuals, self.warm, strict=True))
        memories = [Memory(residual, dict(warm), take=dirty) for residual, warm in pairs]
        talks = [
            self.compressor.exchange(x, out, memory, comm.world)
            for x, out, memory, comm in zip(xs, outs, memories, self.comms, strict=True)
        ]
        self.said = [[] for _ in talks]
        rounds = len(self.compressor.legs(self.layer, self.comms[0].world))
        messages: list[Message | None] = [next(talk) for talk in talks]
        self._measure([x if r is None else x.view(-1) + r for x, (r, _) in zip(gradients, pairs, strict=True)])
        for turn in range(rounds):
            pending = []
            for log, message, comm in zip(self.said, messages, self.comms, strict=True):
                assert message is not None, f"{self.compressor} ended after {turn} rounds where its legs say {rounds}"
                log.append(Message(message.op, message.scope, message.data.clone()))
                pending.append(comm.start(message.op, message.scope, message.data, 0))
            replies = [packed(waiting.wait()) for waiting in pending]
            if turn == rounds - 1 and not self.compressor.lossless:
                self.residuals = [x.flatten().clone() for x in xs]
                self._measure(self.residuals)
            for rank, (talk, reply) in enumerate(zip(talks, replies, strict=True)):
                try:
                    messages[rank] = talk.send(reply)
                except StopIteration:
                    messages[rank] = None
        assert messages == [None] * self.size, f"{self.compressor} has more rounds than its legs say"
        self.warm = [memory.warm for memory in memories]
        self.energies = [memory.energy for memory in memories]
        self.steps += 1
        return outs

    def _measure(self, values: Sequence[Tensor | None]) -> None:
        for value in values:
            if value is not None and value.numel():
                self.magnitude = max(self.magnitude, float(value.abs().max()))

    def mean_residual(self) -> Tensor:
        """In double precision, of the layer's shape."""
        total = torch.zeros(self.layer.shape, dtype=torch.float64)
        for residual in self.residuals:
            if residual is not None:
                total += residual.view(self.layer.shape)
        return total / self.size

    def tolerance(self) -> float:
        """How far rounding alone may have carried an element from conservation.

        A step adds the residual, takes what is sent away from it, weighs it and adds it up over all ranks; a second
        encoding (a chain, a divided or a hierarchical route) does so again: at most 2 (ranks + 4) roundings, each of
        half a unit of a magnitude of at most left + sent, that is twice the largest. A low-rank product adds up `rank`
        terms of which each may be as large as a column's norm. Each addition in 16 bits rounds there, factors' too.
        """
        roundings, world = 2.0 * (self.size + 4), self.comms[0].world
        narrow = 0.0
        for leg in self.compressor.legs(self.layer, world):
            if leg.op is Op.SUM and leg.dtype.itemsize == 2:
                narrow += (len(world.members(leg.scope)) - 1) * torch.finfo(leg.dtype).eps / 2
        text = str(self.compressor)
        if "PowerSGD" in text:
            rank = int(re.search(r"rank=(\d+)", text)[1])  # type: ignore[index]
            rows = max([1, *self.layer.shape[:1]])
            longest = max(1, rows, self.layer.numel // rows)
            roundings *= (rank + 2) * longest**0.5
            narrow *= rank * longest**0.5
        return self.steps * self.magnitude * (2 * roundings * UNIT + narrow)


def gradients(layer: Layer, size: int, seed: int) -> list[Tensor]:
    """Every rank's gradient of one step: unequal scales, and some zeros, as layers have them."""
    rng = torch.Generator().manual_seed(seed)
    made = []
    for rank in range(size):
        values = torch.randn(layer.shape, generator=rng) * (1 + rank)
        made.append(values * (torch.rand(layer.shape, generator=rng) > 0.1))
    return made
