"""How fast the kernels are, beside memcpy and beside the reference: one run, interleaved, the best of several."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from laconic import kernels
from laconic.kernels import reference
from laconic.kernels.schema import Kernels

ROUNDS = 7  # of the kernels; the reference, being slow, takes part in the first two
REFERENCE_ROUNDS = 2


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


def _jobs(g: Tensor, residual: Tensor, x: Tensor, out: Tensor) -> Iterator[tuple[str, bool, Job]]:
    """(name, whether x must be restored first, call). A decoder reads what the encoder before it wrote."""
    n, bucket = g.numel(), 512

    def quantised(bits: int, seed: int | None) -> tuple[Job, Job]:
        codes = torch.empty(-(-n * bits // 8), dtype=torch.uint8)
        steps = torch.empty(-(-n // bucket))
        return (
            lambda on: on.quantize(x, residual, codes, steps, bits, bucket, False, seed),
            lambda on: on.dequantize_add(codes, steps, out, bits, bucket, 0.5),
        )

    for bits in (8, 4, 1):
        encode, decode = quantised(bits, None)
        yield f"quantize {bits} bit", True, encode
        yield f"dequantize-add {bits} bit", False, decode
    yield "quantize 4 bit, stochastic", True, quantised(4, 12345)[0]

    rows = torch.zeros(2, n // 2 + 4 * -(-n // bucket), dtype=torch.uint8)
    steps = rows.view(torch.float32)[:, : -(-n // bucket)]
    codes_out, steps_out = torch.empty(-(-n // 2), dtype=torch.uint8), torch.empty(-(-n // bucket))
    coded = rows[:, 4 * -(-n // bucket) :]
    yield (
        "sum of 2 and requantize 4 bit",
        False,
        lambda on: on.requantize(coded, steps, x, codes_out, steps_out, 4, bucket, False, None),
    )

    bits_ = torch.empty(-(-n // 8), dtype=torch.uint8)
    yield "sign", True, lambda on: on.sign(x, residual, bits_, False)
    yield "unsign-add", False, lambda on: on.unsign_add(bits_, -1.0, 1.0, out, 0.5)

    for share in (0.001, 0.01, 0.1):
        k = max(1, round(n * share))
        indices, values = torch.empty(k, dtype=torch.int32), torch.empty(k)
        yield f"top-k {share:.1%}", True, lambda on, i=indices, v=values: on.top_k(x, residual, i, v)
        if share == 0.01:
            yield "scatter-add 1.0%", False, lambda on, i=indices, v=values: on.scatter_add(i, v, out, 0.5)
        room = min(n, int(1.3 * k) + 1)
        some, many = torch.empty(room, dtype=torch.int32), torch.empty(room)
        yield f"sampled top-k {share:.1%}", True, lambda on, k=k, i=some, v=many: on.sampled_top_k(x, residual, k, i, v)
    k = max(1, n // 100)
    twice, those = torch.empty(min(n, 2 * k), dtype=torch.int32), torch.empty(min(n, 2 * k))
    yield "threshold 1.0%", True, lambda on: on.threshold(x, residual, k, twice, those)
    tenth, picked = torch.empty(max(1, n // 10), dtype=torch.int32), torch.empty(max(1, n // 10))

    def random_k(on: Kernels) -> None:
        on.fold(x, residual)
        on.strata(n, 7, tenth)
        on.take(x, tenth, picked)

    yield "random-k 10%", True, random_k

    for bin in (500, 50):
        words = torch.empty(n // 4 + 64, dtype=torch.uint8)
        yield f"adacomp {bin}", True, lambda on, b=bin, w=words: on.adacomp(x, residual, b, w)
    codes = torch.empty(n, dtype=torch.uint8)
    yield "natural", True, lambda on: on.natural(x, residual, codes, 7)
    yield "unnatural-add", False, lambda on: on.unnatural_add(codes, 3, out, 0.5)
    for dtype, label in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        narrow = torch.empty(n, dtype=dtype)
        yield f"{label} with residual", True, lambda on, c=narrow: on.narrow(x, residual, c, 1.0)
        yield f"{label} widen-add", False, lambda on, c=narrow: on.widen_add(c, out, 0.5)

    yield "fold", True, lambda on: on.fold(x, residual)
    yield "settle", True, lambda on: on.settle(x, out)
    yield "errors of 1 to 8 bits", True, lambda on: on.quantize_errors(x, bucket, False)
    ks = [max(1, n // part) for part in (10, 30, 100, 300, 1000)]
    yield "errors of 5 top-k rungs", True, lambda on: on.top_k_errors(x, ks)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(numel: int, threads: int, with_reference: bool = True) -> Report:
    """Time every kernel; all at once within each round, so that a disturbance hits them alike."""
    generator = torch.Generator().manual_seed(0)
    g, residual = torch.randn(numel, generator=generator), torch.randn(numel, generator=generator)
    x, out = g.clone(), torch.zeros(numel)
    fast = kernels.of(x)
    jobs = list(_jobs(g, residual, x, out))
    best: dict[tuple[str, str], float] = {}

    def timed(key: tuple[str, str], call: Callable[[], object]) -> None:
        started = perf_counter()
        call()
        best[key] = min(best.get(key, float("inf")), perf_counter() - started)

    with _threads(threads):
        for turn in range(ROUNDS):
            for name, spoils, job in jobs:
                timed(("memcpy", ""), lambda: x.copy_(g))
                if with_reference and turn < REFERENCE_ROUNDS:
                    timed((name, reference.name), lambda job=job: job(reference))  # type: ignore[misc]
                    if spoils:
                        x.copy_(g)
                timed((name, fast.name), lambda job=job: job(fast))  # type: ignore[misc]
    speed = {key: 4e-9 * numel / seconds for key, seconds in best.items()}
    memcpy = speed["memcpy", ""]
    table = [
        Speed(name, fast.name, speed[name, fast.name], speed[name, fast.name] / memcpy,
              speed[name, fast.name] / speed.get((name, reference.name), float("nan")))
        for name, _, _ in jobs
    ]  # fmt: skip
    return Report(numel, threads, memcpy, table)
