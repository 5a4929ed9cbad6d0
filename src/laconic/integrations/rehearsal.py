"""Rehearsal: conversations held alone, with replies made from their own messages, to learn what their arithmetic costs.

All layers go through each part in turn, as in a bucket, so that caches are as cold as in training; and everything that
the engine does for a conversation is in the time: residual, leftover, packing, and Python's part.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from laconic.exchange import Compressor, Message, Op
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.runtime.buffers import Arena, Lease
from laconic.runtime.ledger import Ledger
from laconic.runtime.packing import parcels
from laconic.runtime.talk import Segment, Talk, end_talk, in_few, open_talk
from laconic.world import World


class Rehearsal:
    """One compressor on some layers of a model; each `turn` adds a measurement."""

    def __init__(self, compressor: Compressor, layers: Sequence[Layer], world: World) -> None:
        self.compressor, self.world = compressor, world
        self.layers = tuple(layers)
        self._chosen = {layer.name: compressor.for_layer(layer) for layer in layers}
        own = [(layer, self._chosen[layer.name]) for layer in layers]
        self._segments = in_few([Segment.of(layer, chosen, not chosen.lossless, world) for layer, chosen in own])
        self._ledger = Ledger(layers, world, torch.float32, 0)
        self._ledger.adopt(Plan(self._chosen), None)
        self._arena = Arena()
        self._seen: dict[str, list[list[float]]] = {layer.name: [] for layer in layers}
        self._sizes = world.sizes

    @property
    def depth(self) -> int:
        return max((segment.rounds for segment in self._segments), default=0)

    def turn(self, gradients: Mapping[str, Tensor], count: bool = True) -> None:
        """Hold every conversation once. The gradients are not changed."""
        slices = {layer.name: gradients[layer.name].detach().flatten().clone() for layer in self.layers}
        lease = Lease(self._arena)
        spent: dict[str, list[float]] = {name: [] for name in slices}
        talks: list[Talk] = []
        for segment in self._segments:
            began = perf_counter()
            talks.append(open_talk(segment, slices, self._ledger, lease, self.world))
            _note(spent, segment, perf_counter() - began)
        for stage in range(self.depth):
            replies = self._exchanged(talks, spent, lease)
            for talk in talks:
                if talk.message is None:
                    continue
                reply, talk.message = replies[id(talk.message)], None
                began = perf_counter()
                if stage + 1 == talk.segment.rounds:
                    talk.reply = reply
                    end_talk(talk, 0.0, False, torch.float32)
                else:
                    talk.message = talk.exchange.send(reply)
                _note(spent, talk.segment, perf_counter() - began)
        lease.release()
        self._arena.close_step()
        if count:
            for name, times in spent.items():
                self._seen[name].append(times)

    def _exchanged(self, talks: Sequence[Talk], spent: Mapping[str, list[float]], lease: Lease) -> dict[int, Tensor]:
        """A reply to every message, as if all ranks had said the same; packing is shared out by size."""
        said = [(talk, talk.message) for talk in talks if talk.message is not None]
        began = perf_counter()
        made = parcels([message for _, message in said], self._sizes)
        for parcel in made:
            parcel.pack(lease)
        packing = perf_counter() - began
        total = sum(message.data.nbytes for _, message in said) or 1
        for talk, message in said:
            for name, seconds in _shared(talk.segment, packing * message.data.nbytes / total):
                spent[name][-1] += seconds
        replies: dict[int, Tensor] = {}
        for parcel in made:
            if parcel.op is Op.GATHER:
                parcel.result.copy_(parcel.data.expand_as(parcel.result))
            elif parcel.op is Op.SCATTER:
                parcel.result.copy_(parcel.data)
            split: list[tuple[Message, Tensor]] = list(
                zip(parcel.messages, parcel.replies(parcel.result, lease), strict=True)
            )
            split += zip(parcel.sums, parcel.totals(parcel.result), strict=True)
            replies.update({id(message): reply for message, reply in split})
        return replies

    def seconds(self) -> dict[str, list[float]]:
        """For every layer the parts of its conversation: opening, between rounds, ending. Medians over turns."""
        return {
            name: [median(times) for times in zip(*turns, strict=True)] for name, turns in self._seen.items() if turns
        }


def _shared(segment: Segment, seconds: float) -> list[tuple[str, float]]:
    """What a conversation took, shared out among its layers by size: their arithmetic is one call."""
    total = sum(layer.numel for layer in segment.layers) or 1
    return [(layer.name, seconds * layer.numel / total) for layer in segment.layers]


def _note(spent: Mapping[str, list[float]], segment: Segment, seconds: float) -> None:
    for name, share in _shared(segment, seconds):
        spent[name].append(share)
