"""Buckets that travel with the next one: the same bits in fewer collectives, and nobody is left behind."""

import pytest
import torch

from laconic import Plan, Quantize
from laconic.comm import loopback
from laconic.comm.loopback import Loopback
from tests.engine.fleet import Fleet, Recording, same_bits, same_ledgers
from tests.engine.model import BUCKETS, LAYERS, MIXED
from tests.engine.test_failure import Raising, outcome

LAST = [names[-1] for names in BUCKETS]
WAITS = ([LAST[0]], [LAST[1]], LAST[:2], LAST)  # the last bucket of a step never waits, whatever the plan says


@pytest.mark.parametrize("waits", WAITS, ids=["first", "second", "both", "all"])
@pytest.mark.parametrize(("size", "node"), [(1, 1), (2, 1), (3, 1), (4, 2)])
@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("commit", ["step", "bucket"])
def test_means_and_ledgers_are_the_same_to_the_bit(
    waits: list[str], size: int, node: int, twins: bool, commit: str
) -> None:
    options = {"twins": twins, "commit": commit}
    with (
        Fleet(LAYERS, MIXED, size, node, **options) as alone,
        Fleet(LAYERS, Plan(MIXED, waits=waits), size, node, **options) as together,
    ):
        for step in range(4):
            gradients = alone.gradients(step)
            ours, theirs = together.step(gradients, BUCKETS), alone.step(gradients, BUCKETS)
            for rank in range(size):
                for name in alone.layers:
                    assert same_bits(ours[rank][name], theirs[rank][name]), name
        assert same_ledgers(together.ledgers(), alone.ledgers())


def _collectives(waits: list[str]) -> int:
    comms = [Recording(comm) for comm in Loopback.ranks(2)]
    plan = Plan(dict.fromkeys(MIXED, Quantize()), waits=waits)
    with Fleet(LAYERS, plan, comms=comms) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
    return len(comms[0].started)


def test_they_share_their_collectives() -> None:
    assert [_collectives(waits) for waits in ([], LAST[:1], LAST[:2])] == [3, 2, 1]


def test_each_bucket_is_traced_with_its_own_time() -> None:
    with Fleet(LAYERS, Plan(MIXED, waits=LAST[:2]), 2) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        traced = fleet.engines[0].observer.recent[-1].buckets
    assert tuple(bucket.names for bucket in traced) == BUCKETS
    assert [bucket.ready for bucket in traced] == sorted(bucket.ready for bucket in traced)
    assert [bool(bucket.transfers) for bucket in traced] == [False, False, True]


def test_a_plan_without_and_one_with_waiting_follow_each_other() -> None:
    with Fleet(LAYERS, MIXED, 2) as plain, Fleet(LAYERS, MIXED, 2) as changing:
        for step, waits in enumerate([(), LAST[:2], LAST[1:2], ()]):
            changing.adopt(Plan(MIXED, waits=waits))
            gradients = plain.gradients(step)
            changing.step(gradients, BUCKETS)
            plain.step(gradients, BUCKETS)
        assert same_ledgers(changing.ledgers(), plain.ledgers())


def test_a_value_that_is_not_finite_spoils_the_step_wherever_it_waits() -> None:
    with Fleet(LAYERS, Plan(MIXED, waits=LAST[:2]), 2) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        before, gradients = fleet.ledgers(), fleet.gradients(1)
        gradients[1]["head.weight"].view(-1)[3] = torch.inf
        means = fleet.step(gradients, BUCKETS)
        assert all(bool(torch.isnan(own["head.weight"]).any()) for own in means)
        assert same_ledgers(fleet.ledgers(), before)


def test_a_failure_reaches_the_buckets_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "TIMEOUT", 0.3)
    layers, buckets = LAYERS[:5], (("stem.bias", "stem.weight"), ("a.bias", "a.weight"), ("b.weight",))
    plan = Plan({"stem.weight": Raising(), "a.weight": Quantize(), "b.weight": Quantize()}, waits=["a.weight"])
    with Fleet(layers, plan, 2) as fleet:
        futures, _ = fleet.start(fleet.gradients(0), buckets)
        assert all(outcome(future) for waiting in futures for future in waiting)
