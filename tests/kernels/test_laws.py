"""What holds for every backend whatever its code: nothing is lost, and what a name promises is kept."""

import logging
import sys
from math import ceil

import pytest
import torch

from laconic import kernels
from laconic.kernels import reference
from laconic.kernels.sampling import LEAST

N = 10_007


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(11)
    return torch.randn(N, generator=rng), torch.randn(N, generator=rng)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("seed", [None, 99])
def test_quantised_and_left_over_are_the_whole(bits: int, seed: int | None) -> None:
    g, residual = _pair()
    x, out = g.clone(), torch.zeros(N)
    codes, steps = torch.zeros(-(-N * bits // 8), dtype=torch.uint8), torch.zeros(-(-N // 512))
    on = kernels.of(x)
    on.quantize(x, residual, codes, steps, bits, 512, False, seed)
    on.dequantize_add(codes, steps, out, bits, 512, 1.0)
    whole = g + residual
    # q * step and the subtraction round once each, to half a unit of at most twice the largest magnitude.
    assert float((out + x - whole).abs().max()) <= 3 * 2**-24 * 2 * float(whole.abs().max())


def test_top_k_takes_the_largest() -> None:
    g, residual = _pair()
    x, indices, values = g.clone(), torch.zeros(100, dtype=torch.int32), torch.zeros(100)
    kernels.of(x).top_k(x, residual, indices, values)
    assert float(values.abs().min()) >= float(x.abs().max())
    back = x.clone()
    back[indices.long()] = values
    assert torch.equal(back, g + residual), "values move, they do not change"


@pytest.mark.parametrize("k", [1, 10, 100, 1000])
def test_a_sample_comes_close(k: int) -> None:
    g, residual = _pair()
    room = ceil(1.3 * k)
    x, indices, values = g.clone(), torch.zeros(room, dtype=torch.int32), torch.zeros(room)
    _, count = kernels.of(x).sampled_top_k(x, residual, k, indices, values)
    assert LEAST * k <= count <= room


def test_settle_makes_room() -> None:
    g, residual = _pair()
    x = g.clone()
    kernels.of(x).settle(x, residual)
    assert torch.equal(residual, g)
    assert not x.any()


def test_other_dtypes_go_to_the_reference() -> None:
    assert kernels.of(torch.zeros(1, dtype=torch.float64)).name == reference.name


def test_a_residual_of_sixteen_bits_is_added_as_it_is() -> None:
    g, residual = _pair()
    half = residual.bfloat16()
    x = g.clone()
    kernels.of(x).fold(x, half)
    assert torch.equal(x, g + half.float())


def test_without_a_compiler_it_says_so_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "laconic.kernels.native", None)  # as if the extension had not been built
    monkeypatch.delattr(kernels, "native", raising=False)
    kernels._on_cpu.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert [kernels.of(torch.zeros(2)).name for _ in range(3)] == [reference.name] * 3
        assert len(caplog.records) == 1
        assert "compiler" in caplog.text
    finally:
        kernels._on_cpu.cache_clear()
