"""A conversation within a step: how it is opened, and how it ends once the step's verdict is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from laconic import kernels
from laconic.exchange import Choral, Compressor, Exchange, Memory, Message, Op, Voice
from laconic.layer import Layer
from laconic.runtime.buffers import Lease
from laconic.runtime.ledger import Account, Ledger
from laconic.runtime.packing import side_by_side
from laconic.world import World

SHORT = 1 << 16  # bytes


@dataclass(frozen=True)
class Segment:
    """Layers that hold one conversation: one layer, several by one compressor, or several that are sent as they are."""

    layers: tuple[Layer, ...]
    compressor: Compressor
    keeps: bool  # leaves something unsent, or has something unsent from before
    rounds: int
    weights: tuple[int, ...]  # of what is said, each layer's share

    @classmethod
    def of(cls, layer: Layer, compressor: Compressor, keeps: bool, world: World) -> "Segment":
        """A conversation of its own."""
        rounds = len(compressor.legs(layer, world))
        weight = compressor.wire_bytes(layer, world) if keeps else layer.numel
        return cls((layer,), compressor, keeps, rounds, (weight,))

    def joined(self, other: "Segment") -> "Segment":
        """Both in one conversation."""
        return replace(self, layers=(*self.layers, *other.layers), weights=(*self.weights, *other.weights))

    @property
    def choral(self) -> bool:
        """Whether others may join that leave something unsent."""
        return self.keeps and isinstance(self.compressor, Choral) and self.compressor.joins

    @property
    def short(self) -> bool:
        return sum(layer.nbytes for layer in self.layers) <= SHORT


def in_few(segments: Sequence[Segment]) -> list[Segment]:
    """The same layers in fewer conversations, each of which costs Python more than its arithmetic costs the kernels.

    Layers of one compressor hold one, where it can; and so do short stretches that are sent as they are: they are
    copied together."""
    made: list[Segment] = []
    place: dict[tuple[Compressor, torch.dtype | None, int], int] = {}
    for segment in segments:
        if not segment.choral and (segment.keeps or not segment.short):
            made.append(segment)
            continue
        kind = (segment.compressor, None if segment.keeps else segment.layers[0].dtype, segment.rounds)
        if kind in place:
            made[place[kind]] = made[place[kind]].joined(segment)
        else:
            place[kind] = len(made)
            made.append(segment)
    return made


# By a layer's name a copy of its gradient, contiguous and float32, that nobody reads any more. Work is done there, and
# what is left waits there, so that the mean can be written at once.
Twins = Callable[[str], Tensor | None]


@dataclass(slots=True)
class Part:
    """A layer in a conversation; of layers that are sent as they are, all of them."""

    places: Sequence[Tensor]  # where the mean belongs: gradients, flat
    voice: Voice  # x is the gradient where it is float32, or a copy; out is not x if it can end before the verdict
    account: Account | None = None
    twin: Tensor | None = None  # whose memory x is

    @property
    def early(self) -> bool:
        """Whether the mean is written beside what is left over."""
        return self.voice.out is not self.voice.x


@dataclass
class Talk:
    """A segment's conversation in this step."""

    segment: Segment
    parts: list[Part]
    exchange: Exchange
    message: Message | None = None  # what is said now
    reply: Tensor | None = None  # the last one, held until the step is known to be good
    round: int = 0
    sent: int = 0
    energies: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def early(self) -> bool:
        """Whether it can end before the step's verdict."""
        return all(part.early for part in self.parts)


def open_talk(
    segment: Segment,
    slices: Mapping[str, Tensor],
    ledger: Ledger,
    lease: Lease,
    world: World,
    twins: Twins | None = None,
) -> Talk:
    """Begin a segment's conversation: its first message is there when this returns.

    With `twins` the conversation can end before the verdict: it works on a copy of the gradient, and the mean goes
    where it belongs; or, without a copy, into a buffer if the replies would take more than one.
    """
    if segment.keeps:
        parts = [_part(layer, segment, slices, ledger, lease, world, twins) for layer in segment.layers]
    else:
        parts = [_as_they_are([slices[layer.name] for layer in segment.layers])]
    voices, compressor = [part.voice for part in parts], segment.compressor
    if len(voices) > 1:
        assert isinstance(compressor, Choral)
        exchange = compressor.chorus(voices, world)
    else:
        exchange = compressor.exchange(voices[0].x, voices[0].out, voices[0].memory, world)
    talk = Talk(segment, parts, exchange)
    talk.message = next(exchange)
    for voice in voices:
        if voice.memory.residual is not None:  # it is in x now
            lease.drop(voice.memory.residual)
            voice.memory.residual = None
    return talk


def _as_they_are(places: Sequence[Tensor]) -> Part:
    x = side_by_side(places)
    if x is None:
        x = places[0].new_empty(sum(place.numel() for place in places))  # not lent: a message is given back when packed
        kernels.together(x).lay(places, x)
    return Part(places, Voice(x, x, Memory()))


