"""A bucket that is known by heart: who says what, where in which message, is the same in every step.

Conversations are free in what they say, and so each step makes generators, messages, views and parcels for them. Most
buckets, in most steps, say the same much in the same order: then all of that is made once, and a step fetches the
gradients' addresses and makes a call of C++ a round. What travels is the same to the byte, so that a rank may know its
part by heart while another makes it up, and so may one step and not the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from laconic import kernels
from laconic.comm.protocol import Pending
from laconic.compressors.dense import Dense
from laconic.exchange import Choral, Leg, Lines, Message, Op, wire_bytes
from laconic.kernels.payload import aligned
from laconic.runtime.bucket import Bucket, arithmetic_before
from laconic.runtime.ledger import Account, Ledger
from laconic.runtime.packing import parcels
from laconic.runtime.rider import Rider
from laconic.runtime.talk import Segment, sole
from laconic.stats import Transfer
from laconic.world import Scope, World

CPU = torch.device("cpu")


@dataclass
class Sheet:
    """One collective: how large it is, and where on it the rider writes how many floats."""

    op: Op
    scope: Scope
    dtype: torch.dtype
    size: int  # ranks
    width: int  # elements
    wire: int  # bytes that this rank sends
    rider: tuple[int, int] | None = None  # from which byte of a row on

    @property
    def nbytes(self) -> int:
        return self.width * self.dtype.itemsize


Place = tuple[int, int]  # which sheet of a round, and from which byte of a row on


@dataclass
class Part:
    """Layers that keep something, in one conversation."""

    lines: Lines
    accounts: Sequence[Account]
    outs: list[int]  # where their means belong
    at: list[Place]  # by round


@dataclass
class Sums:
    """Layers that are sent as they are, in the first round."""

    places: list[int]
    sizes: list[int]  # in bytes
    at: Place
    room: int  # in bytes: what is left of it is zero


@dataclass
class Score:
    """All that does not change from step to step."""

    on: ModuleType
    rounds: list[list[Sheet]]
    parts: list[Part]
    sums: list[Sums]
    wire: list[tuple[Segment, int]]  # what each segment sends


def learn(segments: Sequence[Segment], slices: Mapping[str, Tensor], ledger: Ledger, world: World) -> Score | None:
    """What these segments say in every step; None where that is not known beforehand."""
    on = kernels.lines()
    if on is None or world.size == 1 or not all(s.is_cpu and s.dtype is torch.float32 for s in slices.values()):
        return None
    lines = [_lines(segment, world) for segment in segments]
    as_it_is = [type(segment.compressor) is Dense and segment.short and not segment.keeps for segment in segments]
    if not any(lines) or not all(one or plain for one, plain in zip(lines, as_it_is, strict=True)):
        return None
    said = [[_blank(legs) for legs in _legs(segment, world)] for segment in segments]
    rounds, found = _sheets(said, world)
    for index, sheets in enumerate(rounds):
        for own, messages in zip(lines, said, strict=True):
            if own is not None and index < len(messages):
                (number, _), _ = found[id(messages[index])]
                if sheets[number].op is not messages[index].op:
                    return None  # factors that go with codes, and are added up on arrival
    parts, sums, wire = [], [], []
    for segment, own, messages in zip(segments, lines, said, strict=True):
        names, rooms = [layer.name for layer in segment.layers], [found[id(message)] for message in messages]
        places = [slices[name].data_ptr() for name in names]
        if own is not None:
            parts.append(Part(own, [ledger.accounts[name] for name in names], places, [at for at, _ in rooms]))
        else:
            sums.append(Sums(places, [slices[name].nbytes for name in names], *rooms[0]))
        wire.append((segment, sum(wire_bytes(m.op, m.data.nbytes, world.sizes[m.scope]) for m in messages)))
    return Score(on, rounds, parts, sums, wire)


def _lines(segment: Segment, world: World) -> Lines | None:
    choral = segment.choral and isinstance(segment.compressor, Choral)
    return segment.compressor.lines(segment.layers, world) if choral else None  # type: ignore[attr-defined]


def _legs(segment: Segment, world: World) -> Iterable[Sequence[Leg]]:
    """By round, the layers' legs."""
    return zip(*(segment.compressor.legs(layer, world) for layer in segment.layers), strict=True)


