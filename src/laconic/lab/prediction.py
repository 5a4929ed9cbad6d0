"""Predicted against measured: what the planner says that a step takes, and what it takes in a race in the lab.

In each cell (a workload, machines, a rate) a probe trains without communication and measures links, arithmetic and the
backward pass in turns with the plans that are raced, so that whatever else the machine does hurts both alike. A
reference runs beside them: what its steps take beyond their prediction (hand-overs between threads, books, waiting for
whichever rank is late) is added to every prediction. No step of a plan enters its own prediction.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from laconic.compressors.dense import Dense
from laconic.compressors.expression import parse
from laconic.compressors.routes import core_of
from laconic.compressors.sign import Sign
from laconic.errors import InvalidConfig, LaconicError
from laconic.lab.entrant import Entrant
from laconic.lab.methods import Method
from laconic.lab.race import Course, Race
from laconic.lab.standings import busy
from laconic.plan import Plan
from laconic.planning.pricing import step_seconds
from laconic.planning.profile import Profile
from laconic.planning.together import decide
from laconic.policies.static import Static

CHOICE = "Espresso's choice"
REFERENCE = Sign()
NARROW, WIDEST, RANKED = 0.10, 0.25, 0.9  # the aims: median and worst error, rank correlation


@dataclass(frozen=True)
class Prediction:
    """One plan in one cell; milliseconds a step, `beyond` of them the reference's. `load` is what else was running."""

    workload: str
    hosts: str
    rate: str
    method: str
    predicted: float
    measured: float
    load: float
    beyond: float

    @property
    def error(self) -> float:
        """Relative to what was measured; above 0 if the prediction was too long."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Cell:
    """What one cell's race measured: a profile, and (name, plan, milliseconds a step) of everything that ran.

    `beyond`: milliseconds that the reference took beyond its prediction.
    """

    workload: str
    hosts: str
    rate: str
    load: float
    profile: Profile
    raced: tuple[tuple[str, Plan, float], ...]
    beyond: float

    def predictions(self) -> list[Prediction]:
        """By the planner as it is now."""
        made = []
        for name, plan, ms in self.raced:
            predicted = max(0.0, 1e3 * step_seconds(self.profile, plan) + self.beyond)
            made.append(Prediction(self.workload, self.hosts, self.rate, name, predicted, ms, self.load, self.beyond))
        return made

    def as_json(self) -> dict[str, Any]:
        raced = [{"name": name, "plan": plan.to_json(), "ms": ms} for name, plan, ms in self.raced]
        told = {"workload": self.workload, "hosts": self.hosts, "rate": self.rate, "load": self.load}
        told["beyond"] = self.beyond
        return {**told, "profile": self.profile.to_json(), "raced": raced}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> "Cell":
        raced = tuple((entry["name"], Plan.from_json(entry["plan"]), float(entry["ms"])) for entry in row["raced"])
        profile = Profile.from_json(row["profile"])
        return Cell(row["workload"], row["hosts"], row["rate"], row["load"], profile, raced, row["beyond"])


def measure(course: Course, watch: Callable[[Race], None] = lambda _: None) -> Cell:
    """Race a cell's plans, and the planner's own choice, beside a probe."""
    plans = [parse(method.name, "plans") for method in course.methods]
    cores = list(dict.fromkeys(core_of(plan) for plan in plans if core_of(plan) != Dense()))
    if REFERENCE in plans:
        raise InvalidConfig("plans", str(REFERENCE), "it is the reference that others are held to: leave it out")
    probe = Method.parse("probe:" + "+".join(map(str, dict.fromkeys([*plans, *cores, REFERENCE]))))
    alone = replace(course, methods=(probe,), steps=course.warmup + 2 * course.turn, evaluations=0)
    chosen = decide(_profile(Race(alone).run()), cores, patience=2.0).plan
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        chosen.save(file.name)
        reference, own = Method.parse(str(REFERENCE)), Method(f"plan:{file.name}")
        race = Race(replace(course, methods=(probe, reference, *course.methods, own), evaluations=0))
        race.watch = lambda _: watch(race)
        entrants = race.run()
    profile = _profile(entrants)
    raced = []
    for entrant in entrants[1:]:
        if entrant.ms_per_step is None:
            raise LaconicError(f"{entrant.method.name} {entrant.status}: {entrant.failure}")
        if entrant.method == own:
            raced.append((CHOICE, chosen, entrant.ms_per_step))
            continue
        plan = Static(parse(entrant.method.name)).start(profile.trace.layers, profile.world)
        raced.append((entrant.method.name, plan, entrant.ms_per_step))
    (_, plan, took), *raced = raced
    beyond = took - 1e3 * step_seconds(profile, plan)
    return Cell(course.workload, str(course.layout), str(course.rate), race.load, profile, tuple(raced), beyond)


def _profile(entrants: Sequence[Entrant]) -> Profile:
    """What the probe found, which is the first entrant."""
    text = entrants[0].profile
    if text is None:
        raise LaconicError(f"the probe {entrants[0].status}: {entrants[0].failure}")
    return Profile.from_json(text)


def spearman(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """The rank correlation; equal values share their mean rank. 1 where there is nothing to order.

    >>> spearman([1, 2, 3], [10, 30, 20])
    0.5
    """
    a, b = _ranks(predicted), _ranks(measured)
    middle = (len(a) - 1) / 2
    shared = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    own = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    return shared / own**0.5 if own else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]


def page(cells: Sequence[Sequence[Prediction]], conditions: dict[str, str]) -> str:
    """The predictions as a page of Markdown tables, with a summary against the aims."""
    every = [abs(row.error) for rows in cells for row in rows]
    ordered = [spearman([row.predicted for row in rows], [row.measured for row in rows]) for rows in cells]
    all_rows = [row for rows in cells for row in rows]
    overall = spearman([row.predicted for row in all_rows], [row.measured for row in all_rows])
    met = sum(value >= RANKED for value in ordered)
    lines = ["# Predicted against measured", ""]
    lines += [f"- {key}: {value}" for key, value in conditions.items()]
    lines += [
        "",
        "Milliseconds a step under each plan, as the planner predicts them and as a race measures them. In each table",
        "a probe trained without communication and measured links, arithmetic and the backward pass, in turns with the",
        f"plans; a reference, `{REFERENCE}`, ran beside them, and what its steps took beyond their prediction is added",
        "to all (threads, books, waiting for the rank that is late). No step of a plan enters its own prediction. The",
        "error is relative to what was measured.",
        "",
        "| | found | aim |",
        "|---|---:|---:|",
        f"| median error | {median(every):.1%} | {NARROW:.0%} |",
        f"| worst error | {max(every):.1%} | {WIDEST:.0%} |",
        f"| rank correlation over all {len(all_rows)} | {overall:.3f} | {RANKED} |",
        f"| tables whose rank correlation is at least {RANKED} | {met} of {len(cells)} | all |",
    ]
    for rows, order in zip(cells, ordered, strict=True):
        first = rows[0]
        lines += ["", f"## {first.workload}, {first.hosts} hosts, {first.rate}", ""]
        if busy(first.load):
            lines += [busy(first.load), ""]
        lines += ["| plan | predicted ms | measured ms | error |", "|---|---:|---:|---:|"]
        lines += [f"| `{row.method}` | {row.predicted:.1f} | {row.measured:.1f} | {row.error:+.1%} |" for row in rows]
        worst = max(abs(row.error) for row in rows)
        middle = median(abs(row.error) for row in rows)
        told = f"Median error {middle:.1%}, worst {worst:.1%}, rank correlation {order:.2f}; the reference took"
        lines += ["", f"{told} {first.beyond:+.1f} ms beyond its prediction."]
    return "\n".join(lines) + "\n"
