"""What policies ask, answered in one pass: the truth, up to the order of a sum."""

from types import ModuleType

import pytest
import torch

from laconic.kernels import reference


@pytest.mark.parametrize("n", [1, 100, 5000, 300_001])
@pytest.mark.parametrize("l2", [False, True])
def test_errors_of_all_bit_widths(native: ModuleType, n: int, l2: bool) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).pow(3)
    want, got = reference.quantize_errors(x, 512, l2), native.quantize_errors(x, 512, l2)
    assert got == pytest.approx(want, rel=1e-10)  # the same leftovers, added up in another order


@pytest.mark.parametrize("n", [0, 1, 100, 5000, 300_001])
def test_errors_of_all_rungs_from_one_histogram(native: ModuleType, n: int) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).pow(3)
    ks = [0, 1, n // 1000, n // 100, n // 10, n // 2, n]
    assert native.top_k_errors(x, ks) == pytest.approx(reference.top_k_errors(x, ks), rel=1e-10)


def test_the_reference_tells_the_truth() -> None:
    """Against the encoder itself: what is left after it ran."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    for k in (0, 1, 10, 999, 1000):
        left = x.clone()
        reference.top_k(left, None, torch.zeros(k, dtype=torch.int32), torch.zeros(k))
        assert reference.top_k_errors(x, [k]) == pytest.approx([reference.energy(left)], rel=1e-12)
