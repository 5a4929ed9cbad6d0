"""What Auto's clock tells it: verdicts on trials, and alarms."""

from dataclasses import asdict, replace

import pytest

from laconic import Dense, Layer, Plan, PowerSGD, Quantize
from laconic.planning.candidates import Candidate
from laconic.policies.moment import (
    OPENING,
    TIGHTEST,
    Alarm,
    Moment,
    alarm,
    critical,
    from_notes,
    lost,
    pace,
    quickest,
    typical,
)
from laconic.policies.trials import Trial, verdict, worth_trying
from laconic.stats import BucketTrace, LayerStats, Stats, StepTrace

SETTLED = Moment(
    "settled", next=60, since=40, patience=100, afford=50, price=0.5, looked=50, expected=0.2, least=0.2, most=0.2,
    dense=1.0, skipped=0, energy=4.0, rate=0.1,
)  # fmt: skip


def trial(name: str, took: float, error: float = 0.1, least: float = 0.0) -> Trial:
    return Trial(name, 0.1, error, {}, took, least or took)


def stats(steps: int = 60, energy: float = 4.0, left: float = 0.4, **other: object) -> Stats:
    return Stats(steps, layers={"w": LayerStats(energy=energy, left=left)}, learning_rate=0.1, **other)  # type: ignore[arg-type]


def test_the_clock_overrules_the_model_only_beyond_noise() -> None:
    assert verdict([trial("a", 0.200), trial("b", 0.199)]).plan == "a"
    assert verdict([trial("a", 0.200), trial("b", 0.150), trial("c", 0.149)]).plan == "b"


def test_of_equal_times_the_gentler_plan_wins_when_it_is_expected_to() -> None:
    """Dense first at the same time: nothing is gained by leaving energy behind."""
    assert verdict([trial("dense", 0.2, 0.0), trial("harsh", 0.2, 0.5)]).plan == "dense"


def test_dense_stays_where_nothing_is_clearly_faster() -> None:
    """Six steps of a trial are told apart to some percent, and dense leaves nothing behind."""
    assert verdict([trial("few bits", 0.196), trial("dense", 0.2, 0.0)]).plan == "dense"
    assert verdict([trial("few bits", 0.17), trial("dense", 0.2, 0.0)]).plan == "few bits"
    assert verdict([trial("dense", 0.2, 0.0), trial("few bits", 0.17)]).plan == "few bits"


def test_a_neighbour_that_stays_for_a_trial_of_dense_does_not_decide() -> None:
    """It makes steps longer, never shorter: the quickest of them tells."""
    slowed = trial("dense", 0.2, 0.0, least=0.16)
    assert verdict([trial("few bits", 0.17, least=0.165), slowed]).plan == "dense"
    assert verdict([trial("few bits", 0.15, least=0.14), slowed]).plan == "few bits"


def test_what_the_forward_pass_felt_too_is_taken_out_of_a_trial() -> None:
    """A machine that was busier by a quarter in one trial: what no plan has a say in took longer, too."""
    calm, busy = replace(trial("a", 0.200), pace=0.08), replace(trial("b", 0.225), pace=0.10)
    assert verdict([calm, busy]).plan == "b"
    assert verdict([busy, calm]).took == 0.225, "what is told is what was measured"
    assert verdict([calm, replace(busy, pace=0.0)]).plan == "a", "not known of one: seconds as they are"
    dense = replace(trial("dense", 0.25, 0.0), pace=0.10)
    assert verdict([calm, dense]).plan == "dense"
    assert verdict([calm, replace(dense, pace=0.08)]).plan == "a"


def test_dense_has_its_place_among_few_that_are_left_to_try() -> None:
    """After the first trial there is room for two: one of another kind, and dense."""
    plain, bits, low = (Plan({"w": one}) for one in (Dense(), Quantize(), PowerSGD(rank=4)))
    ranked = [Candidate(bits, 0.1, 0.0, 0.0), Candidate(low, 0.101, 0.0, 0.0), Candidate(plain, 0.12, 0.0, 0.0)]
    plans = [one.plan for one in worth_trying(ranked, [Layer("w", (64, 64))], 0.12, rival=0.1, room=2)]
    assert plans == [bits.to_json(), plain.to_json()]


def test_where_pace_and_clock_disagree_about_dense_what_was_expected_decides() -> None:
    """A pace is a measurement, too: dense that was expected to be far behind does not stay for a busy forward pass."""
    plan, dense = replace(trial("a", 0.16), pace=0.05), replace(trial("dense", 0.2, 0.0), pace=0.06)
    assert verdict([plan, replace(dense, seconds=0.2)]).plan == "a"
    assert verdict([plan, replace(dense, seconds=0.1)]).plan == "dense"


def test_a_pace_is_the_time_to_the_first_bucket() -> None:
    buckets = [(BucketTrace((), n + lead, (), ()),) for n, lead in enumerate((0.1, 0.12, 0.5))]
    steps = [StepTrace(n, "a", n, n + 0.3, n + 0.4, traced) for n, traced in enumerate(buckets)]
    assert pace(steps, "a") == pytest.approx(0.11), "of the quicker two"
    assert pace(steps, "b") == 0.0
    assert pace([StepTrace(0, "a", 0.0, 0.3, 0.4)], "a") == 0.0


def test_the_quickest_step_is_one_in_which_nothing_was_watched() -> None:
    steps = [StepTrace(0, "a", 0.0, 0.3, 0.35), StepTrace(1, "a", 1.0, 1.2, 1.25), StepTrace(2, "b", 2.0, 2.1, 2.15)]
    assert quickest(steps, "a") == pytest.approx(0.25)
    assert quickest(steps, "c") == 0.0


