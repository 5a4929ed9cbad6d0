"""What a ladder's errors cost little to know: estimates that stay close to the truth."""

import pytest
import torch

from laconic import Chain, Divided, Layer, OnCpu, PowerSGD, Quantize, Sign, Threshold, TopK
from laconic.compressors.powersgd import SPARE
from laconic.kernels import reference
from laconic.runtime.watch import errors


def spectrum(rows: int, columns: int, decay: float) -> torch.Tensor:
    """A matrix of known singular values."""
    rng = torch.Generator().manual_seed(0)
    u = torch.linalg.qr(torch.randn(rows, columns, generator=rng)).Q
    v = torch.linalg.qr(torch.randn(columns, columns, generator=rng)).Q
    return u * decay ** torch.arange(columns) @ v.T


@pytest.mark.parametrize(("decay", "slack"), [(0.5, 1.001), (0.9, 1.01), (0.99, 1.1)])
def test_tails_of_a_large_matrix_are_never_underestimated_and_close(decay: float, slack: float) -> None:
    """The sketch finds singular values from below, so what it leaves is from above; the flatter, the rougher."""
    x = spectrum(200, 160, decay)
    rungs = PowerSGD(rank=4).ladder(Layer("w", (200, 160)))
    assert 4 * (16 + SPARE) < 160, "large enough for the sketch"
    energy = float(x.double().square().sum())
    for rung, error in zip(rungs, PowerSGD(rank=4).errors(x, rungs).tolist(), strict=True):
        truth = rung.error(x)
        assert truth - 1e-5 * energy <= error <= slack * truth + 1e-5 * energy


@pytest.mark.parametrize("dtype", ["int8", "int4", "int3"])
def test_what_codes_take_off_a_factor_is_counted(dtype: str) -> None:
    """Nothing of a matrix lies beyond its own rank: what is left is what normal factors lose, within a fifth."""
    rng = torch.Generator().manual_seed(2)
    low_rank = PowerSGD(rank=16, dtype=dtype)
    basis = torch.linalg.qr(torch.randn(300, 16, generator=rng)).Q
    factor = torch.randn(2000, 16, generator=rng)
    x, meant, form = basis @ factor.T, factor.clone(), low_rank.forms[1]
    reference.code_factor(meant, torch.empty(form.room(2000, 16), dtype=torch.uint8), form.bits)
    lost = float((factor - meant).double().square().sum())
    assert low_rank.error(x) == pytest.approx(lost, rel=0.2)
    assert low_rank.errors(x, (low_rank,)).tolist() == pytest.approx([lost], rel=0.2)


def test_the_global_generator_is_not_touched_and_the_answer_is_always_the_same() -> None:
    x, rungs = spectrum(200, 160, 0.9), (PowerSGD(rank=4), PowerSGD(rank=2))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = PowerSGD(rank=4).errors(x, rungs)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first, PowerSGD(rank=4).errors(x, rungs))


@pytest.mark.parametrize(
    "base",
    [
        TopK(density=0.02), Quantize(bits=4), Divided(TopK(density=0.02)), OnCpu(Quantize(bits=3)),
        Chain(TopK(density=0.02), Quantize(bits=4)), Chain(TopK(density=0.1), Sign()),
        Chain(Threshold(density=0.02), Quantize(bits=4)),
    ],
)  # fmt: skip
def test_a_whole_ladder_at_once_is_what_its_rungs_say_one_by_one(base: TopK) -> None:
    x = torch.randn(300, 400, generator=torch.Generator().manual_seed(1)) ** 3
    rungs = base.ladder(Layer("w", (300, 400)), 0.25, 4.0)
    assert base.errors(x, rungs).tolist() == pytest.approx([rung.error(x) for rung in rungs], rel=0.016)


def test_rungs_of_another_family_are_asked_one_by_one() -> None:
    x = torch.randn(40, 50, generator=torch.Generator().manual_seed(1))
    chain = Chain(TopK(density=0.1), Quantize(bits=4))
    mixed = (Quantize(bits=4), TopK(density=0.1), Quantize(bits=4, bucket=64), PowerSGD(rank=2), chain)
    for family in (TopK(density=0.1), Quantize(bits=4), PowerSGD(rank=2), chain):
        assert family.errors(x, mixed).tolist() == pytest.approx([rung.error(x) for rung in mixed], rel=1e-6)


def test_chains_of_one_ladder_may_have_other_codecs_and_families_come_in_any_order() -> None:
    """Where magnitudes are equal, which are taken is the same too: the buckets of the second codec depend on it."""
    x = torch.randn(60, 70, generator=torch.Generator().manual_seed(1)).mul(4).round()
    codecs = (Quantize(bits=3), Quantize(bits=6), Quantize(bits=6, bucket=64), Sign())
    chains = [Chain(TopK(density=density), codec) for density in (0.05, 0.2, 0.1) for codec in codecs]
    others = [Quantize(bits=bits) for bits in range(1, 9)]
    rungs = [one for pair in zip(chains, others, strict=False) for one in pair]
    told = errors(x, rungs)
    assert told == pytest.approx([rung.error(x) for rung in rungs], rel=1e-5)
