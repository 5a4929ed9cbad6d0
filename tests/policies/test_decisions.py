"""Auto's decisions, driven by made-up measurements: what it tries, what it stays with, and when it leaves that."""

from dataclasses import asdict, replace
from functools import partial

import pytest

from laconic import Auto, Dense, Layer, Plan, PowerSGD, Quantize, World
from laconic.exchange import Op
from laconic.planning import candidates
from laconic.planning.link import collective_seconds, what_if
from laconic.planning.surroundings import Cadence, Surroundings
from laconic.policies import auto
from laconic.policies.policy import Proposal
from laconic.stats import BucketTrace, LayerStats, Sounding, Stats, StepTrace, Table
from laconic.world import Scope

LAYERS = [Layer("head", (256, 512)), Layer("body", (1024, 512))]
BITS, RANKS = (Quantize(bits=8), Quantize(bits=4)), (PowerSGD(rank=16), PowerSGD(rank=4))
ERRORS = (1e-4, 1e-2, 0.1, 0.2)
WORLD = World(size=2)


class Run:
    """A run without training: every step takes what it is told to take."""

    def __init__(self, bits_a_second: float = 5e7) -> None:
        self.policy = Auto(families=[BITS, RANKS])
        self.plan = self.policy.start(LAYERS, WORLD)
        self.plan = self.policy.learn(Surroundings(WORLD, what_if(WORLD, bits_a_second, 1e11)), self.plan)
        self.steps = self.policy._now.next
        self.errors = ERRORS
        self.sounding: Sounding = ()

    def decide(self, step_s: float, ready: float = 0.0) -> Proposal:
        """What is proposed when the next decision is due, and adopted. Both layers come after 50 ms, or one after a
        fifth of what it takes until the other is `ready`."""
        self.steps = self.policy._now.next
        apart = (BucketTrace(("head",), ready / 5, (), ()), BucketTrace(("body",), ready, (), ()))
        buckets = apart if ready else (BucketTrace(("head", "body"), 0.05, (), ()),)
        traced = [
            StepTrace(self.steps - n, self.plan.digest, 0.0, step_s - 0.001, step_s, buckets) for n in range(6, 0, -1)
        ]
        tables = {layer.name: Table((*BITS, *RANKS), self.errors, 1.0, 1.0, 2) for layer in LAYERS}
        layers = {layer.name: LayerStats(energy=1.0, left=0.1) for layer in LAYERS}
        stats = Stats(self.steps, layers=layers, tables=tables, recent=tuple(traced), learning_rate=0.1)
        stats.sounding = self.sounding
        proposal = self.policy.propose(stats, self.plan)
        self.policy.take_notes(proposal.notes)
        self.plan = proposal.plan
        return proposal

    def sound(self, times: float) -> None:
        """From now on soundings find a link that takes so many times as long as the survey's."""
        assert self.policy._around is not None
        seconds = partial(collective_seconds, self.policy._around.slower(times).links, Op.GATHER, Scope.WORLD)
        self.sounding = tuple((nbytes, seconds(nbytes)) for nbytes in (1 << 12, 1 << 24))

    def until(self, phase: str, step_s: float) -> Proposal:
        for _ in range(40):
            found = self.decide(step_s)
            if self.policy._now.phase == phase:
                return found
        raise AssertionError(f"it never came to {phase}")


@pytest.mark.parametrize("rate", [2e7, 5e7, 2e8, 1e9, 1e11])
@pytest.mark.parametrize("world", [World(size=2), World(size=4), World(size=16), World(size=4, node_size=2)], ids=str)
def test_a_run_begins_with_the_gentlest_exchange_that_is_quick_enough_or_with_the_quickest(
    world: World, rate: float
) -> None:
    """Among many ranks a gather of 8 bits takes longer than a dense sum, so that the route counts as well."""
    layers, around = [Layer("w", (2048, 2048))], Surroundings(world, what_if(world, rate, 1e11))
    policy = Auto()
    begun = policy.learn(around, policy.start(layers, world))
    cadence = Cadence((("w",),), (0.0,), 0.0)
    cores = (Dense(), *auto.BEGINNINGS)
    ways = [Plan({"w": option}) for core in cores for option in candidates.routes(core, world)]
    took = [candidates.seconds(way, layers, cadence, around) for way in ways]
    enough = next((way for way, seconds in zip(ways, took, strict=True) if seconds <= auto.LONG), None)
    assert begun == (enough or ways[took.index(min(took))])
    assert len(begun["w"].legs(layers[0], world)) <= policy.rounds(layers, world)


