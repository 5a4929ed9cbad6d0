"""How fast the kernels are, beside memcpy and beside the reference: one run, interleaved, the best of several."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import cast

import torch
from torch import Tensor

from laconic import kernels
from laconic.kernels import reference
from laconic.kernels.payload import ternary_bytes
from laconic.kernels.schema import Kernels

ROUNDS = 20  # of the kernels; the reference, being slow, takes part in the first
REFERENCE_ROUNDS = 1
REST = 0.02  # seconds after torch used several threads: until they sleep they spin, on the core that a kernel wants


@dataclass(frozen=True)
class Speed:
    """GB/s of gradient, which is 4 bytes an element, whatever the kernel moves besides."""

    name: str
    backend: str
    gbps: float
    of_memcpy: float
    over_reference: float


@dataclass(frozen=True)
class Report:
    """One run on one machine."""

    numel: int
    threads: int
    memcpy_gbps: float
    kernels: list[Speed]


Job = Callable[[Kernels], object]


def _call(kernel: str, *arguments: object) -> Job:
    return lambda on: getattr(on, kernel)(*arguments)


def _bytes(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.uint8)


def _picks(count: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(count, dtype=torch.int32), torch.zeros(count)


def _jobs(x: Tensor, residual: Tensor, out: Tensor) -> Iterator[tuple[str, Job]]:
    """Every kernel by name. A decoder reads what the encoder before it wrote."""
    n, bucket = x.numel(), 512
    buckets = -(-n // bucket)
    for bits in (8, 4, 1):
        codes, steps = _bytes(-(-n * bits // 8)), torch.zeros(buckets)
        yield f"quantize {bits} bit", _call("quantize", x, residual, codes, steps, bits, bucket, False, None)
        yield f"dequantize-add {bits} bit", _call("dequantize_add", codes, steps, out, bits, bucket, 0.5)
    codes, steps = _bytes(-(-n // 2)), torch.zeros(buckets)
    yield "quantize 4 bit, stochastic", _call("quantize", x, residual, codes, steps, 4, bucket, False, 12345)
    rows = torch.zeros(2, 4 * (buckets + -(-n // 8)), dtype=torch.uint8)
    those = rows[:, 4 * buckets :], rows.view(torch.float32)[:, :buckets]
    yield "sum of 2 and requantize 4 bit", _call("requantize", *those, x, codes, steps, 4, bucket, False, None)

    signs = _bytes(-(-n // 8))
    yield "sign", _call("sign", x, residual, signs, False)
    yield "unsign-add", _call("unsign_add", signs, -1.0, 1.0, out, 0.5)

    for share in (0.001, 0.01, 0.1):
        k = max(1, round(n * share))
        found = _picks(k)
        yield f"top-k {share:.1%}", _call("top_k", x, residual, *found)
        yield f"scatter-add {share:.1%}", _call("scatter_add", *found, out, 0.5)
        yield f"sampled top-k {share:.1%}", _call("sampled_top_k", x, residual, k, *_picks(min(n, int(1.3 * k) + 1)))
    yield "threshold 1.0%", _call("threshold", x, residual, max(1, n // 100), *_picks(max(1, n // 50)))
    tenth = _picks(max(1, n // 10))

    def random_k(on: Kernels) -> None:
        on.fold(x, residual)
        on.strata(n, 7, tenth[0])
        on.take(x, *tenth)

    yield "random-k 10%", random_k

    for bin in (500, 50):
        yield f"adacomp {bin}", _call("adacomp", x, residual, bin, _bytes(n // 4 + 64))
    coded = _bytes(ternary_bytes(n, 2048, 128))
    yield "ternary 0.5 bit", _call("ternary", x, residual, coded, 2048, 128)
    yield "unternary-add 0.5 bit", _call("unternary_add", coded, out, 2048, 128, 0.5)
    powers = _bytes(n)
    yield "natural", _call("natural", x, residual, powers, 7)
    yield "unnatural-add", _call("unnatural_add", powers, 3, out, 0.5)
    for dtype, label in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        narrow = torch.zeros(n, dtype=dtype)
        yield label, _call("narrow", x, residual, narrow, 1.0)
        yield f"{label} widen-add", _call("widen_add", narrow, out, 0.5)

    yield "fold", _call("fold", x, residual)
    yield "settle", _call("settle", x, out)
    yield "errors of 1 to 8 bits", _call("quantize_errors", x, bucket, False)
    yield "errors of 5 top-k rungs", _call("top_k_errors", x, [max(1, n // part) for part in (10, 30, 100, 300, 1000)])


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(numel: int, threads: int, with_reference: bool = True) -> Report:
    """Time every kernel, one after another in every round, so that a disturbance hits them all alike."""
    generator = torch.Generator().manual_seed(0)
    g, residual = torch.randn(numel, generator=generator), torch.randn(numel, generator=generator)
    x, out = g.clone(), torch.zeros(numel)
    fast, plain = kernels.of(x), cast(Kernels, reference)
    jobs = list(_jobs(x, residual, out))
    best: dict[tuple[str, str], float] = {}

    def timed(name: str, backend: str, call: Callable[[], object]) -> None:
        started = perf_counter()
        call()
        best[name, backend] = min(best.get((name, backend), float("inf")), perf_counter() - started)

    with _threads(threads):
        for turn in range(ROUNDS):
            for name, job in jobs:
                for on in (plain, fast) if with_reference and turn < REFERENCE_ROUNDS else (fast,):
                    timed("memcpy", "", partial(x.copy_, g))
                    if threads > 1:
                        sleep(REST)
                    timed(name, on.name, partial(job, on))
    memcpy, table = best["memcpy", ""], []
    for name, _ in jobs:
        seconds = best[name, fast.name]
        over = best.get((name, reference.name), float("nan")) / seconds
        table.append(Speed(name, fast.name, 4e-9 * numel / seconds, memcpy / seconds, over))
    return Report(numel, threads, 4e-9 * numel / memcpy, table)
