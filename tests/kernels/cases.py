"""Every kernel as a function of (backend, x, residual, dice): all that it returns and writes."""

from collections.abc import Callable
from random import Random

import pytest
import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.index import code_bytes
from laconic.kernels.payload import ternary_bytes
from laconic.kernels.schema import Kernels

Outcome = list[float | int | Tensor]  # the energy first, where there is one
Case = Callable[[Kernels, Tensor, Tensor | None, Random], Outcome]


def _bytes(count: int) -> Tensor:
    return torch.full((count,), 0xA5, dtype=torch.uint8)


def energy(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    return [on.energy(x)]


def fold(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    return [on.fold(x, residual), x]


def settle(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    kept = torch.ones_like(x)
    on.settle(x, kept)
    return [0.0, x, kept]


def quantize(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    n, bits, bucket = x.numel(), dice.randint(1, 8), dice.choice([8, 9, 50, 64, 512, 1000, 1500, 5000])
    codes, steps = _bytes(-(-n * bits // 8)), torch.zeros(-(-n // bucket))
    seed = dice.choice([None, dice.getrandbits(62)])
    total = on.quantize(x, residual, codes, steps, bits, bucket, dice.random() < 0.5, seed)
    out = torch.ones(n)
    if bool(torch.isfinite(steps).all()):  # the norm of huge elements is beyond float32
        on.dequantize_add(codes, steps, out, bits, bucket, 1 / 3)
    else:
        with pytest.raises(CorruptPayload):
            on.dequantize_add(codes, steps, out, bits, bucket, 1 / 3)
    return [total, x, codes, steps, out]


def requantize(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    n, bits, bucket, rows = x.numel(), dice.randint(1, 8), dice.choice([8, 9, 64, 512, 5000]), dice.randint(1, 3)
    size, split = -(-n * bits // 8), 8 + 8 * -(-n // bucket)
    payloads = torch.zeros(rows, split + -(-size // 8) * 8, dtype=torch.uint8)
    steps = payloads.view(torch.float32)[:, : -(-n // bucket)]
    for row in range(rows):
        on.quantize(
            x.clone() * (row + 1), residual, payloads[row, split : split + size], steps[row], bits, bucket, False, None
        )
    codes_out, steps_out, left = _bytes(size), torch.zeros(-(-n // bucket)), torch.ones(n)
    seed = dice.choice([None, dice.getrandbits(62)])
    coded = payloads[:, split : split + size]
    total = on.requantize(coded, steps, left, codes_out, steps_out, bits, bucket, dice.random() < 0.5, seed)
    return [total, left, codes_out, steps_out]


def _picked(on: Kernels, x: Tensor, indices: Tensor, values: Tensor, room: int) -> Outcome:
    n = x.numel()
    code = _bytes(code_bytes(n, room))
    on.pack_indices(indices, n, room, code)
    back = torch.empty_like(indices)
    on.unpack_indices(code, n, room, back)
    out = torch.ones(n)
    on.scatter_add(back, values, out, 1 / 3)
    return [x, indices, values, code, back, out]


def top_k(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    k = min(x.numel(), dice.choice([0, 1, x.numel() // 100, x.numel() // 10, x.numel() // 2, x.numel()]))
    indices, values = torch.zeros(k, dtype=torch.int32), torch.zeros(k)
    return [on.top_k(x, residual, indices, values), *_picked(on, x, indices, values, k)]


def _share(x: Tensor, dice: Random, slack: float) -> tuple[int, Tensor, Tensor]:
    n = x.numel()
    k = min(n, max(1, dice.choice([1, n // 1000, n // 100, n // 10, n // 2])))
    room = min(n, int(slack * k) + 1)
    return k, torch.zeros(room, dtype=torch.int32), torch.zeros(room)


def sampled_top_k(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    k, indices, values = _share(x, dice, 1.3)
    total, count = on.sampled_top_k(x, residual, k, indices, values)
    return [total, count, *_picked(on, x, indices[:count], values[:count], len(indices))]


def threshold(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    k, indices, values = _share(x, dice, 2.0)
    total, count = on.threshold(x, residual, k, indices, values)
    return [total, count, *_picked(on, x, indices[:count], values[:count], len(indices))]


def random_k(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    k = min(x.numel(), dice.choice([1, x.numel() // 7, x.numel()]))
    indices, values = torch.zeros(k, dtype=torch.int32), torch.zeros(k)
    total = on.fold(x, residual)
    on.strata(x.numel(), dice.getrandbits(62), indices)
    on.take(x, indices, values)
    return [total, *_picked(on, x, indices, values, k)]


def sign(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    bits = _bytes(-(-x.numel() // 8))
    total, below, above = on.sign(x, residual, bits, dice.random() < 0.5)
    out = torch.ones(x.numel())
    on.unsign_add(bits, below, above, out, 1 / 3)
    return [total, torch.tensor([below, above]), x, bits, out]


def majority(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    voters, size = dice.randint(1, 9), x.numel() // 16
    rows = torch.tensor(list(dice.randbytes(voters * (size + 3))), dtype=torch.uint8).view(voters, size + 3)
    out = _bytes(size)
    on.majority(rows[:, :size], out)
    return [0.0, out]


def natural(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    codes = _bytes(x.numel())
    total, exponent = on.natural(x, residual, codes, dice.getrandbits(62))
    out = torch.ones(x.numel())
    on.unnatural_add(codes, exponent, out, 1 / 3)
    return [total, exponent, x, codes, out]


def adacomp(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    bin = dice.choice([2, 16, 50, 63, 64, 500, 3000])
    width = 1 if bin < 64 else 2
    most = x.numel() + -(-x.numel() // bin)
    words = _bytes(width * dice.choice([most, most // 3, most // 20]))
    total, scale, wanted = on.adacomp(x, residual, bin, words)
    out = torch.ones(x.numel())
    on.unadacomp_add(words, min(wanted, words.numel() // width), scale, bin, out, 1 / 3)
    return [total, wanted, torch.tensor([scale]), x, words, out]


def ternary(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    bucket, bits = dice.choice([8, 9, 64, 512, 1000, 4096]), dice.choice([0.1, 0.3, 0.5, 1.0, 2.0])
    each = max(16, int(bits * bucket / 8))
    payload = _bytes(ternary_bytes(x.numel(), bucket, each))
    total = on.ternary(x, residual, payload, bucket, each)
    out = torch.ones(x.numel())
    on.unternary_add(payload, out, bucket, each, 1 / 3)
    return [total, x, payload, out]


def narrow(on: Kernels, x: Tensor, residual: Tensor | None, dice: Random) -> Outcome:
    code = torch.zeros(x.numel(), dtype=dice.choice([torch.float16, torch.bfloat16]))
    total = on.narrow(x, residual, code, dice.choice([1.0, 0.5, 1 / 3]))
    out = torch.ones(x.numel())
    on.widen_add(code, out, 1 / 3)
    return [total, x, code, out]


CASES: list[Case] = [
    energy, fold, settle, quantize, requantize, top_k, sampled_top_k, threshold, random_k, sign, majority, natural,
    adacomp, ternary, narrow,
]  # fmt: skip
