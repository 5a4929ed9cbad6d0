"""Routes are wrappers: how a compressor's messages travel is written around it.

No route keeps a leftover of its own. What a second encoding could not carry goes straight back into x on the rank that
encoded it, so a change of plan loses nothing and a route has nothing to checkpoint.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from laconic.compressors.codec import Codec
from laconic.compressors.dense import Dense
from laconic.compressors.fold import fold
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor, Exchange, Leg, Memory, Message, Op
from laconic.layer import Layer
from laconic.world import World


def shards(numel: int, length: int, count: int) -> list[slice]:
    """`count` stretches of `length` elements, of which the last ones may be short or empty."""
    return [slice(min(numel, i * length), min(numel, (i + 1) * length)) for i in range(count)]


def _encode_shards(codec: Codec, x: Tensor, length: int, memory: Memory, world: World, salt: int) -> Tensor:
    """A payload for every rank's shard of x, one to a row. `salt` keeps the noise of different ranks apart."""
    width = codec.nbytes(length)
    payloads = memory.take(world.size * width, torch.uint8, x.device).view(world.size, width).zero_()
    memory.energy = 0.0
    for row, cut in zip(payloads, shards(x.numel(), length, world.size), strict=True):
        seed = memory.draw(salt) if codec.random else 0
        residual = None if memory.residual is None else memory.residual[cut]
        memory.energy += codec.encode(x[cut], row[: codec.nbytes(cut.stop - cut.start)], residual, seed)
    return payloads


def _decode_sum(codec: Codec, payloads: Tensor, out: Tensor) -> Tensor:
    """The sum over everyone's payload of one shard."""
    out.zero_()
    for row in payloads:
        codec.decode(row[: codec.nbytes(out.numel())], out, 1.0)
    return out


class Route(Compressor):
    """A wrapper: what is asked of a compressor is answered by the one inside."""

    @property
    @abstractmethod
    def core(self) -> Compressor:
        """The compressor whose degree matters."""

    @abstractmethod
    def around(self, core: Compressor) -> Self:
        """The same route around another."""

    @property
    def random(self) -> bool:
        return self.core.random

    def for_layer(self, layer: Layer) -> Compressor:
        return self.around(self.core.for_layer(layer))

    def unsuited(self, layer: Layer) -> str | None:
        return self.core.unsuited(layer)

    def ladder(self, layer: Layer, low: float = 0.25, high: float = 4.0) -> Sequence[Compressor]:
        return tuple(self.around(rung) for rung in self.core.ladder(layer, low, high))

    def error(self, x: Tensor) -> float:
        return self.core.error(x)

    def errors(self, x: Tensor, ladder: Sequence[Compressor]) -> Tensor:
        return self.core.errors(x, [rung.core if isinstance(rung, Route) else rung for rung in ladder])


def core_of(option: Compressor) -> Compressor:
    """The compressor without its routes."""
    return core_of(option.core) if isinstance(option, Route) else option


