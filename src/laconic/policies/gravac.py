"""GraVAC (arXiv 2305.12201): one compression factor for the model, moved while training goes on.

    gain(c) = EWMA(|g_c|^2 / |g|^2), g being gradient + residual of all compressed layers and all ranks
    T(c)    = gain(c) / seconds a step: the paper's compression throughput without its constant, N times batch

In each step the factor is the candidate's if gain(candidate) >= floor, else the minimum's if gain(minimum) >= floor,
else all travels dense. Gains are measured in one step of a few. At each window's end the candidate moves on along the
scaling's sequence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, sqrt
from typing import Any

from torch import Tensor

from laconic.compressors import Dense
from laconic.compressors.thinner import factor, thinner
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.policies import given, notes
from laconic.policies.policy import Policy, Proposal
from laconic.policies.static import Static
from laconic.stats import Stats, Table
from laconic.world import World

EWMA = 0.01  # weight of a new gain, times the number of ranks (the paper's N / 100)
SCALINGS = ("exponential", "geometric")


@dataclass(frozen=True)
class Course:
    """Where the search stands; factors are relative to the base's."""

    minimum: float = 1.0
    candidate: float = 2.0
    throughputs: Mapping[str, float] = field(default_factory=dict)  # T by factor; a string, since JSON keys are
    settled: bool = False
    blocked: float | None = None  # the candidate whose gain was below the floor when the search settled


