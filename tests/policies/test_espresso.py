"""Espresso at run time: it starts dense, decides from traced steps, and decides again only where something drifts."""

from dataclasses import replace

import pytest

from laconic import Dense, Espresso, InvalidConfig, Layer, Plan, Policy, Quantize, Stats, TopK
from laconic.compressors import Divided
from laconic.exchange import Op
from laconic.planning.link import Line
from laconic.planning.surroundings import Surroundings
from laconic.policies.espresso import DRIFT, LOOK, MEASURED
from laconic.policies.expression import parse
from laconic.stats import BucketTrace, StepTrace, Transfer
from laconic.world import Scope, World

LAYERS = tuple(Layer(f"{i}.weight", (512, 512)) for i in range(4))
BYTES = sum(layer.nbytes for layer in LAYERS)
SLOW, FAST = 8 / 5e7, 8 / 1e11  # seconds a byte at 50 Mbit/s and at 100 Gbit/s


def around(beta: float) -> Surroundings:
    ops = (Op.SUM, Op.GATHER, Op.SCATTER)
    return Surroundings(World(size=2), {(op, scope): (Line(1e-4, beta),) for op in ops for scope in Scope})


def traced(plan: Plan, beta: float, step: int = 3, computing: float = 0.05) -> StepTrace:
    """One bucket: computing, then a transfer at this rate."""
    nbytes = BYTES if all(option == Dense() for option in plan.values()) else BYTES // 8
    ended = computing + nbytes * beta
    transfer = Transfer(Op.SUM, Scope.WORLD, nbytes, computing, ended)
    bucket = BucketTrace(tuple(layer.name for layer in LAYERS), computing, (transfer,), ())
    return StepTrace(step, plan.digest, 0.0, ended, ended + 0.001, (bucket,))


def stats(steps: int, *recent: StepTrace) -> Stats:
    return Stats(steps=steps, recent=recent)


def begun(beta: float = SLOW) -> tuple[Espresso, Plan]:
    policy = Espresso(Quantize(bits=4), period=1000)
    plan = policy.learn(around(beta), policy.start(LAYERS, World(size=2)))
    return policy, plan


def test_it_starts_dense_and_decides_after_a_few_traced_steps():
    policy, plan = begun()
    assert all(option == Dense() for option in plan.values())
    assert not policy.due(MEASURED - 1)
    assert policy.due(MEASURED)
    assert set(policy.watch(0, plan)) == {layer.name for layer in LAYERS}


def test_a_slow_link_is_compressed_and_a_fast_one_is_not():
    policy, plan = begun(SLOW)
    chosen = policy.propose(stats(MEASURED, traced(plan, SLOW)), plan)
    assert all(option != Dense() for option in chosen.plan.values())
    assert chosen.predicted["step_s"] < BYTES * SLOW
    policy, plan = begun(FAST)
    assert policy.propose(stats(MEASURED, traced(plan, FAST)), plan).plan == plan


def test_what_the_transfers_took_corrects_the_survey():
    policy, plan = begun(FAST)
    chosen = policy.propose(stats(MEASURED, traced(plan, SLOW)), plan)
    assert all(option != Dense() for option in chosen.plan.values())
    assert chosen.notes["slow"] == pytest.approx(SLOW / FAST, rel=0.01)


def settled(policy: Espresso, plan: Plan, beta: float = SLOW) -> tuple[Plan, int]:
    """After the decision and the first look, which notes what the plan takes."""
    made = policy.propose(stats(MEASURED, traced(plan, beta)), plan)
    policy.take_notes(made.notes)
    step = MEASURED + 1 + LOOK
    assert policy.due(step)
    looked = policy.propose(stats(step, traced(made.plan, beta, step)), made.plan)
    assert looked.plan == made.plan
    policy.take_notes(looked.notes)
    return made.plan, step


@pytest.mark.parametrize("times", [1 / (1 + 2 * DRIFT), 1 + 2 * DRIFT])
def test_a_drift_of_the_link_leads_to_a_new_decision_and_noise_does_not(times: float):
    policy, plan = begun()
    plan, step = settled(policy, plan)
    step += LOOK
    calm = policy.propose(stats(step, traced(plan, SLOW * (1 + DRIFT / 4), step)), plan)
    assert not calm.notes["tracing"]
    moved = policy.propose(stats(step, traced(plan, SLOW * times, step)), plan)
    assert moved.notes["tracing"]
    assert moved.plan == plan
    policy.take_notes(moved.notes)
    assert policy.watch(step, plan)


def test_a_plan_that_is_no_better_beyond_noise_stays():
    policy, plan = begun()
    plan, step = settled(policy, plan)
    policy.take_notes({**policy.propose(stats(step, traced(plan, SLOW, step)), plan).notes, "tracing": True})
    again = policy.propose(stats(step, traced(plan, SLOW, step)), plan)
    assert again.plan == plan
    assert "stays" in again.why


def test_it_decides_again_after_its_period():
    policy, plan = begun()
    plan, _ = settled(policy, plan)
    assert policy.propose(stats(1000 + MEASURED, traced(plan, SLOW, 900)), plan).notes["tracing"]


def test_without_a_traced_step_it_waits():
    policy, plan = begun()
    waits = policy.propose(stats(MEASURED), plan)
    assert waits.plan == plan
    assert waits.notes["next"] == 2 * MEASURED


def test_its_state_goes_through_a_checkpoint():
    policy, plan = begun()
    settled(policy, plan)
    other, _ = begun()
    other.load_state_dict(policy.state_dict())
    assert other.state_dict()["notes"].tolist() == policy.state_dict()["notes"].tolist()
    assert not other.watch(0, plan)


def test_it_has_lanes_for_every_route_and_surveys_them():
    policy = Espresso([TopK(density=0.01), Quantize(bits=4)])
    flat, several = World(size=4), World(size=4, node_size=2)
    policy.start(LAYERS, flat)
    assert policy.rounds(LAYERS, flat) == 2
    assert policy.rounds(LAYERS, several) == 4
    assert Divided(Quantize(bits=4)) in policy.surveyed(LAYERS, flat)


def test_what_cannot_be_searched_is_named():
    for wrong in (Divided(Quantize(bits=4)), [], 7):
        with pytest.raises(InvalidConfig, match="compressor"):
            Espresso(wrong)
    with pytest.raises(InvalidConfig, match="period"):
        Espresso(Quantize(bits=4), period=1)


def test_it_reads_back_as_text():
    made = Espresso(TopK(density=0.01), period=50)
    again = parse(repr(made))
    assert isinstance(again, Policy)
    assert repr(again) == repr(made)


def test_deciding_changes_nothing_in_the_policy():
    policy, plan = begun()
    before = policy.state_dict()["notes"].tolist()
    policy.propose(stats(MEASURED, traced(plan, SLOW), replace(traced(plan, SLOW), step=4)), plan)
    assert policy.state_dict()["notes"].tolist() == before
