"""The kernels in C++ (csrc/): the same schemas on CPU tensors of float32, called by address with the GIL released."""

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels import _native, reference
from laconic.kernels.index import bitmap_bytes, code_bytes, low_bits
from laconic.kernels.plausible import refused
from laconic.kernels.reference.low_rank import wide
from laconic.kernels.reference.natural import EXPONENTS
from laconic.kernels.reference.ternary import LARGEST_TERNARY_BUCKET, misspelled
from laconic.kernels.sampling import BISECTIONS, sample

name = "native"
LARGE = 1 << 18  # elements from which on a second thread pays
LARGEST_BUCKET = 1 << 20
LARGEST_BIN = 16383
MOST_RANK, FEWEST_COLUMNS = 32, 16  # beyond them torch's products are faster (benchmarks/low_rank.py)


def _threads(numel: int) -> int:
    return torch.get_num_threads() if numel >= LARGE else 1


def _floats(residual: Tensor | None) -> Tensor | None:
    """A residual in float32; the caller holds on to it while its address is in use."""
    return residual if residual is None or residual.dtype is torch.float32 else residual.float()


def _at(residual: Tensor | None) -> int:
    return 0 if residual is None else residual.data_ptr()


def energy(x: Tensor) -> float:
    n = x.numel()
    return _native.energy(x.data_ptr(), n, _threads(n))


def fold(x: Tensor, residual: Tensor | None) -> float:
    n, r = x.numel(), _floats(residual)
    return _native.fold(x.data_ptr(), _at(r), n, _threads(n))


def settle(x: Tensor, residual: Tensor) -> None:
    if residual.dtype is torch.float32:
        n = x.numel()
        _native.settle(x.data_ptr(), residual.data_ptr(), n, _threads(n))
    else:
        residual.copy_(x)
        x.zero_()