def test_a_slow_link_is_measured_in_fewer_bits() -> None:
    """16.8 MB at 50 Mbit/s: 3.4 s as they are, 0.84 in 8 bits, 0.42 in 4."""
    begun = {}
    for rate in (5e7, 2e8, 2e9):
        policy = Auto()
        plan = policy.start([Layer("w", (2048, 2048))], WORLD)
        begun[rate] = policy.learn(Surroundings(WORLD, what_if(WORLD, rate, 1e11)), plan)["w"]
    assert list(begun.values()) == [Quantize(bits=4), Quantize(bits=8), Dense()]


def test_plans_of_one_kind_are_not_played_off_against_each_other() -> None:
    run = Run()
    run.decide(0.1)
    kinds = [{type(one) for one in Plan.from_json(trial.plan).values()} for trial in run.policy._now.trials]
    assert len(kinds) == len({frozenset(kind) for kind in kinds})


def test_plans_are_made_once_more_from_steps_that_are_not_dense() -> None:
    """Measured in dense steps, backward seems long enough to hide 8 bits of `head`; on trial it turns out not to be."""
    run = Run(bits_a_second=2e8)
    run.decide(0.8, ready=0.5)
    meant = {trial.plan for trial in run.policy._now.trials}
    assert run.policy._now.phase == "trial"
    run.decide(0.1, ready=0.05)
    assert run.policy._now.again
    tried = run.policy._now.trials
    assert tried[0].took == pytest.approx(0.1)
    assert run.plan.to_json() == tried[1].plan
    assert tried[1].plan not in meant, "made for steps that are not so long"
    assert len(tried) <= auto.ON_TRIAL
    while run.policy._now.phase == "trial":
        found = run.decide(0.05, ready=0.05)
    assert found.why.startswith("50.0 ms a step, the best of 100.0 ms, 50.0 ms")
    assert {trial.plan for trial in run.policy._now.trials} <= {trial.plan for trial in tried}


def test_a_plan_in_use_stays_without_a_trial_while_nothing_promises_more() -> None:
    run = Run()
    run.until("settled", 0.1)
    before, waited = run.plan, run.policy._now.patience
    run.until("measure", 0.1)
    found = run.decide(0.1)
    assert run.policy._now.phase == "settled"
    assert "stays" in found.why
    assert run.plan == before
    assert run.policy._now.patience >= 2 * waited


def test_on_another_link_a_plan_must_win_its_place_again() -> None:
    """Within 5% of the best it stays where it has won; where it was never tried, the best is."""
    run = Run()
    run.until("settled", 0.1)
    run.until("measure", 0.1)
    run.sound(2.0)
    found = run.decide(0.1)
    assert run.policy._now.slow == pytest.approx(2.0, rel=0.02)
    assert run.policy._now.phase == "trial", found.why


def test_it_leaves_a_plan_whose_error_no_longer_fits() -> None:
    run = Run()
    run.until("settled", 0.1)
    before = run.plan
    run.until("measure", 0.1)
    run.errors = tuple(min(0.9, 50 * error) for error in ERRORS)
    run.until("settled", 0.1)
    assert run.plan != before


def test_what_stays_unsent_beside_residuals_does_not_bring_dense_back() -> None:
    """Residuals grow under a plan, and were no part of what it was chosen by: beside dense its speed decides."""
    run = Run()
    run.until("settled", 0.1)
    settled = run.policy._now
    assert settled.late > 0
    run.policy._now = replace(settled, dense=0.13, credit=10.0, tried=-1000, patience=1000)
    found = run.decide(0.1)
    assert "dense on trial" in found.why
    mine, _dense = run.policy._now.trials
    assert mine.error == pytest.approx(0.1)  # of gradient and residual
    assert mine.late == settled.late
    run.decide(0.13)
    assert run.plan.to_json() == mine.plan


def slowed(monkeypatch: pytest.MonkeyPatch, step_s: float) -> tuple[Run, Plan]:
    """A run whose messages tell of a link at a hundredth of its rate, once it has decided anew; and its plan before."""
    run = Run(bits_a_second=2e9)
    run.until("settled", 0.1)
    before = run.plan
    run.until("measure", 0.1)
    monkeypatch.setattr(auto, "slowdown", lambda *_: 100.0)
    run.until("settled", step_s)
    return run, before


def test_it_leaves_a_plan_for_one_that_promises_much_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps take longer: what was good enough is far behind now."""
    run, before = slowed(monkeypatch, step_s=3.0)
    assert run.plan != before
    assert run.policy._now.slow == 100.0


def test_a_link_that_seems_slow_while_steps_are_as_quick_as_ever_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only as far as steps under the plan before may be longer than the model says."""
    run, before = slowed(monkeypatch, step_s=0.1)
    slow, around = run.policy._now.slow, run.policy._around
    assert around is not None
    assert slow < 10
    cadence = Cadence((("head", "body"),), (0.05,), 0.001)
    assert candidates.seconds(before, LAYERS, cadence, around.slower(slow)) <= candidates.OFF * 0.1


