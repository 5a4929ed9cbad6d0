"""Where Auto stands, and what the clock tells it: pure functions of what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from laconic.policies.trials import Trial
from laconic.stats import Stats, StepTrace

SLIGHT = 0.12  # relative change of step time that counts
SURE = 3  # times what a measurement costs: when longer steps have lost so much, there is one
SHIFT = 0.5  # Accordion's: a relative change of the gradient's norm that marks a critical regime
ABOVE, MOST = 1.5, 0.95  # times the budget, and in all, that may stay unsent once residuals have grown
OPENING, LOOSEST, TIGHTEST = 1 / 2, 1.0, 1 / 64  # shares of the budget: early training is a critical regime
TRIAL_COST = 0.01  # share of the time that trials of dense may take
MEASURE_COST = 0.02  # share of the time that measuring and trying may take, the first time left out


@dataclass(frozen=True)
class Moment:
    """Published with every proposal, so alike on every rank; in a checkpoint as it is."""

    phase: str = "measure"  # then trial, then settled
    next: int = 0  # the step after which something is to be decided
    since: int = 0  # the step of the last decision
    patience: int = 0  # steps from then to the next measurement in any case
    trials: tuple[Trial, ...] = ()
    settled: str = ""  # the plan that won the last trials
    afford: int = 0  # steps from then to one that costs little enough
    price: float = 0.0  # seconds that the last one and its trials cost
    lost: float = 0.0  # seconds that longer steps have lost since the last calm look
    expected: float = 0.0  # seconds a step under the plan in use
    late: float = 0.0  # the share of energy that it leaves, as that counts
    least: float = 0.0  # the shortest and the longest step at which the plan in use was found to be the best
    most: float = 0.0
    looked: int = 0  # the step of the last look at the clock
    tried: int = 0  # the step of the last trial of dense
    uneasy: bool = False  # the last look found a change,
    wonders: bool = False  # and whether it is the link's is being found out
    dense: float = 0.0  # seconds a step if all went dense
    tight: float = OPENING
    over: bool = False  # the last measurement was taken because the error was above the budget
    norm: float = 0.0  # of the gradient, when last measured
    energy: float = 0.0  # of gradient and residual, when last looked at
    rate: float = 0.0  # learning rate then, 0 if it is not seen
    skipped: int = 0  # non-finite steps by then
    credit: float = 0.0  # seconds that trials of dense may take by now
    cost: float = 0.0  # seconds that it took beyond what its steps would have taken
    again: bool = False  # plans were made once more, from the steps of a trial
    slow: float = 1.0  # seconds a byte, relative to what the survey found
    dear: float = 1.0  # seconds of arithmetic, relative to what was rehearsed


def undisturbed(times: Sequence[float]) -> float:
    """The mean of the quicker two thirds: of six steps it varies less than their median does, and less than their
    quickest (docs/auto.md has figures). Neighbours make steps longer, never shorter.

    >>> undisturbed([4.0, 2.0, 9.0])
    3.0
    """
    quick = sorted(times)[: max(1, 2 * len(times) // 3)]
    return sum(quick) / len(quick)


def typical(steps: Sequence[StepTrace], plan: str) -> float:
    """Seconds of a step under a plan, 0 where there is none: of recent ones until their means were there, and the
    shortest way from there to the next, since a pause (an evaluation, a checkpoint) is nobody's fault."""
    times = [step.working for step in steps if step.plan == plan]
    return undisturbed(times) + min(step.tail for step in steps) if times else 0.0


def quickest(steps: Sequence[StepTrace], plan: str) -> float:
    """The shortest of the recent steps under a plan, 0 where there is none: what it takes where nothing is watched."""
    times = [step.working for step in steps if step.plan == plan]
    return min(times) + min(step.tail for step in steps) if times else 0.0


def pace(steps: Sequence[StepTrace], plan: str) -> float:
    """Seconds from the start of a step until its first bucket is full, typically; 0 where it is not known.

    No plan has a say in that: it tells how busy the machine was.
    """
    leads = [step.buckets[0].ready - step.began for step in steps if step.plan == plan and step.buckets]
    return max(0.0, undisturbed(leads)) if leads else 0.0


