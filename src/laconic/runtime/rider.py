"""The rider: a few floats of each rank that travel inside a message that is sent anyway.

The first tells whether this rank saw a non-finite value in this bucket; the others are last step's statistics. All end
with the same sums. A rider boards one collective of a round, until it has met everyone: a collective of the whole
world, or one inside the machine and then one across.
"""

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from laconic import kernels
from laconic.exchange import Message, Op
from laconic.runtime.packing import Parcel
from laconic.world import Scope

BEFORE = {Scope.WORLD: None, Scope.NODE: None, Scope.ACROSS: Scope.NODE}  # whom a rider has met when it boards


class Rider:
    """Sums `values` over all ranks on the way: numbers; on a device a tensor, so that the host need not wait."""

    def __init__(self, values: Sequence[float | Tensor], device: torch.device) -> None:
        self.values: list[float] | Tensor
        if device.type == "cpu":
            self.values = [float(value) for value in values]
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
        if isinstance(self.values, list):
            odd = len(self.values) % 2 and parcel.dtype is torch.uint8
            data = torch.frombuffer(array("f", [*self.values, 0.0] if odd else self.values), dtype=parcel.dtype)
        else:
            data = self.values.clone()
            if parcel.dtype is torch.uint8:  # what follows stays aligned
                data = torch.nn.functional.pad(data, (0, data.numel() % 2)).view(torch.uint8)
        if parcel.op is Op.SCATTER:
            data = data.repeat(parcel.size, 1)
        return Message(parcel.op, parcel.scope, data)

    def alight(self, parcel: Parcel, replies: list[Tensor]) -> None:
        """Read the sums from the collective that was boarded, if it is this one."""
        if self._aboard is None or self._aboard[0] is not parcel:
            return
        reply = replies.pop(self._aboard[1])
        if isinstance(self.values, list):
            rows = reply.view(1, -1) if parcel.op is Op.SUM else reply
            self.values = kernels.together(reply).add_rows(rows.view(torch.uint8), len(self.values))
        elif parcel.op is Op.SUM:
            self.values = reply.clone()
        else:
            rows = reply.contiguous()
            floats = rows.view(torch.float32) if rows.dtype is torch.uint8 else rows
            self.values = floats[:, : self.values.numel()].sum(0)
        self.met = Scope.WORLD if parcel.scope is not Scope.NODE else Scope.NODE
        self._aboard = None
