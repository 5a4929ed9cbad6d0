"""Every backend writes the reference's bytes: codes, indices, values, scales and leftovers, whatever comes in."""

from collections.abc import Callable
from math import isfinite
from random import Random
from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from laconic.kernels import reference
from laconic.kernels.schema import Kernels
from tests.kernels.cases import CASES, Case, Outcome, majority, sampled_top_k, threshold, top_k

LENGTHS = [0, 1, 2, 7, 8, 15, 16, 17, 31, 49, 50, 63, 97, 511, 1023, 1024, 1025, 2053, 4099, 5003]
FILLS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "normal": lambda n, rng: torch.randn(n, generator=rng),
    "zeros": lambda n, rng: torch.zeros(n),
    "signed zeros": lambda n, rng: torch.where(torch.rand(n, generator=rng) < 0.5, -0.0, 0.0),
    "constant": lambda n, rng: torch.full((n,), -0.7),
    "ties": lambda n, rng: torch.randint(-3, 4, (n,), generator=rng).float(),
    "sparse": lambda n, rng: torch.randn(n, generator=rng) * (torch.rand(n, generator=rng) < 0.01),
    "heavy": lambda n, rng: torch.randn(n, generator=rng).pow(9),
    "subnormal": lambda n, rng: torch.randn(n, generator=rng) * 1e-40,
    "huge": lambda n, rng: torch.randn(n, generator=rng).clamp(-1, 1) * 3.4e38,
    "all scales": lambda n, rng: torch.randn(n, generator=rng) * 10 ** (76 * torch.rand(n, generator=rng) - 44),
    "ascending": lambda n, rng: torch.arange(n).float(),
    "not a number": lambda n, rng: torch.where(torch.rand(n, generator=rng) < 0.01, float("nan"), 1.0),
    "infinite": lambda n, rng: torch.where(torch.rand(n, generator=rng) < 0.01, float("-inf"), 1.0),
}


def misaligned(values: Tensor, offset: int) -> Tensor:
    """The same values, `offset` elements into a larger tensor."""
    home = torch.zeros(values.numel() + offset)
    home[offset:] = values
    return home[offset:]


def assert_same(expected: Outcome, actual: Outcome) -> None:
    first, found = float(expected[0]), float(actual[0])
    assert isfinite(first) == isfinite(found)
    if isfinite(first):  # at most a million positive terms in another order: n * 2^-53 each way
        assert found == pytest.approx(first, rel=1e-10)
    for want, got in zip(expected[1:], actual[1:], strict=True):
        if isinstance(want, Tensor):
            assert isinstance(got, Tensor)
            assert want.contiguous().view(torch.uint8).equal(got.contiguous().view(torch.uint8)), (want, got)
        else:
            assert want == got


def compare(backend: ModuleType, case: Case, g: Tensor, residual: Tensor | None, offset: int, seed: int) -> None:
    outcomes = []
    for on in (reference, backend):
        x = misaligned(g, offset)
        kept = None if residual is None else misaligned(residual, (offset + 1) % 4)
        outcomes.append(case(on, x, kept, Random(seed)))
        if residual is not None:
            assert torch.equal(kept.view(torch.int32), residual.view(torch.int32)), "a residual is read only"
    assert_same(*outcomes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.sampled_from(LENGTHS),
    fill=st.sampled_from(list(FILLS)),
    left=st.sampled_from([None, "normal", "zeros", "ties", "subnormal", "huge"]),
    offset=st.integers(0, 3),
    seed=st.integers(0, 2**20),
)
@example(n=5003, fill="normal", left="normal", offset=1, seed=1)
@example(n=5003, fill="not a number", left="normal", offset=1, seed=1)
@example(n=5003, fill="infinite", left=None, offset=0, seed=2)
@example(n=7, fill="signed zeros", left=None, offset=0, seed=8250)
@example(n=4099, fill="sparse", left=None, offset=0, seed=4)
@example(n=4099, fill="huge", left="huge", offset=3, seed=3)
def test_same_bytes(
    native: ModuleType, case: Case, n: int, fill: str, left: str | None, offset: int, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    g = FILLS[fill](n, rng)
    residual = None if left is None else FILLS[left](n, rng)
    compare(native, case, g, residual, offset, seed)


def _thread_cases() -> list[object]:
    """All kernels on plain data; those that merge what their threads found, on data that makes this hard, too."""
    hard = [(case, fill) for case in (top_k, sampled_top_k, threshold) for fill in ("ascending", "ties", "sparse")]
    plain = [(case, fill) for case in CASES if case is not majority for fill in ("normal", "not a number")]
    return [pytest.param(case, fill, id=f"{case.__name__}-{fill}") for case, fill in plain + hard]


@pytest.mark.parametrize(("case", "fill"), _thread_cases())
def test_same_bytes_on_two_threads(case: Case, fill: str, two_threads: None) -> None:
    native = pytest.importorskip("laconic.kernels.native", exc_type=ImportError)
    rng = torch.Generator().manual_seed(5)
    n = native.LARGE + 12_345
    compare(native, case, FILLS[fill](n, rng), torch.randn(n, generator=rng), 1, 7)


@pytest.mark.parametrize("start", [0, 1], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_code_that_goes_past_the_cache(native: ModuleType, dtype: torch.dtype, start: int, two_threads: None) -> None:
    """Long codes are stored by other instructions where their address allows, and are the same."""
    rng = torch.Generator().manual_seed(6)
    n = 2**21 + 12_347
    g, kept = torch.randn(n, generator=rng), torch.randn(n, generator=rng)

    def narrowed(on: Kernels) -> Outcome:
        x, code = g.clone(), torch.zeros(n + start, dtype=dtype)
        return [on.narrow(x, kept, code[start:], 0.5), x, code]

    assert_same(narrowed(reference), narrowed(native))
