"""A bucket's step: its layers' conversations, opened together, moved round by round, and ended together."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter, thread_time

import torch
from torch import Tensor
from torch.profiler import record_function

from laconic.comm.protocol import Comm, Pending
from laconic.errors import ExchangeFailed
from laconic.exchange import wire_bytes
from laconic.runtime.buffers import Lease, Window
from laconic.runtime.ledger import Ledger
from laconic.runtime.packing import Parcel, parcels
from laconic.runtime.rider import Rider
from laconic.runtime.rounds import Word
from laconic.runtime.talk import Segment, Talk, Twins, end_talk, last_word, open_talk
from laconic.runtime.watch import Measurement, Watch, measure
from laconic.stats import Transfer
from laconic.world import Scope


@dataclass
class Tally:
    """What a bucket did, for the observer."""

    label: str
    arrivals: Sequence[tuple[tuple[str, ...], float]] = ()  # the buckets that it is made of, and when each was full
    transfers: list[Transfer] = field(default_factory=list)
    wire_bytes: int = 0  # all that this rank sent, riders included
    wire: list[tuple[Segment, int]] = field(default_factory=list)
    energies: dict[str, tuple[float, float]] = field(default_factory=dict)
    measured: dict[str, Measurement] = field(default_factory=dict)
    core_s: float = 0.0  # that laconic's threads took of a core
    compress_s: float = 0.0
    communicate_s: float = 0.0
    spans: list[tuple[str, float, float]] = field(default_factory=list)


@dataclass
class Fault:
    """The engine's first failure. From then on no collective is started: it would meet the others' in another order."""

    error: ExchangeFailed | None = None


class Bucket:
    """One bucket in one step, or several that travel together; `advance` is called for each stage in turn."""

    def __init__(
        self,
        label: str,
        segments: Sequence[Segment],
        slices: Mapping[str, Tensor],
        weight: int,
        arrivals: Sequence[tuple[tuple[str, ...], float]],
        twins: Twins | None,
        rounds: int,
        comm: Comm,
        ledger: Ledger,
        lease: Lease,
        window: Window,
        riding: Sequence[float],
        watching: Watch,
        fresh: bool,
        fault: Fault,
        ended: Callable[["Bucket"], Word],
    ) -> None:
        self.label, self.segments, self.rounds = label, segments, rounds
        self.talks: list[Talk] = []
        self.keeps = any(segment.keeps for segment in segments)  # something may stay unsent: a bad step has to undo it
        self.brief = not self.keeps and not watching
        self.error: ExchangeFailed | None = None
        self.tally = Tally(label.rpartition(", ")[2], arrivals)
        self.lease, self._window = lease, window
        self._weight = weight if self.keeps else 0  # bytes
        self._slices, self._twins, self._comm, self._ledger = slices, twins, comm, ledger
        self._riding, self._watching, self._fresh, self._fault, self._ended = riding, watching, fresh, fault, ended
        self._rider: Rider | None = None
        self._under_way: list[tuple[Parcel, Pending, float]] = []
        self._results: list[tuple[Tensor, list[Talk]]] = []  # what was received, and whose last reply is in it

    @property
    def spoiled(self) -> float | Tensor:
        """Whether any rank saw a non-finite value, as a number that is 0 if none did."""
        if self._rider is None:
            return 0.0
        return self._rider.values[0]

    def spoiled_as_is(self) -> float | Tensor:
        """The same of the layers that are sent as they are, from their sums: equal on every rank without a word."""
        sums = [talk.reply for talk in self.talks if not talk.segment.keeps and talk.reply is not None]
        return _spoiled([_trace(total) for total in sums])

    @property
    def shared(self) -> list[float]:
        """Last step's statistics that rode along, summed over all ranks."""
        if self._rider is None:
            return []
        values = self._rider.values
        return values[1:] if isinstance(values, list) else values[1:].tolist()

    def advance(self, stage: int) -> Word | None:
        began = thread_time()
        if stage == 0 and self._weight:
            self._window.enter(self._weight)
        self.error = self.error or self._fault.error
        if self.error is None:
            phase = "opening"
            try:
                with _span(self.label, stage):
                    if stage:
                        phase = f"waiting for round {stage - 1}"
                        self._receive()
                        phase = f"after round {stage - 1}"
                        self._lighten()
                    if stage < self.rounds:
                        self._send(stage)
            except Exception as error:
                self.error = ExchangeFailed(f"{self.label}, {phase}: {type(error).__name__}: {error}")
                self.error.__cause__ = error
                self._fault.error = self._fault.error or self.error
        self.tally.core_s += thread_time() - began
        if stage < self.rounds:
            return None
        if self._weight:
            self._window.leave(self._weight)
        return self._ended(self)

    def _send(self, stage: int) -> None:
        began = perf_counter()
        if stage == 0:
            for name in self._slices.keys() & self._watching.keys():
                self.tally.measured[name] = measure(
                    name, self._slices[name], self._ledger, self._watching[name], self.lease, self._fresh
                )
            self.talks = [
                open_talk(segment, self._slices, self._ledger, self.lease, self._comm.world, self._twins)
                for segment in self.segments
            ]
        for talk in self.talks:
            talk.round = stage + 1
        sizes = self._comm.world.sizes
        said = [(talk, talk.message) for talk in self.talks if talk.message is not None]
        for talk, message in said:
            talk.sent += wire_bytes(message.op, message.data.nbytes, sizes[message.scope])
        made = parcels([message for _, message in said], sizes)
        if stage == 0 and (self.keeps or self._riding):
            voices = [part.voice for talk in self.talks for part in talk.parts]
            flag = _spoiled([voice.memory.energy for voice in voices])
            self._rider = Rider([flag, *self._riding], voices[0].x.device)
        if self._rider is not None:
            self._rider.board(made)
        for parcel in made:
            parcel.pack(self.lease)
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append((arithmetic_before(stage), began, now))
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
            self.tally.transfers.append(Transfer(parcel.op, parcel.scope, parcel.data.nbytes, began, now))
            replies = parcel.replies(result, self.lease)
            self._results.append((result, self._last_heard(parcel)))
            if self._rider is not None:
                self._rider.alight(parcel, replies)
            answers.update({id(message): reply for message, reply in zip(parcel.messages, replies, strict=False)})
            answers.update({id(message): t for message, t in zip(parcel.sums, parcel.totals(result), strict=True)})
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

    def _last_heard(self, parcel: Parcel) -> list[Talk]:
        """The talks whose last reply this collective brings, and that will read it when they end."""
        said = {id(message) for message in parcel.messages}
        last = [talk for talk in self.talks if talk.round == talk.segment.rounds and talk.message is not None]
        return [talk for talk in last if id(talk.message) in said]

    def _lighten(self) -> None:
        """End the conversations that need no verdict of the step's to end, and give back what nobody will read again.

        A payload of non-finite values is not decoded: the rider must have met everyone, and found none in this bucket.
        """
        flag = self.spoiled
        early = [talk for talk in self.talks if talk.reply is not None and talk.early]
        if (
            early
            and self._rider is not None
            and self._rider.met is Scope.WORLD
            and not (isinstance(flag, float) and flag)
        ):
            began = perf_counter()
            for talk in early:
                last_word(talk)
            now = perf_counter()
            self.tally.compress_s += now - began
            self.tally.spans.append(("decode", began, now))
        held = []
        for result, talks in self._results:
            if any(talk.reply is not None for talk in talks):
                held.append((result, talks))
            else:
                self.lease.drop(result)
        self._results = held

    def finish(self, spoiled: float | Tensor, observe: bool, residual_dtype: torch.dtype) -> None:
        """End every conversation: the mean where it belongs and the leftover in the ledger; or, spoiled, neither."""
        began, busy = perf_counter(), thread_time()
        if isinstance(spoiled, float) and spoiled:
            self.tally.measured.clear()
        self._end(spoiled, observe, residual_dtype)
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append(("decode", began, now))
        self.lease.release()
        self.tally.core_s += thread_time() - busy

    def _end(self, spoiled: float | Tensor, observe: bool, residual_dtype: torch.dtype) -> None:
        for talk in self.talks:
            end_talk(talk, spoiled, observe, residual_dtype)
            self.tally.energies.update(talk.energies)
            self.tally.wire.append((talk.segment, talk.sent))


def arithmetic_before(round_: int) -> str:
    """What a span of it is called."""
    return f"between rounds {round_ - 1} and {round_}" if round_ else "encode"


def _span(label: str, stage: int) -> AbstractContextManager[object]:
    """The work of a stage in torch's profile, if one is being made."""
    profiling = torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
    return record_function(f"laconic::{label} stage {stage}") if profiling else nullcontext()


def _trace(total: Tensor) -> float | Tensor:
    """A number that is finite only if every element is: on the CPU the sum, looked at closely only if that is not."""
    if total.device.type != "cpu":
        return torch.where(torch.isfinite(total).all(), 0.0, torch.inf)
    rough = float(total.sum(dtype=torch.float32 if total.dtype.itemsize < 4 else total.dtype))
    return rough if isfinite(rough) or not bool(torch.isfinite(total).all()) else 0.0


def _spoiled(energies: Sequence[float | Tensor]) -> float | Tensor:
    if not any(map(torch.is_tensor, energies)):
        return float(not all(map(isfinite, energies)))
    return (~torch.isfinite(torch.stack([torch.as_tensor(energy) for energy in energies]))).any().float()
