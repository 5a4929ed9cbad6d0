"""Trials: plans that run for some steps because the model is good to some percent only, and the clock's verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from laconic.layer import Layer
from laconic.planning.candidates import Candidate, different, paid

ON_TRIAL, NEAR = 3, 1.15  # plans that are tried, and how far behind the best they may be expected to be,
FAR = 1.5  # or dense, and the best that is not: a survey in a busy moment makes arithmetic dear, or dense steps long
WORTH = 0.02  # relative gain that is worth a change
CLEARLY = 0.05  # by so much, on the clock, a plan that leaves something must beat dense: noise must not


@dataclass(frozen=True)
class Trial:
    """A plan to be run for some steps: its text, what it should take, the share of energy that it should leave."""

    plan: str
    seconds: float
    error: float
    why: Mapping[str, str]
    took: float = 0.0  # typically
    least: float = 0.0  # at its quickest
    pace: float = 0.0  # seconds that its steps took for what is the same under every plan, 0 where that is not known
    late: float = 0.0  # the share that its error counts as

    def at(self, pace: float) -> "Trial":
        """What was measured, had the machine been so busy as to need `pace` seconds for that."""
        by = pace / self.pace if pace and self.pace else 1.0
        return replace(self, took=by * self.took, least=by * self.least)

    @property
    def cost(self) -> float:
        """Measured seconds, or expected ones, for as much energy as a step's gradients have."""
        return paid(self.took or self.seconds, self.late)


def worth_trying(
    ranked: Sequence[Candidate], layers: Sequence[Layer], dense: float, rival: float = inf, room: int = ON_TRIAL
) -> tuple[Trial, ...]:
    """The best few of different kinds, if they may be the best, a `rival` that costs so much among them: the model is
    good to some percent. Dense, which takes `dense` seconds, is one of them unless it is far behind, and not alone
    unless all others are, if there is `room` for two."""
    if not ranked:
        return ()
    best = min(rival, ranked[0].cost)
    near = different([one for one in ranked if one.cost <= NEAR * best], layers)[:room]
    plain = next((one for one in ranked if one.dense), None)
    if plain is not None and dense <= FAR * best and plain not in near:
        near = [*near[: room - 1], plain]
    if 0 < len(near) < room and all(one.dense for one in near):
        near += [one for one in ranked if not one.dense and one.cost <= FAR * best][:1]
    return tuple(Trial(one.plan.to_json(), one.seconds, one.error, one.plan.why, late=one.late) for one in near)


def verdict(trials: Sequence[Trial]) -> Trial:
    """The best by the clock. What was expected to be best stays unless another is better by more than noise; and dense,
    where it was tried, stays unless another is clearly better, typically and at its quickest: neighbours on the machine
    make steps longer, never shorter, and may do so for a whole trial. That much of it which the forward pass felt, too,
    is taken out; where dense stays with that and not without, or the other way round, it stays unless it was expected
    to be far behind."""
    known = all(trial.pace > 0 for trial in trials)
    even = [trial.at(trials[0].pace if known else 0.0) for trial in trials]
    best = 0
    for index, trial in enumerate(even):
        if trial.cost < even[best].cost * (1 - WORTH):
            best = index
    dense = next((index for index, trial in enumerate(even) if trial.error == 0 and trial.took), best)
    paced, raw = (_clearly(view[best], view[dense]) for view in (even, trials))
    behind = trials[dense].seconds > NEAR * trials[best].seconds
    return trials[best if (paced if paced == raw else behind) else dense]


def _clearly(one: Trial, dense: Trial) -> bool:
    """Whether a plan is clearly faster than dense, or is dense itself."""
    enough = 1 - CLEARLY
    return one is dense or (one.took <= enough * dense.took and one.least <= enough * dense.least)
