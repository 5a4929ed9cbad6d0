"""The rider: a few floats of each rank that travel inside a message that is sent anyway.

The first tells whether this rank saw a non-finite value in this bucket; the others are last step's statistics. All end
with the same sums. A rider boards one collective of a round, until it has met everyone: a collective of the whole
world, or one inside the machine and then one across.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.exchange import Message, Op
from laconic.runtime.packing import Parcel
from laconic.world import Scope

BEFORE = {Scope.WORLD: None, Scope.NODE: None, Scope.ACROSS: Scope.NODE}  # whom a rider has met when it boards


class Rider:
    """Sums `values` over all ranks on the way."""

    def __init__(self, values: Sequence[float | Tensor], device: torch.device) -> None:
        if device.type == "cpu":
            self.values = torch.tensor([float(value) for value in values])
        else:
            self.values = torch.stack([torch.as_tensor(v, dtype=torch.float32, device=device) for v in values])
        self.met: Scope | None = None
        self._aboard: tuple[Parcel, int] | None = None

    def board(self, parcels: list[Parcel]) -> None:
        """Join the collective that brings this rider furthest; where none can carry floats, go alone."""
        if self.met is Scope.WORLD:
            return
        way = [p for p in parcels if BEFORE[p.scope] is self.met]
        way = [p for p in way if p.scope is Scope.WORLD] or way
        if not way:
            return
        able = [p for p in way if p.dtype in (torch.uint8, torch.float32) and p.op is not Op.MAX]
        able.sort(key=lambda p: p.op is Op.SUM)  # a sum may lie ready in memory, and would have to be moved
        if able:
            parcel = able[0]
        else:
            parcel = Parcel(Op.SUM, way[0].scope, torch.float32, way[0].size)
            parcels.append(parcel)
        parcel.messages.append(self._message(parcel))
        self._aboard = (parcel, len(parcel.messages) - 1)

    def _message(self, parcel: Parcel) -> Message:
        data = self.values.clone() if parcel.dtype is torch.float32 else self._bytes()
        if parcel.op is Op.SCATTER:
            data = data.repeat(parcel.size, 1)
        return Message(parcel.op, parcel.scope, data)

    def _bytes(self) -> Tensor:
        """The floats as bytes, padded so that what follows stays aligned."""
        odd = self.values.numel() % 2
        padded = torch.nn.functional.pad(self.values, (0, 1)) if odd else self.values.clone()
        return padded.view(torch.uint8)

    def alight(self, parcel: Parcel, replies: list[Tensor]) -> None:
        """Read the sums from the collective that was boarded, if it is this one."""
        if self._aboard is None or self._aboard[0] is not parcel:
            return
        reply = replies.pop(self._aboard[1])
        if parcel.op is Op.SUM:
            self.values = reply.clone()
        else:
            rows = reply.contiguous()
            floats = rows.view(torch.float32) if rows.dtype is torch.uint8 else rows
            self.values = floats[:, : self.values.numel()].sum(0)
        self.met = Scope.WORLD if parcel.scope is not Scope.NODE else Scope.NODE
        self._aboard = None
