"""Products with a few columns: true to rounding, and their order of addition independent of threads."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels import reference
from laconic.kernels.payload import factor_bytes
from laconic.kernels.reference.low_rank import wide

EPS = 2.0**-24
SHAPES = [(1, 1), (7, 16), (9, 17), (33, 100), (300, 31), (100, 100), (700, 16)]
RANKS = [1, 3, 4, 16, 33]


def _within(actual: Tensor, a: Tensor, b: Tensor, start: Tensor | None = None) -> None:
    """A sum of n products errs by at most about n * eps of the sum of their magnitudes (Higham, 3.1), in any order."""
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    if start is not None:
        exact, size = start.double() + exact, start.double().abs() + size
    assert bool(((actual.double() - exact).abs() <= (a.shape[1] + 2) * EPS * size + 1e-40).all())


def _factors(rows: int, columns: int, rank: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(rows * columns + rank)
    shapes = ((rows, columns), (rows, columns), (min(rows, columns), rank), (max(rows, columns), rank))
    x, residual, p, q = (torch.randn(*shape, generator=rng) for shape in shapes)
    return x, residual, p, q


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", RANKS)
def test_products(native: ModuleType, shape: tuple[int, int], rank: int) -> None:
    g, residual, p, q = _factors(*shape, rank)
    for on in (reference, native):
        x, sketched, back, out = g.clone(), torch.full_like(p, 7.0), torch.full_like(q, 7.0), torch.full_like(g, 7.0)
        energy = on.sketch(x, residual.view(-1), q, sketched)
        assert torch.equal(x, g + residual)
        assert energy == pytest.approx(float(x.double().square().sum()), rel=1e-10)
        _within(sketched, wide(x), q)
        on.sketch_back(x, p, back)
        _within(back, wide(x).T, p)
        before = x.clone()
        on.subtract_product(x, p, q)
        _within(wide(x), -p, q.T, wide(before))
        on.product(p, q, out)
        _within(wide(out), p, q.T)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_becomes_zero(native: ModuleType, bad: float) -> None:
    g, residual, p, q = _factors(33, 100, 4)
    g[11, 5] = bad
    for on in (reference, native):
        x, sketched = g.clone(), torch.full_like(p, 7.0)
        assert not torch.isfinite(torch.tensor(on.sketch(x, residual.view(-1), q, sketched)))
        assert not x.any()
        assert not sketched.any()


@pytest.mark.parametrize("shape", [(600, 1000), (1000, 600)])
def test_every_instruction_set_and_thread_count_returns_the_same_mean(
    two_threads: None, shape: tuple[int, int]
) -> None:
    """What ranks return must agree in every bit: p @ q.T rounds once a step, in one order."""
    compiled = pytest.importorskip("laconic.kernels.native", exc_type=ImportError)
    from laconic.kernels import _native

    _, _, p, q = _factors(*shape, 4)
    outs = []
    for chosen in _native.instruction_sets():
        _native.choose(chosen)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            outs.append(torch.empty(shape))
            compiled.product(p, q, outs[-1])
    _native.choose(_native.instruction_sets()[0])
    assert all(torch.equal(outs[0], out) for out in outs)


@pytest.mark.parametrize("bits", [8, 6, 4, 3])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (100, 4), (257, 16), (33, 40)])
@pytest.mark.parametrize(
    "what", ["plain", "with a column of zeros", "with unequal rows", "tiny", "large", "not finite"]
)
def test_coded_factors(native: ModuleType, shape: tuple[int, int], what: str, bits: int) -> None:
    """The same bytes everywhere, an error of half a step in each element, and sums of what was coded.

    A row's step is at most 9/8 of what its own largest element asks for, or 2^-31 of its column's.
    """
    (length, rank), rng = shape, torch.Generator().manual_seed(len(what))
    factor = torch.randn(length, rank, generator=rng) * torch.logspace(-3, 3, rank)
    factor[:, 0] *= 0.0 if "zeros" in what else 1.0
    factor *= {"tiny": 1e-42, "large": 1e34}.get(what, 1.0)
    factor *= torch.logspace(-12, 0, length).unsqueeze(1) if "rows" in what else 1.0
    factor[0, 0] = torch.inf if "not" in what else factor[0, 0]
    size = factor_bytes(length, rank, bits)
    told = []
    for on in (reference, native):
        meant, payload = factor.clone(), torch.full((size,), 0xA5, dtype=torch.uint8)
        on.code_factor(meant, payload, bits)
        total = torch.full_like(factor, 7.0)
        on.sum_factors(torch.stack([payload, payload]), total, 0.5, bits)
        assert torch.equal(total, meant)  # halves and sums of two are exact, or too small to matter to either
        told.append((payload, meant))
    assert torch.equal(told[0][0], told[1][0])
    assert torch.equal(told[0][1], told[1][1])
    if "not" in what:
        assert not told[0][1].any()
    elif what != "tiny":
        scale = factor.abs().amax(0).clamp_min(1e-45)
        share = (factor.abs() / scale).amax(1, keepdim=True)
        step = scale * torch.minimum(9 / 8 * share, torch.ones(())).clamp_min(2.0**-31) / (2 ** (bits - 1) - 1)
        assert bool(((told[0][1] - factor).abs() <= step * (0.5 + 1e-5)).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e36])
def test_a_factor_that_can_not_have_been_sent(native: ModuleType, bad: float) -> None:
    payloads = torch.zeros(2, factor_bytes(8, 2, 8), dtype=torch.uint8)
    payloads[1, :8].view(torch.float32)[1] = bad
    for on in (reference, native):
        total = torch.full((8, 2), 7.0)
        with pytest.raises(CorruptPayload, match="can not have been sent"):
            on.sum_factors(payloads, total, 1.0, 8)
        assert bool((total == 7.0).all())