def _part(
    layer: Layer,
    segment: Segment,
    slices: Mapping[str, Tensor],
    ledger: Ledger,
    lease: Lease,
    world: World,
    twins: Twins | None,
) -> Part:
    gradient, account = slices[layer.name], ledger.accounts[layer.name]
    memory = Memory(warm=dict(account.warm), take=lease.take, give=lease.drop)
    if account.residual is not None:
        memory.residual = _as_float32(account.residual, lease)
    lossy = not segment.compressor.lossless
    twin = twins(layer.name) if twins is not None and lossy else None
    if twin is not None:
        return Part((gradient,), Voice(twin.view(layer.shape), gradient.view(layer.shape), memory), account, twin)
    x = out = _as_float32(gradient, lease).view(layer.shape)
    if twins is not None and lossy:
        out = _elsewhere(x, layer, segment, lease, world)
    return Part((gradient,), Voice(x, out, memory), account)


def _elsewhere(x: Tensor, layer: Layer, segment: Segment, lease: Lease, world: World) -> Tensor:
    """Memory for the mean beside x; or x itself, where holding the last replies takes less."""
    last = segment.compressor.legs(layer, world)[-1]
    copies = world.sizes[last.scope] if last.op is Op.GATHER else 1
    if copies * last.numel * last.dtype.itemsize <= x.nbytes:
        return x
    return lease.take(x.numel(), x.dtype, x.device).view(layer.shape)


def _as_float32(tensor: Tensor, lease: Lease) -> Tensor:
    """The tensor itself, or a copy of a kind that kernels know."""
    if tensor.dtype is torch.float32:
        return tensor
    return lease.take(tensor.numel(), torch.float32, tensor.device).copy_(tensor)


def end_talk(talk: Talk, spoiled: float | Tensor, observe: bool, residual_dtype: torch.dtype) -> None:
    """The mean where it belongs and the leftover in the ledger; or, in a spoiled step, neither."""
    if isinstance(spoiled, Tensor):
        _end_on_device(talk, spoiled > 0, residual_dtype)
    elif spoiled and talk.segment.keeps:
        talk.exchange.close()
        for part in talk.parts:
            for place in part.places:
                place.fill_(torch.nan)
    else:
        _end(talk, observe, residual_dtype)


def last_word(talk: Talk) -> None:
    """Hand over the last reply, if that has not been done; the conversation writes the mean and ends."""
    if talk.reply is None:
        return
    try:
        talk.exchange.send(talk.reply)
    except StopIteration:
        talk.reply = None
        return
    raise AssertionError(f"{talk.segment.compressor} has more rounds than its legs say")


def _end(talk: Talk, observe: bool, residual_dtype: torch.dtype) -> None:
    lossless = talk.segment.compressor.lossless
    for part in talk.parts:
        if part.account is not None:
            x, memory = part.voice.x, part.voice.memory
            if observe and not lossless:
                left = float(kernels.of(x).energy(x.view(-1)))
                talk.energies[part.account.layer.name] = (float(memory.energy), left)
            lender = part.twin if talk.reply is None and part.twin is not None and sole(part.twin, 3) else None
            part.account.settle(None if lossless else x, memory.warm, residual_dtype, lender)
    last_word(talk)
    _deliver(talk)


def sole(twin: Tensor, known: int) -> bool:
    """Whether nobody else refers to a twin's memory, now that its conversation is over: of those that do, we know the
    twin, ourselves, and x where it is a view of it."""
    count = getattr(torch._C, "_storage_Use_Count", None)  # not promised by torch: without it, there is a copy
    if count is None or not twin.is_cpu:  # on a device, a graph that was captured may know the address
        return False
    memory = twin.untyped_storage()
    return bool(memory.nbytes() == twin.nbytes and count(memory._cdata) == known)


def _deliver(talk: Talk) -> None:
    """The mean where it belongs."""
    for part in talk.parts:
        out, places = part.voice.out, part.places
        if out.data_ptr() != places[0].data_ptr():
            if out.dtype is places[0].dtype:
                kernels.together(out).spread(out.view(-1), places)
            else:
                places[0].copy_(out.view(-1))


def _end_on_device(talk: Talk, spoiled: Tensor, residual_dtype: torch.dtype) -> None:
    """The same without asking the device: both outcomes are computed, and one is chosen there.

    A leftover that a dense plan sends becomes zeros and is not let go, since here nobody knows whether it went. State
    on the host (seeds) moves on even in a bad step, on every rank alike.
    """
    for part in talk.parts:
        if part.account is not None:
            x, account = part.voice.x.view(-1), part.account
            left = torch.zeros_like(x) if talk.segment.compressor.lossless else x
            old = torch.zeros_like(x) if account.residual is None else account.residual.to(x.dtype)
            account.settle(torch.where(spoiled, old, left), account.warm, residual_dtype)
    last_word(talk)
    for part in talk.parts:
        if part.account is not None:
            before = part.account.warm
            part.account.warm = {
                key: torch.where(spoiled, before[key], value)
                if key in before and value.device == spoiled.device and value.shape == before[key].shape
                else value
                for key, value in part.voice.memory.warm.items()
            }
        if talk.segment.keeps:
            part.voice.out.masked_fill_(spoiled, torch.nan)
    _deliver(talk)
