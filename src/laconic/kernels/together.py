"""Kernels for several layers that hold one conversation: their payloads lie side by side in one message.

`Together` is the schema, `OneByOne` what it means in terms of single layers, on any backend. Compiled, each is one call
(kernels/native_together.py): a bucket of twenty layers costs Python what one layer costs.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from laconic.kernels.energy import Energy
from laconic.kernels.payload import Form, quantized_bytes, steps_and_codes, ternary_bytes
from laconic.kernels.schema import Kernels


class Together(Protocol):
    """Layers `xs`, flat or as matrices, with what earlier steps left of them, `residuals`."""

    def lay(self, parts: Sequence[Tensor], out: Tensor) -> None:
        """The bytes of contiguous tensors side by side, and zeros behind them."""

    def spread(self, flat: Tensor, outs: Sequence[Tensor]) -> None:
        """`lay` undone: the bytes of `flat` into contiguous tensors."""

    def add_rows(self, rows: Tensor, count: int) -> list[float]:
        """The sums of the first `count` floats of each row of bytes."""

    def quantize(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor,
        bits: int, bucket: int, l2: bool, seeds: Sequence[int],
    ) -> Sequence[Energy]:  # fmt: skip
        """`Kernels.quantize` for each: steps, then codes, each padded with zeros to a multiple of 8 bytes.

        `seeds` is empty, or holds one for each layer.
        """

    def dequantize(self, payloads: Tensor, outs: Sequence[Tensor], bits: int, bucket: int, weight: float) -> None:
        """outs = weight times the sum of what the rows of `payloads` carry."""

    def ternary(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor, bucket: int, each: int
    ) -> Sequence[Energy]:
        """`Kernels.ternary` for each."""

    def unternary(self, payloads: Tensor, outs: Sequence[Tensor], bucket: int, each: int, weight: float) -> None:
        """outs = weight times the sum of what the rows of `payloads` carry."""

    def sketch(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], qs: Sequence[Tensor], message: Tensor,
        form: Form,
    ) -> Sequence[Energy]:  # fmt: skip
        """PowerSGD's first message: x += residual, and (x @ q) for each, where q is scaled to a largest magnitude of 1.

        Factors p go with the shorter side of a matrix, q with the longer one (`Kernels.sketch`). `form` tells how
        factors travel; the first and the second may do so differently.
        """

    def turn(
        self, reply: Tensor, xs: Sequence[Tensor], ps: Sequence[Tensor], qs: Sequence[Tensor], message: Tensor,
        heard: Form, said: Form,
    ) -> None:  # fmt: skip
        """Its second: p = an orthonormal basis of what came, and q = x.T @ p as it travels."""

    def leave(self, xs: Sequence[Tensor], ps: Sequence[Tensor], qs: Sequence[Tensor]) -> None:
        """x -= p @ q.T: what was not sent."""

    def product(
        self, reply: Tensor, ps: Sequence[Tensor], qs: Sequence[Tensor], outs: Sequence[Tensor], weight: float,
        form: Form,
    ) -> None:  # fmt: skip
        """Its end: q = weight times what came, and out = p @ q.T."""


def orthonormal(p: Tensor) -> Tensor:
    """An orthonormal basis of the columns; of zero columns, any."""
    basis: Tensor = torch.linalg.qr(p).Q
    return basis


def of_unit_size(q: Tensor) -> Tensor:
    """Factors with a largest magnitude of one: what they span is the same, and a product with them cannot overflow."""
    return q / q.abs().max().clamp_min(torch.finfo(q.dtype).tiny) if q.numel() else q


class OneByOne:
    """Any backend's kernels, a layer at a time."""

    def __init__(self, on: Kernels) -> None:
        self._on = on

    def lay(self, parts: Sequence[Tensor], out: Tensor) -> None:
        room, used = out.view(torch.uint8), sum(part.nbytes for part in parts)
        torch.cat([part.view(-1).view(torch.uint8) for part in parts], out=room[:used])
        room[used:] = 0

    def spread(self, flat: Tensor, outs: Sequence[Tensor]) -> None:
        for out, own in zip(outs, torch.split(flat, [out.numel() for out in outs]), strict=True):
            out.view(-1).copy_(own)

    def add_rows(self, rows: Tensor, count: int) -> list[float]:
        told: list[float] = rows[:, : 4 * count].contiguous().view(torch.float32).sum(0).tolist()
        return told

    def quantize(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor,
        bits: int, bucket: int, l2: bool, seeds: Sequence[int],
    ) -> list[Energy]:  # fmt: skip
        payload.zero_()
        made = []
        for i, (x, residual) in enumerate(zip(xs, residuals, strict=True)):
            steps, codes = steps_and_codes(payload, x.numel(), bits, bucket)
            seed = seeds[i] if seeds else None
            made.append(self._on.quantize(x, residual, codes, steps, bits, bucket, l2, seed))
            payload = payload[quantized_bytes(x.numel(), bits, bucket) :]
        return made

    def dequantize(self, payloads: Tensor, outs: Sequence[Tensor], bits: int, bucket: int, weight: float) -> None:
        rooms = [quantized_bytes(out.numel(), bits, bucket) for out in outs]
        for out, own in zip(outs, torch.split(payloads, rooms, 1), strict=True):
            out.zero_()
            for row in own:
                steps, codes = steps_and_codes(row, out.numel(), bits, bucket)
                self._on.dequantize_add(codes, steps, out, bits, bucket, weight)

    def ternary(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor, bucket: int, each: int
    ) -> list[Energy]:
        rooms = torch.split(payload, [ternary_bytes(x.numel(), bucket, each) for x in xs])
        parts = zip(xs, residuals, rooms, strict=True)
        return [self._on.ternary(x, residual, room, bucket, each) for x, residual, room in parts]

    def unternary(self, payloads: Tensor, outs: Sequence[Tensor], bucket: int, each: int, weight: float) -> None:
        rooms = [ternary_bytes(out.numel(), bucket, each) for out in outs]
        for out, own in zip(outs, torch.split(payloads, rooms, 1), strict=True):
            out.zero_()
            for row in own:
                self._on.unternary_add(row, out, bucket, each, weight)

    def sketch(
        self, xs: Sequence[Tensor], residuals: Sequence[Tensor | None], qs: Sequence[Tensor], message: Tensor,
        form: Form,
    ) -> list[Energy]:  # fmt: skip
        made = []
        for x, residual, q in zip(xs, residuals, qs, strict=True):
            p = x.new_empty(min(x.shape), q.shape[1])
            made.append(self._on.sketch(x, residual, of_unit_size(q).contiguous(), p))
            message = self._send(p, message, form)
        return made

    def turn(
        self, reply: Tensor, xs: Sequence[Tensor], ps: Sequence[Tensor], qs: Sequence[Tensor], message: Tensor,
        heard: Form, said: Form,
    ) -> None:  # fmt: skip
        for x, p, q in zip(xs, ps, qs, strict=True):
            reply = self._receive(reply, p, 1.0, heard)
            p.copy_(orthonormal(p))
            self._on.sketch_back(x, p, q)
            message = self._send(q, message, said)

    def leave(self, xs: Sequence[Tensor], ps: Sequence[Tensor], qs: Sequence[Tensor]) -> None:
        for x, p, q in zip(xs, ps, qs, strict=True):
            self._on.subtract_product(x, p, q)

    def product(
        self, reply: Tensor, ps: Sequence[Tensor], qs: Sequence[Tensor], outs: Sequence[Tensor], weight: float,
        form: Form,
    ) -> None:  # fmt: skip
        for p, q, out in zip(ps, qs, outs, strict=True):
            reply = self._receive(reply, q, weight, form)
            self._on.product(p, q, out)

    def _send(self, factor: Tensor, message: Tensor, form: Form) -> Tensor:
        """Write a factor, which becomes what was written; the rest of the message."""
        room = form.room(*factor.shape)
        if form.coded:
            self._on.code_factor(factor, message[:room], form.bits)
        else:
            message[:room] = factor.view(-1)
            factor.copy_(message[:room].view_as(factor))
        return message[room:]

    def _receive(self, reply: Tensor, factor: Tensor, weight: float, form: Form) -> Tensor:
        """Read a factor from the front of a sum, or of everyone's codes; the rest."""
        room = form.room(*factor.shape)
        if form.coded:
            self._on.sum_factors(reply[:, :room], factor, weight, form.bits)
            return reply[:, room:]
        torch.mul(reply[:room].view_as(factor), weight, out=factor)
        return reply[room:]