@dataclass(frozen=True)
class Divided(Route):
    """Two rounds: encoded shards to their owners, who add them up, encode the sum and share it.

    Everyone receives 2 (S-1)/S encodings in place of S-1, and decodes two in place of S.
    """

    codec: Codec

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise InvalidConfig("codec", self.codec, "divide a one-shot compressor, such as Quantize, TopK or Cast")

    @property
    def core(self) -> Codec:
        return self.codec

    def around(self, core: Compressor) -> "Divided":
        assert isinstance(core, Codec)
        return Divided(core)

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        width = self.codec.nbytes(-(-layer.numel // world.size))
        return (
            Leg(Op.SCATTER, world.scope, torch.uint8, world.size * width),
            Leg(Op.GATHER, world.scope, torch.uint8, width),
        )

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        codec, flat = self.codec, x.view(-1)
        length = -(-flat.numel() // world.size)
        cuts = shards(flat.numel(), length, world.size)
        mine = cuts[world.rank]
        received = yield Message(
            Op.SCATTER, world.scope, _encode_shards(codec, flat, length, memory, world, world.rank)
        )
        total = memory.take(mine.stop - mine.start, torch.float32, x.device)
        payload = memory.take(codec.nbytes(length), torch.uint8, x.device).zero_()
        seed = memory.draw(world.rank) if codec.random else 0
        width = codec.nbytes(total.numel())
        codec.recode(received[:, :width], total, payload[:width], seed)
        flat[mine] += total
        memory.give(total)
        everyone = yield Message(Op.GATHER, world.scope, payload)
        out.zero_()
        for row, cut in zip(everyone, cuts, strict=True):
            codec.decode(row[: codec.nbytes(cut.stop - cut.start)], out.view(-1)[cut], 1 / world.size)


@dataclass(frozen=True)
class Hierarchical(Route):
    """Inside the machine first: reduce-scatter by `inner`, then each rank takes its shard across by `outer`, then
    an all-gather inside. `inner` is Dense or a one-shot compressor; shards are whole rows, so that `outer` may be
    PowerSGD.
    """

    inner: Compressor
    outer: Compressor

    def __post_init__(self) -> None:
        if not isinstance(self.inner, (Dense, Codec)):
            raise InvalidConfig("inner", self.inner, "use Dense or a one-shot compressor inside the machine")
        if not isinstance(self.outer, Compressor) or isinstance(self.outer, Hierarchical):
            raise InvalidConfig("outer", self.outer, "use a compressor that is not hierarchical itself")

    @property
    def core(self) -> Compressor:
        return self.outer

    def around(self, core: Compressor) -> "Hierarchical":
        return Hierarchical(self.inner, core)

    @property
    def random(self) -> bool:
        return self.inner.random or self.outer.random

    def _shard(self, layer: Layer, size: int) -> Layer:
        """The layer that one rank of a machine takes across: an equal share of the rows, padded."""
        rows, rest = (layer.shape[0], layer.shape[1:]) if layer.shape else (1, ())
        return replace(layer, shape=(-(-rows // size), *rest), dtype=torch.float32)

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        inside, across = world.inside(), world.across()
        shard = self._shard(layer, inside.size)
        if isinstance(self.inner, Codec):
            first = inside.size * self.inner.nbytes(shard.numel)
            opening = Leg(Op.SCATTER, inside.scope, torch.uint8, first)
        else:
            opening = Leg(Op.SCATTER, inside.scope, torch.float32, inside.size * shard.numel)
        closing = Leg(Op.GATHER, inside.scope, torch.float32, shard.numel)
        return (opening, *self.outer.legs(shard, across), closing)

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        shard = self._shard(layer, world.inside().size)
        return {**super().init(layer, world, rng, warm), **self.outer.init(shard, world.across(), rng, warm)}

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        inside, across, flat = world.inside(), world.across(), x.view(-1)
        shard = self._shard(Layer("", tuple(x.shape)), inside.size)
        size, numel = shard.numel, flat.numel()
        cut = shards(numel, size, inside.size)[inside.rank]
        total = memory.take(size, torch.float32, x.device).zero_()
        if isinstance(self.inner, Codec):
            payloads = _encode_shards(self.inner, flat, size, memory, inside, world.rank)
            received = yield Message(Op.SCATTER, inside.scope, payloads)
            _decode_sum(self.inner, received, total[: cut.stop - cut.start])
        else:
            fold(x, memory)
            rows = memory.take(inside.size * size, torch.float32, x.device).zero_()
            rows[:numel] = flat
            flat.zero_()
            received = yield Message(Op.SCATTER, inside.scope, rows.view(inside.size, size))
            torch.sum(received, 0, out=total)
        mean = memory.take(size, torch.float32, x.device)
        outer = Memory(None, memory.warm, take=memory.take, give=memory.give)
        yield from self.outer.exchange(total.view(shard.shape), mean.view(shard.shape), outer, across)
        if not self.outer.lossless:
            flat[cut] += total[: cut.stop - cut.start]
        memory.give(total)
        mean /= inside.size
        everyone = yield Message(Op.GATHER, inside.scope, mean)
        out.view(-1).copy_(everyone.reshape(-1)[:numel])

    def for_layer(self, layer: Layer) -> "Hierarchical":
        return Hierarchical(self.inner.for_layer(layer), self.outer.for_layer(layer))


@dataclass(frozen=True)
class OnCpu(Route):
    """The arithmetic on the host: for devices that are busy, or that the kernels do not know. On the CPU, no change."""

    compressor: Compressor

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, Compressor):
            raise InvalidConfig("compressor", self.compressor, "wrap a compressor")

    @property
    def core(self) -> Compressor:
        return self.compressor

    def around(self, core: Compressor) -> "OnCpu":
        return OnCpu(core)

    @property
    def lossless(self) -> bool:
        return self.compressor.lossless

    def legs(self, layer: Layer, world: World) -> tuple[Leg, ...]:
        return self.compressor.legs(layer, world)

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.compressor.init(layer, world, rng, warm)

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        if x.device.type == "cpu":
            yield from self.compressor.exchange(x, out, memory, world)
            return
        host, mean = x.cpu(), torch.empty(out.shape, dtype=out.dtype)
        residual = None if memory.residual is None else memory.residual.cpu()
        inner = Memory(residual, memory.warm, take=memory.take, give=memory.give)
        talk = self.compressor.exchange(host, mean, inner, world)
        reply = None
        try:
            while True:
                message = talk.send(reply) if reply is not None else next(talk)
                memory.energy = inner.energy
                x.copy_(host)
                reply = (yield replace(message, data=message.data.to(x.device))).cpu()
        except StopIteration:
            out.copy_(mean)

    def contraction(self, numel: int) -> float | None:
        return self.compressor.contraction(numel)
