"""Predicted against measured: what the planner says that a step takes, and what it takes in a race in the lab.

In each cell (a workload, machines, a rate) a probe trains without communication and measures links, arithmetic and the
backward pass in turns with the plans that are raced, so that whatever else the machine does hurts both alike. No step
of a raced plan enters its prediction.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from laconic.compressors.dense import Dense
from laconic.compressors.expression import parse
from laconic.compressors.routes import Route
from laconic.errors import LaconicError
from laconic.exchange import Compressor
from laconic.lab.entrant import Entrant
from laconic.lab.methods import Method
from laconic.lab.race import Course, Race
from laconic.planning.advice import advise
from laconic.planning.pricing import step_seconds
from laconic.planning.profile import Profile
from laconic.policies.static import Static

CHOICE = "Espresso's choice"
NARROW, WIDEST, RANKED = 0.10, 0.25, 0.9  # the aims: median and worst error, rank correlation


@dataclass(frozen=True)
class Prediction:
    """One plan in one cell; milliseconds a step. `load` is what else the machine was doing."""

    workload: str
    hosts: str
    rate: str
    method: str
    predicted: float
    measured: float
    load: float

    @property
    def error(self) -> float:
        """Relative to what was measured; above 0 if the prediction was too long."""
        return self.predicted / self.measured - 1


def predictions(course: Course, watch: Callable[[Race], None] = lambda _: None) -> tuple[list[Prediction], Profile]:
    """Race a cell's plans and the planner's own choice beside a probe, and predict each of them."""
    plans = [parse(method.name, "plans") for method in course.methods]
    cores = list(dict.fromkeys(core_of(plan) for plan in plans if core_of(plan) != Dense()))
    probe = Method.parse("probe:" + "+".join(map(str, dict.fromkeys([*plans, *cores]))))
    alone = replace(course, methods=(probe,), steps=course.warmup + 2 * course.turn, evaluations=0)
    chosen = advise(_profile(Race(alone).run()), cores, "better").plan
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        chosen.save(file.name)
        own = Method(f"plan:{file.name}")
        race = Race(replace(course, methods=(probe, *course.methods, own), evaluations=0))
        race.watch = lambda _: watch(race)
        entrants = race.run()
    profile = _profile(entrants)
    made = []
    for entrant in entrants[1:]:
        if entrant.ms_per_step is None:
            raise LaconicError(f"{entrant.method.name} {entrant.status}: {entrant.failure}")
        mine = entrant.method == own
        plan = chosen if mine else Static(parse(entrant.method.name)).start(profile.trace.layers, profile.world)
        seconds = step_seconds(profile, plan)
        cell = (course.workload, str(course.layout), str(course.rate))
        told = CHOICE if mine else entrant.method.name
        made.append(Prediction(*cell, told, 1e3 * seconds, entrant.ms_per_step, race.load))
    return made, profile


def _profile(entrants: Sequence[Entrant]) -> Profile:
    """What the probe found, which is the first entrant."""
    text = entrants[0].profile
    if text is None:
        raise LaconicError(f"the probe {entrants[0].status}: {entrants[0].failure}")
    return Profile.from_json(text)


def core_of(option: Compressor) -> Compressor:
    """The compressor without its routes."""
    return core_of(option.core) if isinstance(option, Route) else option