@dataclass(frozen=True)
class Alarm:
    """Why Auto measures again, and the share of the budget that it may spend from now on."""

    why: str
    tight: float
    over: bool = False


def alarm(now: Moment, stats: Stats, took: float, budget: float, unsent: float) -> Alarm | None:
    """What calls for another measurement, the gravest first. `unsent` is the share of gradients and residuals that
    stays, as it counts."""
    harder, easier = max(TIGHTEST, now.tight / 2), min(LOOSEST, 2 * now.tight)
    if stats.skipped > now.skipped:
        return Alarm(f"{stats.skipped - now.skipped} steps were not finite: the budget is halved", harder)
    if unsent > min(MOST, ABOVE * budget):
        told = f"{unsent:.2f} of the energy stays unsent, which is above {min(MOST, ABOVE * budget):.2f}"
        if not now.over:  # it was planned from gradients whose residual had not grown yet: once more, from these
            return Alarm(told, now.tight, over=True)
        return Alarm(f"{told}, again: it is halved", harder, over=True)
    energy = sum(layer.energy for layer in stats.layers.values())
    if now.energy > 0 and energy > 16 * now.energy:
        grown = sqrt(energy / now.energy)
        return Alarm(f"gradients and residuals have grown {grown:.1f} times: the budget is halved", harder)
    rate = stats.learning_rate or 0.0
    if now.rate > 0 and not 0.5 < rate / now.rate < 2:
        return Alarm(f"the learning rate went from {now.rate:.3g} to {rate:.3g}: the budget is halved", harder)
    since, affordable = stats.steps - now.since, stats.steps - now.since >= now.afford
    changed = now.uneasy and abs(drift(now, took)) > SLIGHT
    if (changed and affordable) or lost(now, stats.steps, took) > SURE * now.price:
        return Alarm(f"a step takes {1e3 * took:.1f} ms, and it was {1e3 * now.expected:.1f}", now.tight)
    if since >= now.patience:
        return Alarm(f"{since} steps since the last measurement", easier)
    return None


def drift(now: Moment, took: float) -> float:
    """By what share a step is longer than the longest at which this plan was found to be the best; below zero, by what
    share it is quicker than the shortest. Between the two there is nothing to find out, so that a machine whose
    neighbours come and go is measured at its fastest and its slowest, and not each time that it changes.

    >>> plan = Moment(least=0.2, most=0.3)
    >>> drift(plan, 0.25), drift(plan, 0.6), drift(plan, 0.1)
    (0.0, 1.0, -1.0)
    """
    if not (now.least > 0 and took > 0):
        return 0.0
    return max(0.0, took / now.most - 1) - max(0.0, now.least / took - 1)


def lost(now: Moment, steps: int, took: float) -> float:
    """Seconds that were lost to longer steps since the last calm look, if one takes so long now."""
    change = drift(now, took)
    return now.lost + (steps - now.looked) * (took - now.most) if change > SLIGHT else 0.0


def overhead(steps: Sequence[StepTrace], last: int) -> float:
    """Seconds that the last few steps took beyond the quickest of them."""
    times = [step.working for step in steps][-last:]
    return sum(times) - len(times) * min(times) if times else 0.0


def patience(cost: float, took: float, least: int, most: int) -> int:
    """Steps until the next measurement in any case, so that what one costs is a small share of the time.

    >>> patience(cost=0.4, took=0.02, least=40, most=2560)
    1000
    """
    return max(least, min(most, ceil(cost / (MEASURE_COST * took)) if took > 0 else most))


def critical(now: Moment, norm: float) -> bool:
    """Whether gradients have changed so fast since the last measurement that training is at a turn (Accordion)."""
    return now.norm > 0 and abs(norm - now.norm) >= SHIFT * now.norm


def from_notes(notes: Mapping[str, object]) -> Moment:
    """A moment from plain values, as `dataclasses.asdict` gives them."""
    known = dict(notes)
    known["trials"] = tuple(Trial(**trial) for trial in known["trials"])  # type: ignore[attr-defined]
    return Moment(**known)  # type: ignore[arg-type]
