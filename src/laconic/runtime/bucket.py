"""A bucket's step: its layers' conversations, opened together, moved round by round, and ended together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter

import torch
from torch import Tensor
from torch.profiler import record_function

from laconic import kernels
from laconic.comm.protocol import Comm, Pending
from laconic.errors import ExchangeFailed
from laconic.exchange import Compressor, Exchange, Memory, Message, wire_bytes
from laconic.layer import Layer
from laconic.runtime.buffers import Lease
from laconic.runtime.ledger import Account, Ledger
from laconic.runtime.packing import Parcel, parcels, side_by_side
from laconic.runtime.rider import Rider
from laconic.world import Scope


@dataclass(frozen=True)
class Segment:
    """Layers that hold one conversation: one layer, or neighbours that are sent as they are."""

    layers: tuple[Layer, ...]
    compressor: Compressor
    keeps: bool  # leaves something unsent, or has something unsent from before
    rounds: int


@dataclass
class Talk:
    """A segment's conversation in this step."""

    segment: Segment
    gradient: Tensor  # where the mean belongs
    x: Tensor  # what the conversation works on: the gradient itself where it is float32
    memory: Memory
    exchange: Exchange
    account: Account | None
    message: Message | None = None  # what it says now
    reply: Tensor | None = None  # the last one, held until the step is known to be good
    round: int = 0
    sent: int = 0
    energies: tuple[float, float] | None = None


@dataclass
class Tally:
    """What a bucket did, for the observer."""

    label: str
    wire_bytes: int = 0  # all that this rank sent, riders included
    wire: list[tuple[Segment, int]] = field(default_factory=list)
    energies: dict[str, tuple[float, float]] = field(default_factory=dict)
    compress_s: float = 0.0
    communicate_s: float = 0.0
    spans: list[tuple[str, float, float]] = field(default_factory=list)


@dataclass
class Fault:
    """The engine's first failure. From then on no collective is started: it would meet the others' in another order."""

    error: ExchangeFailed | None = None


class Bucket:
    """One bucket in one step; `advance` is called for each stage in turn (see rounds.py)."""

    def __init__(
        self,
        label: str,
        segments: Sequence[Segment],
        slices: Mapping[str, Tensor],
        rounds: int,
        comm: Comm,
        ledger: Ledger,
        lease: Lease,
        riding: Sequence[float],
        fault: Fault,
        ended: Callable[["Bucket"], None],
    ) -> None:
        self.label, self.segments, self.rounds = label, segments, rounds
        self.talks: list[Talk] = []
        self.error: ExchangeFailed | None = None
        self.tally = Tally(label.rpartition(", ")[2])
        self.lease = lease
        self._slices, self._comm, self._ledger = slices, comm, ledger
        self._riding, self._fault, self._ended = riding, fault, ended
        self._rider: Rider | None = None
        self._under_way: list[tuple[Parcel, Pending, float]] = []

    @property
    def spoiled(self) -> float | Tensor:
        """Whether any rank saw a non-finite value, as a number that is 0 if none did."""
        if self._rider is None:
            return 0.0
        flag = self._rider.values[0]
        return float(flag) if flag.device.type == "cpu" else flag

    @property
    def shared(self) -> list[float]:
        """Last step's energies that rode along, summed over all ranks."""
        return [] if self._rider is None else self._rider.values[1:].tolist()

    def advance(self, stage: int) -> None:
        self.error = self.error or self._fault.error
        if self.error is None:
            phase = "opening"
            try:
                with record_function(f"laconic::{self.label} stage {stage}"):
                    if stage:
                        phase = f"waiting for round {stage - 1}"
                        self._receive()
                        phase = f"after round {stage - 1}"
                    if stage < self.rounds:
                        self._send(stage)
            except Exception as error:
                self.error = ExchangeFailed(f"{self.label}, {phase}: {type(error).__name__}: {error}")
                self.error.__cause__ = error
                self._fault.error = self._fault.error or self.error
        if stage == self.rounds:
            self._ended(self)

    def _open(self, segment: Segment) -> Talk:
        """Begin a segment's conversation: its first message is there when this returns."""
        world, take = self._comm.world, self.lease.take
        if not segment.keeps:
            gradient = side_by_side([self._slices[layer.name] for layer in segment.layers])
            assert gradient is not None
            memory = Memory(take=take)
            talk = Talk(
                segment,
                gradient,
                gradient,
                memory,
                segment.compressor.exchange(gradient, gradient, memory, world),
                None,
            )
        else:
            (layer,) = segment.layers
            gradient, account = self._slices[layer.name], self._ledger.accounts[layer.name]
            x, residual = _as_float32(gradient, self.lease), account.residual
            memory = Memory(
                None if residual is None else _as_float32(residual, self.lease), dict(account.warm), take=take
            )
            x = x.view(layer.shape)
            talk = Talk(segment, gradient, x, memory, segment.compressor.exchange(x, x, memory, world), account)
        talk.message = next(talk.exchange)
        if memory.residual is not None:  # it is in x now
            self.lease.drop(memory.residual)
            memory.residual = None
        return talk

    def _send(self, stage: int) -> None:
        began = perf_counter()
        if stage == 0:
            self.talks = [self._open(segment) for segment in self.segments]
        for talk in self.talks:
            talk.round = stage + 1
        sizes = {scope: len(self._comm.world.members(scope)) for scope in Scope}
        said = [(talk, talk.message) for talk in self.talks if talk.message is not None]
        for talk, message in said:
            talk.sent += wire_bytes(message.op, message.data.nbytes, sizes[message.scope])
        made = parcels([message for _, message in said], sizes)
        if stage == 0 and any(talk.segment.keeps for talk in self.talks):
            flag = _spoiled([talk.memory.energy for talk in self.talks])
            self._rider = Rider([flag, *self._riding], self.talks[0].x.device)
        if self._rider is not None:
            self._rider.board(made)
        for parcel in made:
            parcel.pack(self.lease)
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append(("encode" if stage == 0 else f"between rounds {stage - 1} and {stage}", began, now))
        for parcel in made:
            self.tally.wire_bytes += wire_bytes(parcel.op, parcel.data.nbytes, parcel.size)
            pending = self._comm.start(parcel.op, parcel.scope, parcel.data, stage, parcel.result)
            self._under_way.append((parcel, pending, perf_counter()))

    def _receive(self) -> None:
        answers: dict[int, Tensor] = {}
        for parcel, pending, began in self._under_way:
            result = pending.wait()
            now = perf_counter()
            self.tally.communicate_s += now - began
            self.tally.spans.append((f"{parcel.op.value} {parcel.scope.value}", began, now))
            replies = parcel.replies(result, self.lease)
            if self._rider is not None:
                self._rider.alight(parcel, replies)
            answers.update({id(message): reply for message, reply in zip(parcel.messages, replies, strict=False)})
        self._under_way.clear()
        began = perf_counter()
        for talk in self.talks:
            if talk.message is None:
                continue
            reply = answers[id(talk.message)]
            talk.message = None
            if talk.round == talk.segment.rounds:
                talk.reply = reply
            else:
                talk.message = talk.exchange.send(reply)
        self.tally.compress_s += perf_counter() - began

    def finish(self, spoiled: float | Tensor, observe: bool, residual_dtype: torch.dtype) -> None:
        """End every conversation: the mean where it belongs and the leftover in the ledger; or, spoiled, neither."""
        began = perf_counter()
        for talk in self.talks:
            if isinstance(spoiled, Tensor):
                _end_on_device(talk, spoiled > 0, residual_dtype)
            elif spoiled and talk.segment.keeps:
                talk.exchange.close()
                talk.gradient.fill_(torch.nan)
            else:
                _end(talk, observe, residual_dtype)
            if talk.energies is not None:
                self.tally.energies[talk.segment.layers[0].name] = talk.energies
            self.tally.wire.append((talk.segment, talk.sent))
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append(("decode", began, now))
        self.lease.release()


