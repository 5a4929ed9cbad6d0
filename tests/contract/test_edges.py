"""Zeros, constants, one element, none, no dimension, primes, fewer than ranks, whole densities, huge and tiny."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from laconic import Cast, PowerSGD, RandomK, Threshold, TopK
from laconic.exchange import Compressor
from laconic.layer import Layer
from tests.contract.conversation import Ranks, gradients
from tests.contract.members import MEMBERS, WORLDS

every_member = pytest.mark.parametrize("member", MEMBERS, ids=str)
SHAPES = ((), (0,), (1,), (3, 0), (0, 3), (1, 1), (2,), (3,), (7,), (1, 31), (31, 1), (2, 1, 1, 5), (61,))


def check_step(ranks: Ranks, xs: list[Tensor], given: Tensor, received: Tensor) -> None:
    """One step of agreement and conservation; the running sums are brought forward."""
    given += sum(x.double() for x in xs) / ranks.size
    outs = ranks.step(xs)
    assert all(torch.equal(out, outs[0]) for out in outs[1:])
    assert all(out.shape == ranks.layer.shape for out in outs)
    received += outs[0].double()
    gap = (given - received - ranks.mean_residual()).abs()
    assert not gap.numel() or float(gap.max()) <= ranks.tolerance()


@pytest.mark.parametrize(("size", "node_size"), [(1, 1), (3, 1), (4, 2)])
@every_member
def test_odd_shapes(member: Compressor, size: int, node_size: int) -> None:
    for shape in SHAPES:
        ranks = Ranks(member, Layer("layer", shape), size, node_size)
        given, received = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
        for step in range(2):
            check_step(ranks, gradients(ranks.layer, size, step), given, received)


@pytest.mark.parametrize("steps", [20, pytest.param(1000, marks=pytest.mark.slow)])
@every_member
def test_zeros_stay_exactly_zero(member: Compressor, steps: int) -> None:
    """And what comes after them is sent."""
    layer = Layer("layer", (3, 5))
    ranks = Ranks(member, layer, 2)
    zeros = [torch.zeros(3, 5)] * 2
    for _ in range(steps):
        outs = ranks.step(zeros)
        assert not outs[0].any()
    assert not any(residual.any() for residual in ranks.residuals if residual is not None)
    given, received = torch.zeros(3, 5, dtype=torch.float64), torch.zeros(3, 5, dtype=torch.float64)
    for step in range(10):
        check_step(ranks, gradients(layer, 2, step), given, received)
    assert float(received.abs().max()) > 0


@every_member
def test_constants_and_ties(member: Compressor) -> None:
    layer = Layer("layer", (4, 6))
    for value in (1.0, -0.1, 1e-30):
        ranks = Ranks(member, layer, 3)
        given, received = torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4, 6, dtype=torch.float64)
        for _ in range(4):
            check_step(ranks, [torch.full((4, 6), value)] * 3, given, received)


@pytest.mark.parametrize("member", [TopK(density=1.0), RandomK(density=1.0), Threshold(density=1.0)], ids=str)
def test_everything_selected_is_dense(member: Compressor) -> None:
    layer = Layer("layer", (5, 7))
    xs = gradients(layer, 2, 0)
    ranks = Ranks(member, layer, 2)
    out = ranks.step(xs)[0]
    assert torch.equal(out, xs[0] * 0.5 + xs[1] * 0.5)
    assert not ranks.mean_residual().any()


def test_a_rank_above_the_matrix_is_the_matrix() -> None:
    layer = Layer("layer", (5, 7))
    xs = gradients(layer, 2, 0)
    ranks = Ranks(PowerSGD(rank=100), layer, 2)
    out = ranks.step(xs)[0]
    torch.testing.assert_close(out, (xs[0] + xs[1]) / 2, rtol=0, atol=ranks.tolerance())


@pytest.mark.parametrize("size", [2, 3, 8])
def test_float16_saturates_and_catches_up(size: int) -> None:
    """Sums near and beyond float16's range stay finite, and what did not fit follows in later steps."""
    layer = Layer("layer", (4,))
    ranks = Ranks(Cast(dtype="fp16"), layer, size)
    given, received = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    check_step(ranks, [torch.tensor([65504.0, -65504.0, 3e5, 1e-7])] * size, given, received)
    for _ in range(20):
        check_step(ranks, [torch.zeros(4)] * size, given, received)
    assert bool(torch.isfinite(received).all())
    least = 2.0**-25  # half of the smallest float16: a rank's share below it waits in the residual
    assert torch.allclose(received, given, rtol=2.0**-9, atol=size * least)


@every_member
def test_huge_and_subnormal_values_stay_finite(member: Compressor) -> None:
    layer = Layer("layer", (6, 6))
    for scale in (1e37, 1e-38, 1e-44):
        ranks = Ranks(member, layer, 2)
        for step in range(3):
            xs = [torch.clamp(x, -3, 3) * scale for x in gradients(layer, 2, step)]
            outs = ranks.step(xs)
            assert bool(torch.isfinite(outs[0]).all()), scale
            assert bool(torch.isfinite(ranks.mean_residual()).all()), scale


values = st.floats(-1e4, 1e4, width=32, allow_subnormal=True)


@every_member
@given(data=st.data())
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
def test_any_shape_and_values(member: Compressor, data: st.DataObject) -> None:
    size, node_size = data.draw(st.sampled_from(WORLDS))
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9))
    ranks = Ranks(member, Layer("layer", shape), size, node_size)
    given, received = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for _ in range(2):
        xs = [torch.from_numpy(data.draw(arrays.arrays("float32", shape, elements=values))) for _ in range(size)]
        check_step(ranks, xs, given, received)
