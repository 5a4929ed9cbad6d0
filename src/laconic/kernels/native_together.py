"""`Together` in C++ (csrc/chorus.cpp): one call for all layers, by address, with the GIL released."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from laconic.kernels import _native, native
from laconic.kernels.energy import Energy
from laconic.kernels.payload import (
    BRAIN,
    EXACT,
    IN_3_BITS,
    IN_4_BITS,
    IN_6_BITS,
    IN_8_BITS,
    Form,
    quantized_bytes,
    steps_and_codes,
    ternary_bytes,
)
from laconic.kernels.plausible import refused
from laconic.kernels.reference.ternary import LARGEST_TERNARY_BUCKET, misspelled
from laconic.kernels.together import OneByOne

FORMS = {EXACT: 0, BRAIN: 1, IN_3_BITS: 3, IN_4_BITS: 4, IN_6_BITS: 6, IN_8_BITS: 8}
_one_by_one = OneByOne(native)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _kept(residuals: Sequence[Tensor | None]) -> list[int]:
    """Addresses of residuals, 0 for none; the caller holds on to them, and they are float32."""
    assert all(r is None or r.dtype is torch.float32 for r in residuals)
    return [0 if r is None else r.data_ptr() for r in residuals]


def lay(parts: Sequence[Tensor], out: Tensor) -> None:
    sizes = [part.nbytes for part in parts]
    assert sum(sizes) <= out.nbytes
    _native.lay(_addresses(parts), sizes, out.data_ptr(), out.nbytes)


def spread(flat: Tensor, outs: Sequence[Tensor]) -> None:
    sizes = [out.nbytes for out in outs]
    assert sum(sizes) == flat.nbytes
    _native.spread(flat.data_ptr(), _addresses(outs), sizes)


def add_rows(rows: Tensor, count: int) -> list[float]:
    assert rows.stride(1) == 1
    assert rows.shape[1] >= 4 * count
    return _native.add_rows(rows.data_ptr(), rows.shape[0], rows.stride(0), count)


def quantize(
    xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor,
    bits: int, bucket: int, l2: bool, seeds: Sequence[int],
) -> Sequence[Energy]:  # fmt: skip
    sizes = [x.numel() for x in xs]
    assert payload.numel() == sum(quantized_bytes(n, bits, bucket) for n in sizes)
    assert bucket <= native.LARGEST_BUCKET
    return _native.quantize_all(
        _addresses(xs), _kept(residuals), sizes, payload.data_ptr(), bits, bucket, l2, seeds, torch.get_num_threads()
    )


def dequantize(payloads: Tensor, outs: Sequence[Tensor], bits: int, bucket: int, weight: float) -> None:
    sizes = [out.numel() for out in outs]
    assert payloads.shape[1] == sum(quantized_bytes(n, bits, bucket) for n in sizes)
    assert payloads.stride(1) == 1
    if not _native.dequantize_all(
        payloads.data_ptr(), payloads.shape[0], payloads.stride(0), _addresses(outs), sizes, bits, bucket, weight,
        torch.get_num_threads(),
    ):  # fmt: skip
        raise implausible_codes(payloads, sizes, bits, bucket)


def ternary(
    xs: Sequence[Tensor], residuals: Sequence[Tensor | None], payload: Tensor, bucket: int, each: int
) -> Sequence[Energy]:
    sizes = [x.numel() for x in xs]
    assert payload.numel() == sum(ternary_bytes(n, bucket, each) for n in sizes)
    assert bucket <= LARGEST_TERNARY_BUCKET
    return _native.ternary_all(
        _addresses(xs), _kept(residuals), sizes, payload.data_ptr(), bucket, each, torch.get_num_threads()
    )


def unternary(payloads: Tensor, outs: Sequence[Tensor], bucket: int, each: int, weight: float) -> None:
    sizes = [out.numel() for out in outs]
    assert payloads.shape[1] == sum(ternary_bytes(n, bucket, each) for n in sizes)
    assert payloads.stride(1) == 1
    assert bucket <= LARGEST_TERNARY_BUCKET
    if not _native.unternary_all(
        payloads.data_ptr(), payloads.shape[0], payloads.stride(0), _addresses(outs), sizes, bucket, each, weight,
        torch.get_num_threads(),
    ):  # fmt: skip
        raise misspelled(sum(sizes), bucket)


def sketch(
    xs: Sequence[Tensor], residuals: Sequence[Tensor | None], qs: Sequence[Tensor], message: Tensor, form: Form
) -> Sequence[Energy]:
    if not _skinny(xs, qs):
        return _one_by_one.sketch(xs, residuals, qs, message, form)
    rows, columns, ranks = _shapes(xs, qs)
    assert message.numel() == _room(map(min, rows, columns), ranks, form)
    return _native.sketch_all(
        FORMS[form], _addresses(xs), _kept(residuals), rows, columns, ranks, _addresses(qs),
        message.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip


def turn(
    reply: Tensor, xs: Sequence[Tensor], ps: Sequence[Tensor], qs: Sequence[Tensor], message: Tensor,
    heard: Form, said: Form,
) -> None:  # fmt: skip
    if not _skinny(xs, qs):
        _one_by_one.turn(reply, xs, ps, qs, message, heard, said)
        return
    rows, columns, ranks = _shapes(xs, qs)
    shorter = list(map(min, rows, columns))
    assert reply.shape[-1] == _room(shorter, ranks, heard)
    assert message.numel() == _room(map(max, rows, columns), ranks, said)
    if not _native.turn_all(
        FORMS[heard], FORMS[said], *_incoming(reply), _addresses(xs), rows, columns, ranks, _addresses(ps),
        _addresses(qs), message.data_ptr(), torch.get_num_threads(),
    ):  # fmt: skip
        raise implausible_factors(reply, shorter, ranks, heard)


def leave(xs: Sequence[Tensor], ps: Sequence[Tensor], qs: Sequence[Tensor]) -> None:
    if not _skinny(xs, qs):
        _one_by_one.leave(xs, ps, qs)
        return
    _native.leave_all(_addresses(xs), *_shapes(xs, qs), _addresses(ps), _addresses(qs), torch.get_num_threads())


def product(
    reply: Tensor, ps: Sequence[Tensor], qs: Sequence[Tensor], outs: Sequence[Tensor], weight: float, form: Form
) -> None:
    if not _skinny(outs, qs):
        _one_by_one.product(reply, ps, qs, outs, weight, form)
        return
    rows, columns, ranks = _shapes(outs, qs)
    longer = list(map(max, rows, columns))
    assert reply.shape[-1] == _room(longer, ranks, form)
    if not _native.product_all(
        FORMS[form], *_incoming(reply), _addresses(outs), rows, columns, ranks, _addresses(ps), _addresses(qs), weight,
        torch.get_num_threads(),
    ):  # fmt: skip
        raise implausible_factors(reply, longer, ranks, form)


def _skinny(xs: Sequence[Tensor], qs: Sequence[Tensor]) -> bool:
    """Whether all are for the compiled products; by their shapes, so that every rank says the same."""
    assert all(tensor.is_contiguous() for tensor in (*xs, *qs))
    shapes = zip(*_shapes(xs, qs), strict=True)
    return all(rank <= native.MOST_RANK and columns >= native.FEWEST_COLUMNS for _, columns, rank in shapes)


def _shapes(xs: Sequence[Tensor], qs: Sequence[Tensor]) -> tuple[list[int], list[int], list[int]]:
    return [x.shape[0] for x in xs], [x.shape[1] for x in xs], [q.shape[1] for q in qs]


def _room(lengths: Iterable[int], ranks: Sequence[int], form: Form) -> int:
    return sum(map(form.room, lengths, ranks))


def _incoming(reply: Tensor) -> tuple[int, int, int]:
    """The address, how many rows, and how far apart."""
    assert reply.stride(-1) == 1
    rows, pitch = (reply.shape[0], reply.stride(0)) if reply.dim() == 2 else (1, 0)
    return reply.data_ptr(), rows, pitch


def implausible_codes(payloads: Tensor, sizes: Sequence[int], bits: int, bucket: int) -> Exception:
    """What to raise for codes of which a step can not have been sent."""
    own = torch.split(payloads, [quantized_bytes(n, bits, bucket) for n in sizes], 1)
    return refused(torch.cat([steps_and_codes(p, n, bits, bucket)[0] for p, n in zip(own, sizes, strict=True)], 1))


def implausible_factors(reply: Tensor, lengths: Sequence[int], ranks: Sequence[int], form: Form) -> Exception:
    """The same for factors in codes."""
    rooms = list(map(form.room, lengths, ranks))
    parts = zip(torch.split(reply, rooms, 1), ranks, strict=True)
    return refused(torch.cat([part[:, : 4 * rank].contiguous().view(torch.float32) for part, rank in parts], 1))