def quantize(
    x: Tensor, residual: Tensor | None, codes: Tensor, steps: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> float:  # fmt: skip
    n, r = x.numel(), _floats(residual)
    assert 8 * codes.numel() >= n * bits
    assert steps.numel() * bucket >= n
    assert bucket <= LARGEST_BUCKET
    return _native.quantize(
        x.data_ptr(), _at(r), n, codes.data_ptr(), steps.data_ptr(), bits, bucket, l2, seed, _threads(n)
    )


def dequantize_add(codes: Tensor, steps: Tensor, out: Tensor, bits: int, bucket: int, weight: float) -> None:
    n = out.numel()
    assert 8 * codes.numel() >= n * bits
    assert steps.numel() * bucket >= n
    if not _native.dequantize_add(
        codes.data_ptr(), steps.data_ptr(), out.data_ptr(), n, bits, bucket, weight, _threads(n)
    ):
        raise refused(steps)


def requantize(
    codes: Tensor, steps: Tensor, x: Tensor, codes_out: Tensor, steps_out: Tensor,
    bits: int, bucket: int, l2: bool, seed: int | None,
) -> float:  # fmt: skip
    n, rows, pitch = x.numel(), codes.shape[0], codes.stride(0)
    assert 8 * codes.shape[1] >= n * bits <= 8 * codes_out.numel()
    assert bucket <= LARGEST_BUCKET
    assert steps.shape[1] * bucket >= n <= steps_out.numel() * bucket
    assert steps.shape[0] == rows
    assert rows < 2 or 4 * steps.stride(0) == pitch, "codes and steps are rows of one array of payloads"
    return _native.requantize(
        codes.data_ptr(), steps.data_ptr(), rows, pitch, x.data_ptr(), n, codes_out.data_ptr(), steps_out.data_ptr(),
        bits, bucket, l2, seed, _threads(n),
    )  # fmt: skip


def top_k(x: Tensor, residual: Tensor | None, indices: Tensor, values: Tensor) -> float:
    n, k, r = x.numel(), indices.numel(), _floats(residual)
    assert values.numel() >= k
    return _native.top_k(x.data_ptr(), _at(r), n, k, indices.data_ptr(), values.data_ptr(), _threads(n))


def sampled_top_k(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[float, int]:
    n, room, r = x.numel(), indices.numel(), _floats(residual)
    assert min(k, n) <= room <= values.numel()
    stride, share = sample(n, k) if n else (1, 1)
    return _native.sampled_top_k(
        x.data_ptr(), _at(r), n, k, room, stride, share, indices.data_ptr(), values.data_ptr(), _threads(n)
    )


def threshold(x: Tensor, residual: Tensor | None, k: int, indices: Tensor, values: Tensor) -> tuple[float, int]:
    n, room, r = x.numel(), indices.numel(), _floats(residual)
    assert min(k, n) <= room <= values.numel()
    return _native.threshold(
        x.data_ptr(), _at(r), n, k, room, BISECTIONS, indices.data_ptr(), values.data_ptr(), _threads(n)
    )


def strata(numel: int, seed: int, indices: Tensor) -> None:
    _native.strata(numel, seed, indices.data_ptr(), indices.numel(), _threads(numel))


def take(x: Tensor, indices: Tensor, values: Tensor) -> None:
    n, k = x.numel(), indices.numel()
    assert values.numel() >= k
    if not _native.take(x.data_ptr(), n, indices.data_ptr(), k, values.data_ptr(), _threads(n)):
        raise IndexError(f"an index lies outside the layer's {n} elements")


def scatter_add(indices: Tensor, values: Tensor, out: Tensor, weight: float) -> None:
    k, n = indices.numel(), out.numel()
    assert values.numel() >= k
    if not _native.scatter_add(indices.data_ptr(), values.data_ptr(), k, out.data_ptr(), n, weight, _threads(n)):
        raise CorruptPayload(f"an index lies outside the layer's {n} elements")


def pack_indices(indices: Tensor, numel: int, room: int, code: Tensor) -> None:
    low, split, count = low_bits(numel, room), bitmap_bytes(numel, room), indices.numel()
    if not _native.pack_indices(indices.data_ptr(), count, low, split, code.data_ptr(), code.numel()):
        raise IndexError(f"{count} indices below {numel} do not fit a code for {room}")


def unpack_indices(code: Tensor, numel: int, room: int, indices: Tensor) -> None:
    low, split, count = low_bits(numel, room), bitmap_bytes(numel, room), indices.numel()
    assert count <= room
    assert code.numel() >= code_bytes(numel, room)
    found = _native.unpack_indices(code.data_ptr(), code.numel(), low, split, numel, indices.data_ptr(), count)
    if found < 0:
        raise CorruptPayload(f"an index lies outside the layer's {numel} elements")
    if found < count:
        raise CorruptPayload(f"an index code holds {found} indices where its header says {count}")


def sign(x: Tensor, residual: Tensor | None, bits: Tensor, two_sided: bool) -> tuple[float, float, float]:
    n, r = x.numel(), _floats(residual)
    assert 8 * bits.numel() >= n
    return _native.sign(x.data_ptr(), _at(r), n, bits.data_ptr(), two_sided, _threads(n))


def unsign_add(bits: Tensor, clear: float, set_: float, out: Tensor, weight: float) -> None:
    n = out.numel()
    assert 8 * bits.numel() >= n
    _native.unsign_add(bits.data_ptr(), clear * weight, set_ * weight, out.data_ptr(), n, _threads(n))


def majority(rows: Tensor, out: Tensor) -> None:
    assert rows.shape[1] >= out.numel()
    _native.majority(rows.data_ptr(), rows.shape[0], rows.stride(0), out.data_ptr(), out.numel())


def natural(x: Tensor, residual: Tensor | None, codes: Tensor, seed: int) -> tuple[float, int]:
    n, r = x.numel(), _floats(residual)
    assert codes.numel() >= n
    return _native.natural(x.data_ptr(), _at(r), n, codes.data_ptr(), seed, _threads(n))


def unnatural_add(codes: Tensor, exponent: int, out: Tensor, weight: float) -> None:
    n = out.numel()
    assert codes.numel() >= n
    if exponent not in EXPONENTS:
        raise CorruptPayload(f"the exponent {exponent} is none of float32")
    _native.unnatural_add(codes.data_ptr(), exponent, out.data_ptr(), n, weight, _threads(n))


def adacomp(x: Tensor, residual: Tensor | None, bin: int, words: Tensor) -> tuple[float, float, int]:
    n, r = x.numel(), _floats(residual)
    assert bin <= LARGEST_BIN
    return _native.adacomp(x.data_ptr(), _at(r), n, bin, words.data_ptr(), words.numel(), _threads(n))


def unadacomp_add(words: Tensor, count: int, scale: float, bin: int, out: Tensor, weight: float) -> None:
    n, held = out.numel(), words.numel() // (1 if bin < 64 else 2)
    if not 0 <= count <= held:
        raise CorruptPayload(f"{count} words are announced where the payload holds {held}")
    if not _native.unadacomp_add(words.data_ptr(), count, scale, bin, out.data_ptr(), n, weight):
        raise CorruptPayload(f"an index lies outside the layer's {n} elements or its bin of {bin}")


def ternary(x: Tensor, residual: Tensor | None, payload: Tensor, bucket: int, each: int) -> float:
    n, r = x.numel(), _floats(residual)
    assert bucket <= LARGEST_TERNARY_BUCKET
    assert payload.numel() == _native.ternary_bytes(n, bucket, each)
    return _native.ternary(x.data_ptr(), _at(r), n, bucket, each, payload.data_ptr(), _threads(n))


def unternary_add(payload: Tensor, out: Tensor, bucket: int, each: int, weight: float) -> None:
    n = out.numel()
    assert bucket <= LARGEST_TERNARY_BUCKET
    assert payload.numel() == _native.ternary_bytes(n, bucket, each)
    if not _native.unternary_add(payload.data_ptr(), bucket, each, out.data_ptr(), n, weight, _threads(n)):
        raise misspelled(n, bucket)


def narrow(x: Tensor, residual: Tensor | None, code: Tensor, weight: float) -> float:
    n, r = x.numel(), _floats(residual)
    assert code.numel() >= n
    assert code.dtype.itemsize == 2
    brain = code.dtype is torch.bfloat16
    return _native.narrow(x.data_ptr(), _at(r), code.data_ptr(), n, weight, brain, _threads(n))


def widen_add(code: Tensor, out: Tensor, weight: float) -> None:
    n = out.numel()
    assert code.numel() >= n
    assert code.dtype.itemsize == 2
    _native.widen_add(code.data_ptr(), out.data_ptr(), n, weight, code.dtype is torch.bfloat16, _threads(n))


def _skinny(x: Tensor, p: Tensor, q: Tensor) -> bool:
    """Whether these factors are for the kernels here, which are then sure to fit."""
    (rows, columns), rank = x.shape, q.shape[1]
    assert p.shape == (min(rows, columns), rank)
    assert q.shape == (max(rows, columns), rank)
    return rank <= MOST_RANK and columns >= FEWEST_COLUMNS and all(each.is_contiguous() for each in (x, p, q))


def sketch(x: Tensor, residual: Tensor | None, q: Tensor, p: Tensor) -> float:
    if not _skinny(x, p, q):
        total = fold(x.view(-1), residual)
        torch.mm(wide(x), q, out=p)
        return total
    (rows, columns), rank, r = x.shape, q.shape[1], _floats(residual)
    return _native.sketch(x.data_ptr(), _at(r), rows, columns, q.data_ptr(), rank, p.data_ptr(), _threads(x.numel()))


def sketch_back(x: Tensor, p: Tensor, q: Tensor) -> None:
    if not _skinny(x, p, q):
        return reference.sketch_back(x, p, q)
    (rows, columns), rank = x.shape, q.shape[1]
    return _native.sketch_back(x.data_ptr(), rows, columns, p.data_ptr(), rank, q.data_ptr(), _threads(x.numel()))


def _add_product(x: Tensor, p: Tensor, q: Tensor, weight: float, fresh: bool) -> None:
    (rows, columns), rank = x.shape, q.shape[1]
    _native.add_product(
        x.data_ptr(), rows, columns, p.data_ptr(), q.data_ptr(), rank, weight, fresh, _threads(x.numel())
    )


def subtract_product(x: Tensor, p: Tensor, q: Tensor) -> None:
    _add_product(x, p, q, -1.0, False) if _skinny(x, p, q) else reference.subtract_product(x, p, q)


def product(p: Tensor, q: Tensor, out: Tensor) -> None:
    _add_product(out, p, q, 1.0, True) if _skinny(out, p, q) else reference.product(p, q, out)


def code_factor(factor: Tensor, payload: Tensor, bits: int) -> None:
    length, rank = factor.shape
    assert factor.is_contiguous()
    assert payload.numel() == _native.factor_bytes(length, rank, bits)
    _native.code_factor(factor.data_ptr(), length, rank, bits, payload.data_ptr())


def sum_factors(payloads: Tensor, total: Tensor, weight: float, bits: int) -> None:
    length, rank = total.shape
    assert total.is_contiguous()
    assert payloads.stride(1) == 1
    assert payloads.shape[1] == _native.factor_bytes(length, rank, bits)
    if not _native.sum_factors(
        payloads.data_ptr(), payloads.shape[0], payloads.stride(0), length, rank, bits, weight, total.data_ptr()
    ):
        raise refused(payloads[:, : 4 * rank].view(torch.float32))


def quantize_errors(x: Tensor, bucket: int, l2: bool) -> list[float]:
    n = x.numel()
    assert bucket <= LARGEST_BUCKET
    return _native.quantize_errors(x.data_ptr(), n, bucket, l2, _threads(n))


def top_k_errors(x: Tensor, ks: Sequence[int]) -> list[float]:
    n = x.numel()
    return _native.top_k_errors(x.data_ptr(), n, list(ks), _threads(n))
