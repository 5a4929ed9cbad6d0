"""Packing: the messages of one (round, op, scope, dtype) share one flat buffer and one collective."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from laconic.exchange import Message, Op
from laconic.runtime.buffers import Lease
from laconic.world import Scope


NOTHING = torch.empty(0)  # before a parcel is packed


@dataclass
class Parcel:
    """Messages that travel together. `data` is what the collective takes and `result` where it writes."""

    op: Op
    scope: Scope
    dtype: torch.dtype
    size: int  # ranks in the scope
    messages: list[Message] = field(default_factory=list)
    data: Tensor = NOTHING
    result: Tensor = NOTHING

    def _width(self, message: Message) -> int:
        """A message's place in a row."""
        return message.data.numel() // (self.size if self.op is Op.SCATTER else 1)

    def pack(self, lease: Lease) -> None:
        """Lay the messages side by side, or use them where they lie if that is how they lie already."""
        if (
            self.op in (Op.SUM, Op.MAX)
            and (joined := side_by_side([message.data for message in self.messages])) is not None
        ):
            self.data = self.result = joined
            return
        device = self.messages[0].data.device
        rows = self.size if self.op is Op.SCATTER else 1
        width = sum(map(self._width, self.messages))
        flat = lease.take(rows * width, self.dtype, device).view(rows, width)
        torch.cat([message.data.reshape(rows, -1) for message in self.messages], 1, out=flat)
        for message in self.messages:
            lease.drop(message.data)
        self.data = flat if self.op is Op.SCATTER else flat[0]
        if self.op in (Op.SUM, Op.MAX):
            self.result = self.data
        else:
            self.result = lease.take(self.size * width, self.dtype, device).view(self.size, width)

    def replies(self, result: Tensor, lease: Lease) -> list[Tensor]:
        """What the collective made of each message; what was sent is no longer needed."""
        if result.data_ptr() != self.data.data_ptr():
            lease.drop(self.data)
        cuts = [self._width(message) for message in self.messages]
        return list(torch.split(result, cuts, -1))


def parcels(messages: Sequence[Message], sizes: Mapping[Scope, int]) -> list[Parcel]:
    """The collectives that one round needs, in an order that is the same on every rank."""
    made: dict[tuple[Op, Scope, torch.dtype], Parcel] = {}
    for message in messages:
        key = (message.op, message.scope, message.data.dtype)
        if key not in made:
            made[key] = Parcel(*key, sizes[message.scope])
        made[key].messages.append(message)
    return list(made.values())


def side_by_side(tensors: Sequence[Tensor]) -> Tensor | None:
    """One flat view over tensors that follow each other in memory, or None if they do not."""
    first = tensors[0]
    end = first.data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end or not tensor.is_contiguous() or tensor.dtype is not first.dtype:
            return None
        end += tensor.nbytes
    if len(tensors) == 1:
        return first.view(-1)
    total = sum(tensor.numel() for tensor in tensors)
    storage_end = first.untyped_storage().data_ptr() + first.untyped_storage().nbytes()
    if end > storage_end:
        return None  # neighbours by chance: allocations of their own
    return first.as_strided((total,), (1,))
