"""Packing: the messages of one (round, op, scope, dtype) share one flat buffer and one collective.

Between two ranks a sum is what both sent, added up: as many bytes, and the same bits in either order. So where codes
are gathered anyway, small sums go with them and are added here, and a collective is saved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from laconic import kernels
from laconic.exchange import ALONG, Message, Op
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
    sums: list[Message] = field(default_factory=list)  # of float32, which travel as bytes and are added on arrival
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
        if self.op is Op.SCATTER:
            parts = [message.data.reshape(self.size, -1) for message in self.messages]
            width = sum(part.shape[1] for part in parts)
            self.data = lease.rows((self.size, width), self.dtype, device)
            torch.cat(parts, 1, out=self.data)
        else:
            every = [message.data for message in self.messages] + [message.data for message in self.sums]
            width = sum(data.nbytes for data in every) // self.dtype.itemsize
            width = width if not self.sums else -(-width // 8) * 8
            self.data = lease.take(width, self.dtype, device)
            kernels.together(self.data).lay(every, self.data)
        for message in self.messages:
            lease.drop(message.data)
        if self.op in (Op.SUM, Op.MAX):
            self.result = self.data
        else:
            self.result = lease.rows((self.size, width), self.dtype, device)

    def replies(self, result: Tensor, lease: Lease) -> list[Tensor]:
        """What the collective made of each message; what was sent is no longer needed."""
        if result.data_ptr() != self.data.data_ptr():
            lease.drop(self.data)
        cuts = [self._width(message) for message in self.messages]
        if self.sums:
            cuts.append(result.shape[-1] - sum(cuts))
        return list(torch.split(result, cuts, -1))[: len(self.messages)]

    def totals(self, result: Tensor) -> list[Tensor]:
        """The sums that went along."""
        if not self.sums:
            return []
        start, cuts = sum(map(self._width, self.messages)), [message.data.numel() for message in self.sums]
        mine, others = result[:, start : start + 4 * sum(cuts)].view(torch.float32)
        return list(torch.split(mine + others, cuts))


def parcels(messages: Sequence[Message], sizes: Mapping[Scope, int]) -> list[Parcel]:
    """The collectives that one round needs, in an order that is the same on every rank."""
    made: dict[tuple[Op, Scope, torch.dtype], Parcel] = {}
    for message in messages:
        key = (message.op, message.scope, message.data.dtype)
        if key not in made:
            made[key] = Parcel(*key, sizes[message.scope])
        made[key].messages.append(message)
    for scope, size in sizes.items():
        codes, plain = made.get((Op.GATHER, scope, torch.uint8)), (Op.SUM, scope, torch.float32)
        if codes is not None and plain in made and size == 2 and _few(made[plain].messages):
            codes.sums = made.pop(plain).messages
    return list(made.values())


def _few(messages: Sequence[Message]) -> bool:
    return all(message.data.is_cpu for message in messages) and sum(m.data.nbytes for m in messages) <= ALONG


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