class GraVAC(Policy):
    """One factor for all layers, raised while the gain allows it, settled where the throughput no longer grows.

    `base` is the gentlest compression, TopK(density=0.1) being the paper's factor 10; the largest factor is `largest`.
    `scaling` squares the step from candidate to candidate ("exponential": 10, 20, 40, 160, ...) or doubles the factor
    ("geometric"). Gains within `omega` of each other raise the minimum; throughputs within `omega` settle the search.
    Gains are measured in one step of `every`, with a weight that makes up for the others.

    >>> from laconic import TopK
    >>> GraVAC(TopK(density=0.1), window=100)
    GraVAC(TopK(density=0.1), window=100)
    """

    def __init__(
        self,
        base: Compressor,
        *,
        floor: float = 0.7,
        window: int = 500,
        omega: float = 0.01,
        largest: float = 1000,
        scaling: str = "exponential",
        every: int = 5,
    ) -> None:
        given.compressor("base", base)
        first = factor(base)
        if first is None:
            raise InvalidConfig("base", str(base), "give one with a factor: TopK, Threshold, RandomK, Sign, Quantize")
        given.number("floor", floor, 0, 1)
        given.steps("window", window, 1)
        given.steps("every", every, 1)
        given.number("omega", omega, 0, 1)
        given.number("largest", largest, 0, inf)
        if largest < first:
            raise InvalidConfig("largest", largest, f"give at least the base's factor, {first:g}")
        if scaling not in SCALINGS:
            raise InvalidConfig("scaling", scaling, f"choose one of {', '.join(map(repr, SCALINGS))}")
        self.base, self.floor, self.window, self.omega = base, floor, window, omega
        self.largest, self.scaling, self.every, self.period = largest, scaling, every, window
        self._first = first
        self._most = largest / first
        self._reset(Plan({}), World())

    def _reset(self, base: Plan, world: World) -> None:
        self._base, self._weight = base, 1 - max(0.0, 1 - EWMA * world.size) ** self.every
        self._course = self._opening()
        self._gains: dict[float, float] = {}
        self._plans: dict[float | None, Plan] = {}

    def _opening(self) -> Course:
        return Course(candidate=min(2.0, self._most))

    def __repr__(self) -> str:
        return given.described(self)

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        self._reset(Static(self.base).start(layers, world), world)
        return self._base

    def rounds(self, layers: Sequence[Layer], world: World) -> int:
        self.start(layers, world)
        plans = [self._plan(None), self._plan(1.0), self._plan(self._most)]
        return max((len(plan[layer.name].legs(layer, world)) for plan in plans for layer in layers), default=1)

    def _plan(self, times: float | None) -> Plan:
        """The base so many times as thin; None is dense."""
        if times not in self._plans:
            entries = {
                name: one if one.lossless else Dense() if times is None else thinner(one, times)
                for name, one in self._base.items()
            }
            self._plans[times] = Plan(entries, self._base.why)
        return self._plans[times]

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        if step % self.every:
            return {}
        levels = [self._plan(times) for times in self._watched(self._course)]
        compressed = [name for name, one in self._base.items() if not one.lossless]
        return {name: tuple(level[name] for level in levels) for name in compressed}

    def _watched(self, course: Course) -> list[float]:
        """Minimum and candidate, and what may become one; each once."""
        return [*dict.fromkeys(t for t in (course.minimum, course.candidate, course.blocked) if t is not None)]

    def react(self, step: int, news: Mapping[str, Table], plan: Plan) -> Proposal:
        for times in self._watched(self._course):
            self._learn(times, news)
        course, gains = self._course, self._gains
        if course.minimum not in gains and course.candidate not in gains:
            return Proposal(plan, "")
        fit = [times for times in (course.candidate, course.minimum) if gains.get(times, 0.0) >= self.floor]
        chosen = fit[0] if fit else None
        told = ", ".join(self._tell(times) for times in dict.fromkeys((course.candidate, course.minimum)))
        verdict = "dense" if chosen is None else self._name(chosen)
        predicted = {} if chosen is None else {"error": sqrt(1 - gains[chosen])}
        return Proposal(
            self._plan(chosen), f"{told}; the floor is {self.floor:g}: {verdict}", predicted=predicted
        )  # fmt: skip

    def _learn(self, times: float, news: Mapping[str, Table]) -> None:
        """Move a factor's gain by what was measured of it; all-zero gradients tell nothing."""
        level = self._plan(times)
        energy = left = 0.0
        for name, table in news.items():
            if name in level and level[name] in table.rungs:
                energy += table.energy
                left += table.errors[table.rungs.index(level[name])]
        if energy > 0:
            fresh = min(1.0, max(0.0, 1 - left / energy))
            known = self._gains.get(times, fresh)
            self._gains[times] = known + self._weight * (fresh - known)

    def _name(self, times: float) -> str:
        return f"{self._first * times:.4g}x"

    def _tell(self, times: float) -> str:
        gain = self._gains.get(times)
        return f"{self._name(times)} " + ("is not measured yet" if gain is None else f"keeps {gain:.4f} of the energy")

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        course, why = self._advance(stats.step_times)
        return Proposal(plan, why, asdict(course))

    def _advance(self, step_times: Mapping[str, float]) -> tuple[Course, str]:
        """The next course at a window's end, from gains that all ranks know and rank 0's step times."""
        course, gains = self._course, self._gains
        known = dict(course.throughputs)
        for times in self._watched(course):
            seconds = step_times.get(self._plan(times).digest, 0.0)
            if gains.get(times, 0.0) < self.floor:
                known.pop(repr(times), None)
            elif seconds > 0:
                known[repr(times)] = gains[times] / seconds
        course = replace(course, throughputs=known)
        if course.candidate not in gains:
            return course, "no statistics yet"
        if course.settled:
            return self._perhaps_unsettle(course)
        return self._perhaps_settle(course) or self._move_on(course)

    def _perhaps_unsettle(self, course: Course) -> tuple[Course, str]:
        """The search begins again if the gain has fallen below the floor, and goes on if what was blocked fits now."""
        if self._gains[course.candidate] < self.floor:
            told = f"{self._tell(course.candidate)}, below the floor {self.floor:g}: the search begins again"
            return self._opening(), told
        if course.blocked is not None and self._gains.get(course.blocked, 0.0) >= self.floor:
            told = f"{self._tell(course.blocked)} now, and the floor is {self.floor:g}: the search goes on there"
            return replace(course, candidate=course.blocked, settled=False, blocked=None), told
        return course, f"settled: {self._tell(course.candidate)}"

    def _perhaps_settle(self, course: Course) -> tuple[Course, str] | None:
        """On the lower factor of the two best throughputs if they are within omega; where no candidate is left, on the
        best."""
        ranked = sorted(((t, float(times)) for times, t in course.throughputs.items()), reverse=True)
        if len(ranked) > 1 and ranked[0][0] - ranked[1][0] <= self.omega * ranked[0][0]:
            (first, a), (second, b) = ranked[:2]
            told = f"throughputs of {self._name(a)} and {self._name(b)}, {first:.4g} and {second:.4g}, are within omega"
            return self._settle(course, min(a, b), told)
        failed = self._gains[course.candidate] < self.floor
        if ranked and (failed or course.candidate >= self._most):
            told = f"{self._tell(course.candidate)}, the floor is {self.floor:g}" if failed else "no factor is left"
            told += f"; the best throughput, {ranked[0][0]:.4g}, is that of {self._name(ranked[0][1])}"
            return self._settle(course, ranked[0][1], told, course.candidate if failed else None)
        return None

    def _settle(
        self, course: Course, times: float, told: str, blocked: float | None = None
    ) -> tuple[Course, str]:  # fmt: skip
        made = replace(course, minimum=min(course.minimum, times), candidate=times, settled=True, blocked=blocked)
        return made, f"{told}: settled at {self._name(times)}"

    def _move_on(self, course: Course) -> tuple[Course, str]:
        """The next candidate; the one before becomes the minimum if its gain is within omega of the minimum's."""
        gentle, harsh = self._gains.get(course.minimum), self._gains[course.candidate]
        if harsh < self.floor:
            return course, f"{self._tell(course.candidate)}, the floor is {self.floor:g}: it waits"
        minimum, raised = course.minimum, ""
        if gentle is not None and abs(gentle - harsh) <= self.omega * gentle:
            minimum = course.candidate
            raised = f"; its gain {harsh:.4f} is within omega of {gentle:.4f}, so it is the minimum now"
        step = course.candidate**2 if self.scaling == "exponential" else course.candidate * 2
        candidate = max(course.candidate, min(step, self._most))
        told = f"from candidate {self._name(course.candidate)} to {self._name(candidate)}{raised}"
        return replace(course, minimum=minimum, candidate=candidate), told

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        before, self._course = self._watched(self._course), Course(**notes)
        kept = set(before) & set(self._watched(self._course))  # what was not watched meanwhile is measured afresh
        self._gains = {times: gain for times, gain in self._gains.items() if times in kept}

    def state_dict(self) -> Mapping[str, Tensor]:
        gains = {repr(times): gain for times, gain in self._gains.items()}
        return notes.as_tensors({"course": asdict(self._course), "gains": gains})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if known := notes.from_tensors(state):
            self._course = Course(**known["course"])
            self._gains = {float(times): gain for times, gain in known["gains"].items()}
