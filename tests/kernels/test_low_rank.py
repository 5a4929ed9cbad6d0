"""Products with a few columns: true to rounding, and their order of addition independent of threads."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from laconic.kernels import reference

EPS = 2.0**-24
SHAPES = [(1, 1), (7, 16), (9, 17), (33, 100), (300, 31)]
RANKS = [1, 3, 4, 16, 33]


def _within(actual: Tensor, a: Tensor, b: Tensor, start: Tensor | None = None) -> None:
    """A sum of n products errs by at most about n * eps of the sum of their magnitudes (Higham, 3.1), in any order."""
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    if start is not None:
        exact, size = start.double() + exact, start.double().abs() + size
    assert bool(((actual.double() - exact).abs() <= (a.shape[1] + 2) * EPS * size + 1e-40).all())


def _factors(rows: int, columns: int, rank: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(rows * columns + rank)
    shapes = ((rows, columns), (rows, columns), (rows, rank), (columns, rank))
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
        _within(sketched, x, q)
        on.sketch_back(x, p, back)
        _within(back, x.T, p)
        before = x.clone()
        on.subtract_product(x, p, q)
        _within(x, -p, q.T, before)
        on.product(p, q, out)
        _within(out, p, q.T)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_becomes_zero(native: ModuleType, bad: float) -> None:
    g, residual, p, q = _factors(33, 100, 4)
    g[11, 5] = bad
    for on in (reference, native):
        x, sketched = g.clone(), torch.full_like(p, 7.0)
        assert not torch.isfinite(torch.tensor(on.sketch(x, residual.view(-1), q, sketched)))
        assert not x.any()
        assert not sketched.any()


def test_every_instruction_set_and_thread_count_returns_the_same_mean(two_threads: None) -> None:
    """What ranks return must agree in every bit: p @ q.T rounds once a step, in one order."""
    compiled = pytest.importorskip("laconic.kernels.native", exc_type=ImportError)
    from laconic.kernels import _native

    _, _, p, q = _factors(600, 1000, 4)
    outs = []
    for chosen in _native.instruction_sets():
        _native.choose(chosen)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            outs.append(torch.empty(600, 1000))
            compiled.product(p, q, outs[-1])
    _native.choose(_native.instruction_sets()[0])
    assert all(torch.equal(outs[0], out) for out in outs)
