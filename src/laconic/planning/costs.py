"""What arithmetic costs: which work an expression does between its rounds, and how long a device takes for it.

Measured lines win. Without them a documented model answers: launches and passes over memory, the way kernels of this
kind behave, good to a factor of two and meant for what-if.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from laconic.compressors.adacomp import AdaComp
from laconic.compressors.by_machine import ByMachine
from laconic.compressors.cast import Cast
from laconic.compressors.codec import Codec
from laconic.compressors.dense import Dense
from laconic.compressors.powersgd import PowerSGD
from laconic.compressors.quantize import Quantize
from laconic.compressors.routes import Divided, Hierarchical, OnCpu
from laconic.compressors.sparse import Chain, Sparsifier
from laconic.compressors.topk import TopK
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor, Leg
from laconic.layer import Layer
from laconic.planning.link import Line
from laconic.world import World


@dataclass(frozen=True)
class Device:
    """The model of a device: bytes a second that a pass over memory reaches, and seconds a launch takes."""

    memory: float
    launch: float
    copy: float = 0.0  # bytes a second to and from the host; 0 for the host itself


DEVICES = {
    "v100": Device(750e9, 8e-6, 11e9),
    "a100": Device(1.3e12, 7e-6, 22e9),
    "h100": Device(2.8e12, 6e-6, 45e9),
    "cpu": Device(12e9, 4e-6),
}

# Passes over a layer's elements (4 bytes each) that one encoding makes, residual and leftover included.
_PASSES: dict[type[Compressor], float] = {Cast: 4, Quantize: 5, TopK: 16, AdaComp: 8}
_OTHER_PASSES = 6.0
_SPARSE_ACCESS = 8.0  # an element written at a place of its own moves a whole sector


@dataclass(frozen=True)
class Kernel:
    """Measured: seconds to encode `n` elements and to decode one payload of `n` elements, as lines over n."""

    encode: Line
    decode: Line


Kernels = Mapping[tuple[str, str], Kernel]  # (expression of the core compressor, device)


@dataclass(frozen=True)
class Work:
    """Arithmetic between two rounds: decode `decode` payloads of `each` elements, then encode `encode` elements."""

    core: Compressor
    encode: int = 0
    decode: int = 0
    each: int = 0
    decoder: Compressor | None = None  # where what came was not encoded by `core`
    on_host: bool = False
    copied: int = 0  # bytes to the host and back


NOTHING = Work(Dense())
Step = Work | Leg


@lru_cache(maxsize=1 << 15)  # a sweep over rates asks for the same ones again and again
def steps(compressor: Compressor, layer: Layer, world: World) -> tuple[Step, ...]:
    """Work and rounds in turn: work, leg, work, ..., leg, work."""
    legs, works = compressor.legs(layer, world), _work(compressor, layer, world)
    return tuple(step for pair in zip(works, (*legs, None), strict=True) for step in pair if step)


def _work(compressor: Compressor, layer: Layer, world: World) -> list[Work]:
    numel, size = layer.numel, world.size
    match compressor:
        case OnCpu(compressor=inner):
            works = _work(inner, layer, world)
            legs = inner.legs(layer, world)
            moved = [layer.nbytes, *(leg.numel * leg.dtype.itemsize for leg in legs)]
            return [
                replace(work, on_host=True, copied=nbytes) if work != NOTHING else work
                for work, nbytes in zip(works, moved, strict=True)
            ]
        case Hierarchical(inner=inner, outer=outer):
            inside, across = world.inside(), world.across()
            shard = Layer(layer.name, (-(-numel // inside.size),))
            first, *between, last = _work(outer, shard, across)
            if isinstance(inner, Codec):
                opening = Work(inner, encode=numel)
                received = Work(inner, decode=inside.size, each=shard.numel)
            else:
                opening, received = NOTHING, NOTHING
            joined = Work(first.core, first.encode, received.decode, received.each, received.core)
            return [opening, joined, *between, last, NOTHING]
        case Divided(codec=codec):
            shard_numel = -(-numel // size)
            return [
                Work(codec, encode=numel),
                Work(codec, encode=shard_numel, decode=size, each=shard_numel),
                Work(codec, decode=size, each=shard_numel),
            ]
        case Dense():
            return [NOTHING, NOTHING]
        case Cast():
            return [Work(compressor, encode=numel), Work(compressor, decode=1, each=numel)]
        case Codec():
            return [Work(compressor, encode=numel), Work(compressor, decode=size, each=numel)]
        case (
            PowerSGD() | ByMachine()
        ):  # before, between and after its two sums, of one leg or more, it reads the layer once
            rounds = len(compressor.legs(layer, world))
            return [NOTHING if part % (rounds // 2) else Work(compressor, encode=numel) for part in range(rounds + 1)]
        case _:  # every part reads the layer once
            return [Work(compressor, encode=numel) for _ in range(len(compressor.legs(layer, world)) + 1)]


@dataclass(frozen=True)
class Arithmetic:
    """Prices work on one machine: its device, its host, and what was measured there.

    >>> round(Arithmetic("v100").seconds(Work(Quantize(), encode=1 << 20)) * 1e6)
    44
    """

    device: str = "v100"
    kernels: Kernels | None = None

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise InvalidConfig("device", self.device, f"choose one of {', '.join(DEVICES)}")

    def seconds(self, work: Work) -> float:
        """How long a piece of work takes where it is done."""
        where = "cpu" if work.on_host else self.device
        total = 0.0
        if work.encode:
            measured = self._measured(work.core, where)
            total += measured.encode.seconds(work.encode) if measured else _encode(work, DEVICES[where])
        if work.decode:
            decoder = work.decoder or work.core
            measured = self._measured(decoder, where)
            one = measured.decode.seconds(work.each) if measured else _decode(decoder, work.each, DEVICES[where])
            total += work.decode * one
        copy = DEVICES[self.device].copy
        return total + (work.copied / copy if work.on_host and copy else 0.0)

    def _measured(self, core: Compressor, where: str) -> Kernel | None:
        return self.kernels.get((str(core), where)) if self.kernels else None


def _encode(work: Work, device: Device) -> float:
    core = work.core.sparsifier if isinstance(work.core, Chain) else work.core
    passes = _PASSES.get(type(core), _OTHER_PASSES)
    launches = 8 if isinstance(core, Sparsifier) else 2
    return launches * device.launch + passes * 4 * work.encode / device.memory


def _decode(decoder: Compressor, numel: int, device: Device) -> float:
    """One payload: what it holds is read, and what it touches is read and written."""
    assert isinstance(decoder, Codec)
    held = decoder.nbytes(numel)
    sparse = isinstance(decoder, (Sparsifier, Chain))
    touched = held * _SPARSE_ACCESS if sparse else held + 8 * numel
    return (2 if sparse else 1) * device.launch + touched / device.memory