@pytest.mark.parametrize("told", [1.0, 100.0, 1000.0])
def test_a_sounding_has_the_last_word_on_the_link(monkeypatch: pytest.MonkeyPatch, told: float) -> None:
    """Whatever the messages of steps tell, and although steps take no longer: its messages take 50 times as long."""
    run = Run(bits_a_second=2e9)
    run.until("settled", 0.1)
    run.sound(50)
    monkeypatch.setattr(auto, "slowdown", lambda *_: told)
    run.until("measure", 0.1)
    run.until("settled", 0.1)
    assert run.policy._now.slow == pytest.approx(50, rel=0.01)


def test_the_link_is_sounded_once_in_every_measurement_but_the_first() -> None:
    """The survey has just been there then."""
    run = Run()
    assert not any(run.policy.sounds(step) for step in range(run.policy._now.next + 2))
    run.until("settled", 0.1)
    assert not any(run.policy.sounds(step) for step in range(run.steps, run.steps + 100))
    run.until("measure", 0.1)
    assert [step for step in range(run.steps, run.steps + 100) if run.policy.sounds(step)] == [run.policy._now.next - 1]


@pytest.mark.parametrize(("times", "measures"), [(1.0, False), (1.2, False), (20.0, True), (0.1, True)])
def test_where_steps_have_changed_the_link_is_sounded_and_another_link_is_measured_at_once(
    times: float, measures: bool
) -> None:
    """However long it would take until a measurement were worth it for steps that are longer for no known reason."""
    run = Run()
    run.until("settled", 0.1)
    run.policy._now = replace(run.policy._now, afford=1000, patience=1000, price=1e9)
    while run.policy._now.phase == "settled" and not run.policy._now.wonders:
        run.decide(0.13 if times >= 1 else 0.08)
    looked = run.steps
    assert run.policy._now.next == looked + 3
    assert [step for step in range(looked, looked + 100) if run.policy.sounds(step)] == [looked + 2]
    run.sound(times)
    found = run.decide(0.13 if times >= 1 else 0.08)
    assert (run.policy._now.phase == "measure") == measures, found.why
    assert not run.policy._now.wonders
    if not measures:
        assert run.policy._now.next >= looked + auto.LOOK, "the next look is when it would have been"


def test_what_it_remembers_is_all_it_needs() -> None:
    """A policy that loads the state decides as the one that saved it."""
    run, other = Run(), Run()
    run.until("settled", 0.1)
    other.policy.load_state_dict(run.policy.state_dict())
    other.plan = run.plan
    assert replace(run.policy._now) == other.policy._now
    assert run.decide(0.2).why == other.decide(0.2).why


def test_steps_that_become_longer_are_measured_once_and_then_known() -> None:
    """Neighbours that come, go, and come again: the plan was found to be the best at both lengths."""
    run = Run()
    run.until("settled", 0.1)
    found = run.until("measure", 0.2)
    assert "200.0 ms" in found.why
    run.until("settled", 0.2)
    now = run.policy._now
    assert (now.least, now.most) == pytest.approx((0.1, 0.2))
    for step_s in (0.1, 0.2, 0.15):
        assert run.policy._now.next < now.since + now.patience
        assert run.decide(step_s).why == "as expected"


def test_dense_is_tried_as_soon_as_steps_take_longer_than_it_would() -> None:
    """Whatever has been spent on trials: here it costs nothing, and dense stays where it is as fast."""
    run = Run()
    run.decide(0.1)
    dense = run.policy._now.dense
    run.until("settled", 0.95 * dense)
    assert not all(one.lossless for one in run.plan.values())
    found = run.decide(1.02 * dense)
    assert "dense on trial" in found.why
    assert all(one.lossless for one in found.plan.values())
    run.until("settled", 1.02 * dense)
    assert all(one.lossless for one in run.plan.values())


def test_dense_is_not_tried_on_a_link_that_has_just_broken_down() -> None:
    """What dense took before says nothing of what it takes now: a measurement does."""
    run = Run()
    run.decide(0.1)
    dense = run.policy._now.dense
    run.until("settled", 0.9 * dense)
    run.policy.take_notes(asdict(replace(run.policy._now, price=100.0, credit=100.0)))
    assert "not for long" in run.decide(3 * dense).why
    assert not all(one.lossless for one in run.plan.values())
    assert run.policy._now.uneasy