def _blank(legs: Sequence[Leg]) -> Message:
    """A message of which only the size counts."""
    return Message(legs[0].op, legs[0].scope, torch.empty(sum(leg.numel for leg in legs), dtype=legs[0].dtype))


def _sheets(said: Sequence[Sequence[Message]], world: World) -> tuple[list[list[Sheet]], dict[int, tuple[Place, int]]]:
    """The collectives of each round, as `parcels` makes them; where on them each message is, and in how many bytes."""
    rounds: list[list[Sheet]] = []
    found: dict[int, tuple[Place, int]] = {}
    for index in range(max(map(len, said))):
        made = parcels([messages[index] for messages in said if index < len(messages)], world.sizes)
        known = {id(message) for parcel in made for message in (*parcel.messages, *parcel.sums)}
        if index == 0:
            Rider([0.0], CPU).board(made)
        rounds.append([])
        for number, parcel in enumerate(made):
            every = (*parcel.messages, *parcel.sums)
            nbytes = sum(message.data.nbytes for message in every)
            nbytes = aligned(nbytes) if parcel.sums else nbytes
            at, rider = 0, None
            for message in every:
                room = nbytes - at if message is every[-1] else message.data.nbytes
                if id(message) in known:
                    found[id(message)] = (number, at), room
                else:
                    rider = (at, room // 4)
                at += room
            width = nbytes // parcel.dtype.itemsize
            wire = wire_bytes(parcel.op, nbytes, parcel.size)
            rounds[-1].append(Sheet(parcel.op, parcel.scope, parcel.dtype, parcel.size, width, wire, rider))
    return rounds, found


@dataclass
class _Filled:
    """A sheet that is written on and sent."""

    sheet: Sheet
    data: Tensor
    result: Tensor
    pending: Pending
    began: float


class ByHeart(Bucket):
    """A bucket with a score; where a step does not fit it, as any other."""

    def __init__(self, score: Score, *what: Any) -> None:
        super().__init__(*what)
        self._score: Score | None = score
        self._grads: list[list[Tensor]] = []  # by part, as the energies
        self._energies: list[list[float]] = []
        self._sent: list[_Filled] = []  # this round's
        self._said = 0  # rounds
        self._flag = 0.0  # whether any rank saw a non-finite value in what is compressed
        self._finite = True  # all that is sent as it is

    @property
    def spoiled(self) -> float | Tensor:
        return super().spoiled if self._score is None else self._flag

    def spoiled_as_is(self) -> float | Tensor:
        return super().spoiled_as_is() if self._score is None else float(not self._finite)

    def _fits(self, score: Score) -> bool:
        """Fetch the gradients; whether all are where they can be worked on, and have residuals beside them."""
        for part in score.parts:
            grads: list[Tensor] = []
            for account in part.accounts:
                grad = self._twins(account.layer.name) if self._twins is not None else None
                residual = account.residual
                if grad is None or residual is None or residual.dtype is not torch.float32:
                    return False
                grads.append(grad)
            self._grads.append(grads)
        return True

    def _send(self, stage: int) -> None:
        if stage == 0 and self._score is not None and not self._fits(self._score):
            self._score = None
        score = self._score
        if score is None:
            super()._send(stage)
            return
        if stage >= len(score.rounds):
            return
        began = perf_counter()
        heard, sheets = self._sent, score.rounds[stage]
        data = [self.lease.rows((sheet.width,), sheet.dtype, CPU) for sheet in sheets]
        if stage == 0:
            self._open(score, [one.data_ptr() for one in data])
        else:
            for part in score.parts:
                if stage < len(part.at):
                    (last, at), (number, to) = part.at[stage - 1], part.at[stage]
                    part.lines.answer(heard[last].result, at, data[number].data_ptr() + to)
            self._give_back()
        self._said = stage + 1
        results = [
            one if sheet.op is Op.SUM else self.lease.rows((sheet.size, sheet.width), sheet.dtype, CPU)
            for sheet, one in zip(sheets, data, strict=True)
        ]
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append((arithmetic_before(stage), began, now))
        for sheet, one, result in zip(sheets, data, results, strict=True):
            self.tally.wire_bytes += sheet.wire
            pending = self._comm.start(sheet.op, sheet.scope, one, stage, result)
            self._sent.append(_Filled(sheet, one, result, pending, perf_counter()))
        if stage:
            self._leave([part for part in score.parts if stage == len(part.at) - 1])

    def _leave(self, parts: Sequence[Part]) -> None:
        """What is left unsent, while the last message travels: nobody waits for it."""
        began = perf_counter()
        for part in parts:
            part.lines.leave()
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append(("leftover", began, now))

    def _open(self, score: Score, at: Sequence[int]) -> None:
        """The first round's messages, into the sheets at these addresses."""
        finite = True
        for part, grads in zip(score.parts, self._grads, strict=True):
            number, to = part.at[0]
            energies = part.lines.say(
                [grad.data_ptr() for grad in grads],
                [account.residual.data_ptr() for account in part.accounts if account.residual is not None],
                [account.warm for account in part.accounts],
                at[number] + to,
            )
            finite = finite and all(map(isfinite, energies))
            self._energies.append(energies)
        for sheet_at, one in zip(at, score.rounds[0], strict=True):
            if one.rider is not None:
                to, room = one.rider
                score.on.store([float(not finite), 0.0][:room], sheet_at + to)
        for sums in score.sums:
            number, to = sums.at
            score.on.lay_weighed(sums.places, sums.sizes, 1 / self._comm.world.size, at[number] + to, sums.room)

    def _receive(self) -> None:
        score = self._score
        if score is None:
            super()._receive()
            return
        for one in self._sent:
            sheet, one.result = one.sheet, one.pending.wait()
            now = perf_counter()
            self.tally.communicate_s += now - one.began
            self.tally.spans.append((f"{sheet.op.value} {sheet.scope.value}", one.began, now))
            self.tally.transfers.append(Transfer(sheet.op, sheet.scope, sheet.nbytes, one.began, now))
            if one.result.data_ptr() != one.data.data_ptr():
                self.lease.drop(one.data)
        if self._said == 1 and self._sent:
            for one in self._sent:
                if one.sheet.rider is not None:
                    (self._flag,) = score.on.add_up(one.result, one.sheet.rider[0], 1)
            for sums in score.sums:
                number, at = sums.at
                finite = score.on.spread_sum(self._sent[number].result, at, sums.places, sums.sizes)
                self._finite = self._finite and finite

    def _lighten(self) -> None:
        """The means of whose last reply is here, unless any rank saw what is not finite; the others' memory is given
        back when they have answered."""
        score = self._score
        if score is None:
            super()._lighten()
            return
        if not self._sent or self._said > max(len(part.at) for part in score.parts):
            return
        began = perf_counter()
        for part in score.parts:
            if len(part.at) == self._said and not self._flag:
                number, at = part.at[-1]
                part.lines.hear(self._sent[number].result, at, part.outs, 1 / self._comm.world.size)
        now = perf_counter()
        self.tally.compress_s += now - began
        self.tally.spans.append(("decode", began, now))
        if self._said == len(score.rounds):
            self._give_back()

    def _give_back(self) -> None:
        for one in self._sent:
            self.lease.drop(one.result)
        self._sent = []

    def _end(self, spoiled: float | Tensor, observe: bool, residual_dtype: torch.dtype) -> None:
        score = self._score
        if score is None:
            super()._end(spoiled, observe, residual_dtype)
            return
        self.tally.wire = score.wire
        if spoiled:
            for part in score.parts:
                for account in part.accounts:
                    self._slices[account.layer.name].fill_(torch.nan)
            return
        for part, grads, energies in zip(score.parts, self._grads, self._energies, strict=True):
            warm = part.lines.remembered([account.warm for account in part.accounts])
            for account, grad, energy, new in zip(part.accounts, grads, energies, warm, strict=True):
                if observe:
                    self.tally.energies[account.layer.name] = (energy, float(kernels.of(grad).energy(grad.view(-1))))
                account.settle(grad, new, residual_dtype, grad if sole(grad, 2) else None)
