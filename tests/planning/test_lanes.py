"""The step as the engine takes it: exact in cases that can be reckoned, and lawful in all others."""

from itertools import pairwise
from random import Random

import pytest

from laconic.planning.lanes import Load, Round, Send, played, travel
from laconic.planning.timeline import INTER, Talk, finish


def one_round(ready: float, work: float, seconds: float, ending: float = 0.0, latency: float = 0.0) -> Load:
    return Load(ready, (Round(work, (Send(0, latency, seconds),)),), ending)


def drawn(dice: Random) -> list[Load]:
    """Up to five buckets of up to three rounds."""
    ready, loads = 0.0, []
    for _ in range(dice.randint(1, 5)):
        ready += dice.random()
        rounds = tuple(
            Round(dice.random(), tuple(Send(dice.randint(0, 1), dice.random() / 4, dice.random()) for _ in range(2)))
            for _ in range(dice.randint(1, 3))
        )
        loads.append(Load(ready, rounds, dice.random()))
    return loads


def test_one_bucket_takes_the_sum_of_its_parts():
    rounds = (Round(0.5, (Send(0, 0.1, 2.0),)), Round(0.25, (Send(1, 0.2, 1.0),)))
    assert travel([Load(1.0, rounds, 0.75)]).end == pytest.approx(1 + 0.5 + 2.1 + 0.25 + 1.2 + 0.75)


def test_encoding_and_the_backward_pass_share_one_core_and_not_two():
    loads = [one_round(1.0, 0.5, 2.0), one_round(2.0, 0.5, 2.0)]
    # From 1 to 2 both get half: the encoding ends at 2, the backward pass has half a second left.
    assert travel(loads, cores=1).backward == pytest.approx(2.5)
    assert travel(loads, cores=2).backward == pytest.approx(2.0)


def test_transfers_share_a_link():
    loads = [one_round(1.0, 0.0, 2.0), one_round(2.0, 0.0, 2.0)]
    passage = travel(loads)
    # Alone until 2, then both at half the rate: the first has 1 left, so it ends at 4, the second at 5.
    assert passage.arrived == pytest.approx((4.0, 5.0))
    assert passage.sending == pytest.approx(4.0)


def test_a_step_ends_together_and_buckets_one_by_one():
    loads = [one_round(1.0, 0.0, 1.0, ending=3.0), one_round(1.0, 0.0, 5.0, ending=0.5)]
    # Sharing, the first arrives at 3 and the second at 7.
    assert travel(loads, commit="step").end == pytest.approx(7 + 3.5)
    assert travel(loads, commit="bucket").end == pytest.approx(7 + 0.5)


def test_a_bucket_that_the_backward_pass_opens_itself_holds_it_up():
    loads = [one_round(1.0, 0.5, 1.0)._replace(inline=True), one_round(2.0, 0.0, 1.0)._replace(inline=True)]
    passage = travel(loads, cores=2)
    assert passage.backward == pytest.approx(2.5)
    assert passage.end == pytest.approx(3.5)


def test_what_the_network_takes_of_the_core_slows_the_backward_pass():
    loads = [Load(1.0, (Round(0.0, (Send(0, 0.0, 4.0, computing=1.0),)),)), one_round(2.0, 0.0, 0.0)]
    # A quarter of the core goes to the transfer, so the second second takes 4/3.
    assert travel(loads, cores=1).backward == pytest.approx(1 + 4 / 3)


def test_bounds_and_order_on_random_cases():
    dice = Random(7)
    for _ in range(300):
        loads = drawn(dice)
        cores = dice.choice([1.0, 1.5, 2.0])
        for commit in ("step", "bucket"):
            passage = travel(loads, cores, commit)
            work = sum(r.work for load in loads for r in load.rounds) + sum(load.ending for load in loads)
            link = max(sum(s.seconds for b in loads for r in b.rounds for s in r.sends if s.link == k) for k in (0, 1))
            assert passage.end >= passage.backward >= loads[-1].ready - 1e-9
            assert passage.end >= max((loads[-1].ready + work) / cores, link + loads[0].ready) - 1e-9
            assert all(a <= b + 1e-9 for a, b in pairwise(passage.arrived))
            alone = sum(r.work + sum(s.latency + s.seconds for s in r.sends) for b in loads for r in b.rounds)
            assert passage.end <= loads[-1].ready + alone + sum(load.ending for load in loads) + 1e-9


def test_more_cores_are_never_slower_for_one_bucket_and_more_work_is_never_faster():
    dice = Random(11)
    for _ in range(200):
        (load, *_) = drawn(dice)
        assert travel([load], 2).end <= travel([load], 1).end + 1e-9
        heavier = load._replace(ending=load.ending + dice.random())
        assert travel([heavier]).end >= travel([load]).end


def test_with_a_core_to_spare_it_ends_when_the_timeline_does():
    """One round and no encoding: sharing a link or taking turns, the last transfer ends at the same time."""
    dice = Random(3)
    for _ in range(200):
        ready = sorted(dice.random() * 3 for _ in range(4))
        seconds = [dice.random() for _ in ready]
        loads = [one_round(at, 0.0, length) for at, length in zip(ready, seconds, strict=True)]
        talks = [Talk(0.0, ((INTER, length),)) for length in seconds]
        assert travel(loads, cores=2).end == pytest.approx(finish(ready, talks))


def test_nothing_to_do_takes_no_time():
    assert travel([]).end == 0.0


def test_compiled_it_is_the_same_to_the_bit():
    """Random steps, some with buckets that backward opens itself, and with transfers that cost cores."""
    pytest.importorskip("laconic.kernels._native", exc_type=ImportError)
    dice = Random(11)
    for _ in range(2000):
        loads = [
            load._replace(
                inline=dice.random() < 0.3,
                rounds=tuple(
                    each._replace(sends=tuple(send._replace(computing=dice.random() / 2) for send in each.sends))
                    for each in load.rounds
                ),
            )
            for load in drawn(dice)
        ]
        for commit in ("step", "bucket"):
            cores = dice.choice([1.0, 2.0, 1.5])
            assert travel(loads, cores, commit) == played(loads, cores, commit)
    assert travel([]) == played([])


def test_a_step_that_never_ends_is_an_error():
    for way in (travel, played):
        with pytest.raises(ValueError, match="never ends"):
            way([one_round(float("nan"), 0.0, 1.0)])