def raised(now: Moment, seen: Stats, took: float) -> Alarm | None:
    return alarm(now, seen, took, budget=0.5, unsent=seen.error**2)


def test_a_calm_run_raises_no_alarm() -> None:
    assert raised(SETTLED, stats(), 0.2) is None


@pytest.mark.parametrize(
    ("seen", "took", "word", "tight"),
    [
        (stats(skipped=2), 0.2, "not finite", OPENING / 2),
        (stats(energy=80.0, left=8.0), 0.2, "grown", OPENING / 2),
        (replace(stats(), learning_rate=0.01), 0.2, "learning rate", OPENING / 2),
        (stats(), 0.41, "410.0 ms", OPENING),
        (stats(steps=140), 0.2, "100 steps", 1.0),
    ],
)
def test_each_alarm_says_why_and_how_tight(seen: Stats, took: float, word: str, tight: float) -> None:
    found = raised(SETTLED, seen, took)
    assert found is not None
    assert word in found.why
    assert found.tight == tight


def test_an_error_above_the_budget_is_planned_for_again_and_then_tightens_it() -> None:
    """The first time the plan was made before residuals had grown."""
    seen = stats(energy=4.0, left=3.2)
    first = raised(SETTLED, seen, 0.2)
    assert first is not None
    assert (first.tight, first.over) == (OPENING, True)
    again = raised(replace(SETTLED, over=True), seen, 0.2)
    assert again is not None
    assert again.tight == OPENING / 2
    tightest = raised(replace(SETTLED, over=True, tight=TIGHTEST), seen, 0.2)
    assert tightest is not None
    assert tightest.tight == TIGHTEST


@pytest.mark.parametrize(("took", "counts"), [(0.25, True), (0.15, True), (0.21, False), (0.19, False)])
def test_a_change_counts_the_second_time_once_a_measurement_is_affordable(took: float, counts: bool) -> None:
    """Another one costs little from 50 steps after the last one on, which was at step 40."""
    uneasy = replace(SETTLED, uneasy=True, looked=80)
    assert raised(replace(uneasy, uneasy=False), stats(90), took) is None
    assert (raised(uneasy, stats(90), took) is not None) == counts
    assert raised(replace(uneasy, since=41), stats(90), took) is None


def test_before_that_longer_steps_must_have_lost_what_several_measurements_cost() -> None:
    """A measurement costs 0.5 s, and ten steps were 0.1 s too long: 1 s, and with what was lost before them 1.6."""
    assert lost(SETTLED, 60, 0.3) == pytest.approx(1.0)
    assert raised(replace(SETTLED, uneasy=True), stats(), 0.3) is None
    assert raised(replace(SETTLED, uneasy=True, lost=0.6), stats(), 0.3) is not None
    assert lost(replace(SETTLED, lost=0.6), 60, 0.2) == 0.0  # a calm look forgets


def test_between_the_lengths_at_which_a_plan_was_found_best_nothing_calls_for_a_measurement() -> None:
    """Neighbours that come and go move a step by half and back: both ends have been measured."""
    both = replace(SETTLED, uneasy=True, most=0.3)
    for took in (0.2, 0.25, 0.3, 0.33):
        assert raised(both, stats(steps=90), took) is None
    for took in (0.17, 0.34):
        assert raised(both, stats(steps=90), took) is not None


def test_a_gradient_that_halves_marks_a_critical_regime() -> None:
    assert critical(Moment(norm=2.0), 0.9)
    assert not critical(Moment(norm=2.0), 1.5)
    assert not critical(Moment(), 1.5)


def test_a_typical_step_is_an_undisturbed_one_under_that_plan() -> None:
    """A pause after a step, such as an evaluation, does not count."""
    steps = [
        StepTrace(i, "p" if i else "q", 0.0, took, took + 0.5 + 9 * (i == 2)) for i, took in enumerate((9, 1, 2, 30))
    ]
    assert typical(steps, "p") == 2.0, "the mean of 1 and 2, and the way from there to the next"
    assert typical(steps, "other") == 0.0


def test_a_moment_survives_its_notes() -> None:
    moment = replace(SETTLED, trials=(trial("a", 0.2),), settled="a", over=True)
    assert from_notes(asdict(moment)) == moment


@pytest.mark.parametrize(("behind", "tried"), [(1.1, True), (1.4, True), (1.6, False)])
def test_dense_is_not_tried_alone_where_another_is_not_far_behind(behind: float, tried: bool) -> None:
    """A survey in a busy moment makes arithmetic dear, and the clock would never hear of it."""
    layers = [Layer("w", (64, 64))]
    dense = Candidate(Plan({"w": Dense()}), 0.1, 0.0, 0.0)
    low, bits = (
        Candidate(Plan({"w": core}), behind * 0.1 + worse, 0.0, 0.0)
        for core, worse in ((PowerSGD(), 0.0), (Quantize(), 0.001))
    )
    plans = [one.plan for one in worth_trying([dense, low, bits], layers, 0.1)]
    assert plans[0] == dense.plan.to_json()
    assert (low.plan.to_json() in plans) == tried


@pytest.mark.parametrize(("took", "tried"), [(0.11, True), (0.14, True), (0.16, False)])
def test_dense_is_tried_unless_it_is_far_behind(took: float, tried: bool) -> None:
    """Steps in which Auto measures are long; where the link is not in the way, only the clock tells."""
    plain = Plan({"w": Dense()})
    ranked = [Candidate(Plan({"w": Quantize()}), 0.1, 0.01, 0.0025), Candidate(plain, took, 0.0, 0.0)]
    plans = [one.plan for one in worth_trying(ranked, [Layer("w", (64, 64))], took)]
    assert (plain.to_json() in plans) == tried