def _as_float32(tensor: Tensor, lease: Lease) -> Tensor:
    """The tensor itself, or a copy of a kind that kernels know."""
    if tensor.dtype is torch.float32:
        return tensor
    return lease.take(tensor.numel(), torch.float32, tensor.device).copy_(tensor)


def _spoiled(energies: Sequence[float | Tensor]) -> float | Tensor:
    if all(isinstance(energy, float) for energy in energies):
        return float(not all(isfinite(energy) for energy in energies))
    return (~torch.isfinite(torch.stack([torch.as_tensor(energy) for energy in energies]))).any().float()


def _last_word(talk: Talk) -> None:
    """Hand over the last reply; the conversation writes the mean and ends."""
    assert talk.reply is not None
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
            talk.energies = (float(talk.memory.energy), kernels.of(talk.x).energy(talk.x.view(-1)))
        talk.account.settle(None if lossless else talk.x, talk.memory.warm, residual_dtype)
    _last_word(talk)
    if talk.x.data_ptr() != talk.gradient.data_ptr():
        talk.gradient.copy_(talk.x.view(-1))


def _end_on_device(talk: Talk, spoiled: Tensor, residual_dtype: torch.dtype) -> None:
    """The same without asking the device: both outcomes are computed, and one is chosen there."""
    if talk.account is not None:
        account, before, warm = talk.account, talk.account.residual, talk.account.warm
        old = torch.zeros_like(talk.x.view(-1)) if before is None else before
        left = None if talk.segment.compressor.lossless else torch.where(spoiled, old, talk.x.view(-1))
        kept = {
            key: torch.where(spoiled, warm[key], value) if key in warm and value.is_cuda else value
            for key, value in talk.memory.warm.items()
        }
        account.settle(left, kept, residual_dtype)
    _last_word(talk)
    if talk.segment.keeps:
        talk.x.masked_fill_(spoiled, torch.nan)
    if talk.x.data_ptr() != talk.gradient.data_ptr():
        talk.gradient.copy_(talk.x.view(-1))
