"""A conversation within a step: how it is opened, and how it ends once the step's verdict is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from laconic import kernels
from laconic.exchange import Compressor, Exchange, Memory, Message, Op
from laconic.layer import Layer
from laconic.runtime.buffers import Lease
from laconic.runtime.ledger import Account, Ledger
from laconic.runtime.packing import side_by_side
from laconic.world import World

SHORT = 1 << 16  # bytes


@dataclass(frozen=True)
class Segment:
    """Layers that hold one conversation: one layer, or several that are sent as they are."""

    layers: tuple[Layer, ...]
    compressor: Compressor
    keeps: bool  # leaves something unsent, or has something unsent from before
    rounds: int

    @cached_property
    def numel(self) -> int:
        return sum(layer.numel for layer in self.layers)


def short_together(segments: Sequence[Segment]) -> list[Segment]:
    """Short stretches of layers that are sent as they are, in one conversation: it costs more than to copy them."""
    made: list[Segment] = []
    place: dict[tuple[Compressor, torch.dtype], int] = {}
    for segment in segments:
        kind = (segment.compressor, segment.layers[0].dtype)
        if segment.keeps or sum(layer.nbytes for layer in segment.layers) > SHORT:
            made.append(segment)
        elif kind in place:
            before = made[place[kind]]
            made[place[kind]] = replace(before, layers=(*before.layers, *segment.layers))
        else:
            place[kind] = len(made)
            made.append(segment)
    return made


@dataclass
class Talk:
    """A segment's conversation in this step."""

    segment: Segment
    places: Sequence[Tensor]  # where the mean belongs: its layers' gradients, flat
    x: Tensor  # what the conversation works on: the gradient where it is float32, or a copy
    out: Tensor  # where it writes the mean: not x if it can end before the step's verdict
    memory: Memory
    exchange: Exchange
    account: Account | None
    message: Message | None = None  # what it says now
    reply: Tensor | None = None  # the last one, held until the step is known to be good
    round: int = 0
    sent: int = 0
    energies: tuple[float, float] | None = None


def open_talk(
    segment: Segment,
    slices: Mapping[str, Tensor],
    ledger: Ledger,
    lease: Lease,
    world: World,
    twins: Mapping[str, Tensor] | None = None,
) -> Talk:
    """Begin a segment's conversation: its first message is there when this returns.

    `twins`, where they are given, make the conversation end before the verdict: it works on a copy of the gradient, and
    the mean goes where it belongs; or, without a copy, into a buffer if the replies would take more than one.
    """
    account = None
    memory = Memory(take=lease.take, give=lease.drop)
    if segment.keeps:
        (layer,) = segment.layers
        gradient, account = slices[layer.name], ledger.accounts[layer.name]
        places: Sequence[Tensor] = (gradient,)
        memory.warm = dict(account.warm)
        if account.residual is not None:
            memory.residual = _as_float32(account.residual, lease)
        lossy = not segment.compressor.lossless
        twin = twins.get(layer.name) if twins is not None and lossy else None
        x = out = (_as_float32(gradient, lease) if twin is None else twin).view(layer.shape)
        if twin is not None:
            out = gradient.view(layer.shape)
        elif twins is not None and lossy:
            out = _elsewhere(x, segment, lease, world)
    else:
        places = [slices[layer.name] for layer in segment.layers]
        joined = side_by_side(places)
        x = out = torch.cat(places) if joined is None else joined
    talk = Talk(segment, places, x, out, memory, segment.compressor.exchange(x, out, memory, world), account)
    talk.message = next(talk.exchange)
    if memory.residual is not None:  # it is in x now
        lease.drop(memory.residual)
        memory.residual = None
    return talk


def _elsewhere(x: Tensor, segment: Segment, lease: Lease, world: World) -> Tensor:
    """Memory for the mean beside x; or x itself, where holding the last replies takes less."""
    (layer,) = segment.layers
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
        for place in talk.places:
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
    if talk.account is not None:
        lossless = talk.segment.compressor.lossless
        if observe and not lossless:
            talk.energies = (float(talk.memory.energy), float(kernels.of(talk.x).energy(talk.x.view(-1))))
        talk.account.settle(None if lossless else talk.x, talk.memory.warm, residual_dtype)
    last_word(talk)
    _deliver(talk)


def _deliver(talk: Talk) -> None:
    """The mean where it belongs."""
    if talk.out.data_ptr() != talk.places[0].data_ptr():
        parts = torch.split(talk.out.view(-1), [place.numel() for place in talk.places])
        for place, part in zip(talk.places, parts, strict=True):
            place.copy_(part)


def _end_on_device(talk: Talk, spoiled: Tensor, residual_dtype: torch.dtype) -> None:
    """The same without asking the device: both outcomes are computed, and one is chosen there.

    A leftover that a dense plan sends becomes zeros and is not let go, since here nobody knows whether it went. State
    on the host (seeds) moves on even in a bad step, on every rank alike.
    """
    account = talk.account
    if account is not None:
        x = talk.x.view(-1)
        left = torch.zeros_like(x) if talk.segment.compressor.lossless else x
        old = torch.zeros_like(x) if account.residual is None else account.residual.to(x.dtype)
        account.settle(torch.where(spoiled, old, left), account.warm, residual_dtype)
    last_word(talk)
    if account is not None:
        before = account.warm
        account.warm = {
            key: torch.where(spoiled, before[key], value)
            if key in before and value.device == spoiled.device and value.shape == before[key].shape
            else value
            for key, value in talk.memory.warm.items()
        }
    if talk.segment.keeps:
        talk.out.masked_fill_(spoiled, torch.nan)
    _deliver(talk)
