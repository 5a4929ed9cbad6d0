"""What `contraction` and `variance` promise, against what is measured."""

import pytest
import torch
from torch import Tensor

from laconic import Chain, Natural, PowerSGD, Quantize, RandomK, TopK
from laconic.compressors import Codec
from laconic.exchange import Compressor, Memory
from laconic.layer import Layer
from laconic.world import World
from tests.contract.conversation import UNIT, Ranks
from tests.contract.members import MEMBERS

DRAWS = 10_000
SIGMAS = 3


def inputs(numel: int) -> dict[str, Tensor]:
    """The easy, the flat (the worst for sparsifiers and signs), the peaked and the heavy-tailed."""
    rng = torch.Generator().manual_seed(numel)
    normal = torch.randn(numel, generator=rng)
    peak = torch.zeros(numel)
    peak[numel // 2] = -3.0
    flat = torch.where(normal > 0, 1.0, -1.0)
    return {"normal": normal, "flat": flat, "peak": peak, "heavy": normal**5, "tiny": normal * 1e-30}


def promises_contraction(member: Compressor) -> bool:
    return member.contraction(100) is not None


@pytest.mark.parametrize("member", [m for m in MEMBERS if promises_contraction(m) and not m.random], ids=str)
def test_contraction(member: Compressor) -> None:
    for numel in (1, 7, 100, 613):
        share = member.contraction(numel)
        assert share is not None
        assert 0 <= share <= 1
        for kind, x in inputs(numel).items():
            ranks = Ranks(member, Layer("layer", (numel,)))
            ranks.step([x])
            left = ranks.mean_residual()
            energy = float(x.double().square().sum())
            # The leftover of an element is a float32: it may be off by a unit of the element, and so its square.
            assert float(left.square().sum()) <= (1 - share + 8 * UNIT) * energy, f"{kind}, {numel} elements"


@pytest.mark.parametrize("member", [m for m in MEMBERS if promises_contraction(m) and m.random], ids=str)
def test_contraction_in_expectation(member: Codec) -> None:
    numel, draws = 61, 600
    share = member.contraction(numel)
    assert share is not None
    for kind, x in inputs(numel).items():
        energy = float(x.double().square().sum())
        lefts = torch.stack([left for left, _ in encodings(member, x, draws)]).double().square().sum(1) / energy
        doubt = SIGMAS * float(lefts.std()) / draws**0.5
        assert float(lefts.mean()) <= 1 - share + doubt + 8 * UNIT, kind


def encodings(member: Codec, x: Tensor, draws: int) -> list[tuple[Tensor, Tensor]]:
    """What was left and what arrived, for as many seeds as a layer draws one after the other."""
    memory = Memory(warm=member.init(Layer("layer", tuple(x.shape)), World(), torch.Generator().manual_seed(0), {}))
    payload = torch.zeros(member.nbytes(x.numel()), dtype=torch.uint8)
    pairs = []
    for _ in range(draws):
        left, arrived = x.clone(), torch.zeros_like(x)
        member.encode(left, payload, None, memory.draw())
        member.decode(payload, arrived, 1.0)
        pairs.append((left, arrived))
    return pairs


UNBIASED = (
    Natural(),
    Quantize(bits=1, bucket=8, stochastic=True),
    Quantize(bits=2, bucket=16, scaling="l2", stochastic=True),
    Quantize(bits=4, bucket=16, stochastic=True),
)


def test_every_declared_variance_is_tested() -> None:
    declaring = {type(m) for m in MEMBERS if getattr(m, "variance", lambda numel: None)(10) is not None}
    assert declaring == {type(member) for member in UNBIASED}


@pytest.mark.parametrize("member", UNBIASED, ids=str)
def test_unbiased_over_many_draws(member: Natural | Quantize) -> None:
    x = torch.tensor([0.9, -0.35, 0.002, 0.0, -1.7, 0.6, 0.61, -0.05, 1.3, -0.8, 1e-6, 0.3, 0.4, -0.9, 0.1, 0.02])
    tiles = 40  # draws for one seed: as many buckets of equal content
    arrived = torch.stack([arrived for _, arrived in encodings(member, x.repeat(tiles), DRAWS // tiles)])
    errors = arrived.double().view(DRAWS, -1) - x.double()
    variance = member.variance(x.numel())
    assert variance is not None
    energy = float(x.double().square().sum())
    squares = errors.square().sum(1)
    assert float(squares.mean()) <= variance * energy + SIGMAS * float(squares.std()) / DRAWS**0.5
    # |mean error|^2 has the expectation sum s^2 / N and, being a sum of squares, the deviation sqrt(2 sum s^4) / N.
    spread = errors.var(0)
    bound = (float(spread.sum()) + SIGMAS * float(2 * spread.square().sum()) ** 0.5) / DRAWS
    assert float(errors.mean(0).square().sum()) <= bound


def test_a_chain_draws_its_parts_independently() -> None:
    """Every element has the same chance, density times density, to pass two random selections."""
    numel, draws = 64, 2000
    member = Chain(RandomK(density=0.25), RandomK(density=0.25))
    sent = torch.stack([arrived != 0 for _, arrived in encodings(member, torch.ones(numel), draws)]).double().mean(0)
    chance = 0.25 * 0.25
    deviation = (chance * (1 - chance) / draws) ** 0.5
    assert float((sent - chance).abs().max()) <= 4 * deviation  # four, as the largest of 64


def test_a_chain_rounds_what_it_drew_without_bias() -> None:
    numel, draws = 16, 2000
    member = Chain(RandomK(density=0.25), Quantize(bits=2, bucket=8, stochastic=True))
    x = torch.linspace(0.2, 1.0, numel)
    arrived = torch.stack([a for _, a in encodings(member, x, draws)]).double()
    spread = arrived.var(0)
    gap = arrived.mean(0) - 0.25 * x.double()
    assert float((gap.abs() / (spread / draws).sqrt()).max()) <= 4  # four, as the largest of 16


def test_low_rank_never_leaves_more_than_there_was() -> None:
    """x - P P'x with orthonormal P; and at full rank nothing is left."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(12, 9, generator=rng)
    energy = float(x.square().sum())
    lefts = []
    for rank in (1, 3, 9):
        ranks = Ranks(PowerSGD(rank=rank), Layer("layer", (12, 9)))
        ranks.step([x])
        lefts.append(float(ranks.mean_residual().square().sum()))
        assert lefts[-1] >= PowerSGD(rank=rank).error(x) - 100 * UNIT * energy, "better than the best of that rank"
    assert energy > lefts[0] > lefts[1] > lefts[2]
    assert lefts[2] <= (12 * 9 * 4 * UNIT) ** 2 * energy


def test_low_rank_converges_to_the_best_of_its_rank_when_warm() -> None:
    """A power iteration on a constant matrix: the factors turn to the leading singular vectors."""
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(20, 15, generator=rng)
    member, layer = PowerSGD(rank=2), Layer("layer", (20, 15))
    ranks = Ranks(member, layer)
    for _ in range(300):
        ranks.residuals = [None]
        ranks.step([x])
    assert float(ranks.mean_residual().square().sum()) == pytest.approx(member.error(x), rel=1e-3)


def test_top_k_takes_the_largest_and_the_lower_index_of_equals() -> None:
    ranks = Ranks(TopK(density=0.5), Layer("layer", (6,)))
    (out,) = ranks.step([torch.tensor([1.0, -2.0, 2.0, 0.5, -2.0, 2.0])])
    assert out.tolist() == [0.0, -2.0, 2.0, 0.0, -2.0, 0.0]
