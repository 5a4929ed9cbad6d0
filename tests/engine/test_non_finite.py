"""A NaN or Inf on one rank: seen by every rank alike, and the books as if the step had not been."""

import pytest
import torch

from laconic import Plan, TopK
from laconic.runtime.bucket import _spoiled
from tests.engine.fleet import Fleet, Gradients, same_bits, same_ledgers
from tests.engine.model import BUCKETS, LAYERS, MIXED

bad_values = pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
COMPRESSED = tuple(MIXED)


def spoil(gradients: list[Gradients], rank: int, name: str, value: float) -> list[Gradients]:
    spoiled = [{key: tensor.clone() for key, tensor in own.items()} for own in gradients]
    spoiled[rank][name].view(-1)[-1] = value
    return spoiled


@bad_values
@pytest.mark.parametrize("name", COMPRESSED)
def test_a_bad_step_leaves_no_trace(name: str, value: float) -> None:
    with Fleet(LAYERS, MIXED, 4, 2) as fleet, Fleet(LAYERS, MIXED, 4, 2) as untouched:
        for step in range(2):
            fleet.step(fleet.gradients(step), BUCKETS)
            untouched.step(untouched.gradients(step), BUCKETS)
        before = fleet.ledgers()
        means = fleet.step(spoil(fleet.gradients(2), 2, name, value), BUCKETS)
        for mean in means:
            for compressed in COMPRESSED:
                assert bool(mean[compressed].isnan().all()), "every bucket's compressed layers, on every rank"
        assert same_ledgers(fleet.ledgers(), before)
        for step in range(3, 5):
            ours = fleet.step(fleet.gradients(step), BUCKETS)
            theirs = untouched.step(untouched.gradients(step), BUCKETS)
            assert all(same_bits(ours[1][layer], theirs[1][layer]) for layer in fleet.layers)
        assert same_ledgers(fleet.ledgers(), untouched.ledgers())
        assert [engine.stats().skipped for engine in fleet.engines] == [1] * 4


@bad_values
@pytest.mark.parametrize("name", ["stem.bias", "head.bias", "scale"])
def test_a_bad_value_in_a_dense_layer_spoils_the_step_too(name: str, value: float) -> None:
    """The optimizer will skip the step, so what the compressed layers sent in it must not count as sent."""
    with Fleet(LAYERS, MIXED, 4, 2) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        before = fleet.ledgers()
        means = fleet.step(spoil(fleet.gradients(1), 3, name, value), BUCKETS)
        assert all(not bool(mean[name].isfinite().all()) for mean in means)
        assert same_ledgers(fleet.ledgers(), before)
        assert [engine.stats().skipped for engine in fleet.engines] == [1] * 4


def test_finite_dense_layers_of_a_bad_step_are_reduced_as_ever() -> None:
    with Fleet(LAYERS, MIXED, 2) as fleet:
        gradients = fleet.gradients(0)
        means = fleet.step(spoil(gradients, 0, "a.weight", torch.nan), BUCKETS)
        expected = gradients[0]["a.bias"] / 2 + gradients[1]["a.bias"] / 2
        assert all(same_bits(mean["a.bias"], expected) for mean in means)


def test_all_ranks_bad_and_several_in_a_row() -> None:
    with Fleet(LAYERS, MIXED, 3) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        before = fleet.ledgers()
        for rank in range(3):
            bad = spoil(spoil(fleet.gradients(1), rank, "a.weight", torch.inf), 0, "e.weight", torch.nan)
            assert all(bool(mean["a.weight"].isnan().all()) for mean in fleet.step(bad, BUCKETS))
        assert same_ledgers(fleet.ledgers(), before)
        assert all(bool(mean["a.weight"].isfinite().all()) for mean in fleet.step(fleet.gradients(2), BUCKETS))


@bad_values
def test_bucket_commit_undoes_the_buckets_that_hold_it(value: float) -> None:
    """Its weaker promise: the bad bucket leaves no trace, the others have been sent."""
    with Fleet(LAYERS, MIXED, 2, commit="bucket") as fleet, Fleet(LAYERS, MIXED, 2, commit="bucket") as clean:
        fleet.step(fleet.gradients(0), BUCKETS)
        clean.step(clean.gradients(0), BUCKETS)
        before = fleet.ledgers()
        gradients = fleet.gradients(1)
        means = fleet.step(spoil(gradients, 1, "c.weight", value), BUCKETS)
        good = clean.step(gradients, BUCKETS)
        for index, names in enumerate(BUCKETS):
            for name in names:
                for rank in range(2):
                    if index == 1 and name in COMPRESSED:
                        assert bool(means[rank][name].isnan().all())
                    else:
                        assert same_bits(means[rank][name], good[rank][name])
        after = fleet.ledgers()
        for rank, ledger in enumerate(clean.ledgers()):
            for name in COMPRESSED:
                expected = before[rank] if name in BUCKETS[1] else ledger
                assert same_ledgers([{name: after[rank][name]}], [{name: expected[name]}])


def test_a_leftover_that_a_dense_plan_was_about_to_send_is_kept() -> None:
    with Fleet(LAYERS, MIXED, 2) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        fleet.adopt(Plan({"head.weight": TopK(density=0.1)}))
        before = fleet.mean_residual("a.weight")
        assert before.any()
        fleet.step(spoil(fleet.gradients(1), 0, "head.weight", torch.nan), BUCKETS)
        assert torch.equal(fleet.mean_residual("a.weight"), before)
        fleet.step(fleet.gradients(2), BUCKETS)
        assert not fleet.mean_residual("a.weight").any()


@bad_values
def test_the_flag_is_the_same_whether_energies_are_numbers_or_on_a_device(value: float) -> None:
    for energies in ([1.0, 2.0], [1.0, value], [value, value]):
        here = _spoiled(energies)
        there = _spoiled([torch.tensor(energy) for energy in energies])
        assert isinstance(here, float)
        assert float(there) == here
