"""L-GreCo (arXiv 2210.17357): each layer its own degree, the fewest bytes at the error of a uniform setting."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf, sqrt
from typing import Any

from torch import Tensor

from laconic.compressors import Dense
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.knapsack import Choice, Infeasible, solve
from laconic.policies import given, notes
from laconic.policies.accordion import Accordion
from laconic.policies.ladder import MIXED, Ladder, Past
from laconic.policies.policy import Policy, Proposal
from laconic.policies.static import Static, unsuited
from laconic.policies.warmup import WarmUp
from laconic.stats import Stats, Table
from laconic.world import World


class LGreCo(Policy):
    """Minimise the bytes of all layers while their errors add up to at most `alpha` times those of `base` everywhere.

    `base` is a compressor that is known to recover accuracy, whose degrees from `low` to `high` times its own are the
    candidates; or several compressors, all of them candidates, the first the known one; or an Accordion, whose choice
    for each layer then makes the budget. For `warmup` steps gradients travel dense, then a plan is made, and another
    every `period` steps, from the errors of the last ten; what earlier windows told counts `memory` times as much with
    each that follows. Without `warmup` it is as long as the learning rate is seen to rise from the start, and 1,000
    steps where it is not. Errors are energies; with `squared=False` norms, as it was published. The plan in use stays
    while another would save a smaller share of its bytes than `hysteresis`, and while it leaves no more than that share
    above the budget. With `mixed` other families are candidates too: bits, low ranks, and chains of top-k and
    quantisation.

    >>> from laconic import PowerSGD
    >>> LGreCo(PowerSGD(rank=4), warmup=500)
    LGreCo(PowerSGD(rank=4), warmup=500)
    """

    def __init__(
        self,
        base: Compressor | Sequence[Compressor] | Accordion,
        *,
        warmup: int | None = None,
        period: int = 1000,
        alpha: float = 1.0,
        low: float = 0.25,
        high: float = 4.0,
        squared: bool = True,
        mixed: bool = False,
        hysteresis: float = 0.02,
        memory: float = 0.5,
    ) -> None:
        self.accordion = base if isinstance(base, Accordion) else None
        self.bases: tuple[Compressor, ...]
        match base:
            case Accordion():
                self.bases = (base.low, base.high)
            case Compressor():
                self.bases = (base,)
            case [_, *_]:
                self.bases = tuple(base)
            case _:
                raise InvalidConfig("base", base, "give a compressor, a list of them, or an Accordion")
        for one in self.bases:
            given.compressor("base", one)
        if warmup is not None:
            given.steps("warmup", warmup, 0)
        given.steps("period", period, 1)
        given.number("alpha", alpha, 0, inf)
        given.number("low", low, 0, 1)
        given.number("high", high, 0, inf)
        for key, share in (("hysteresis", hysteresis), ("memory", memory)):
            if share != 0:
                given.number(key, share, 0, 1)
        if high < 1:
            raise InvalidConfig("high", high, "give 1 or more, so that the base itself is a candidate")
        self.base, self.warmup, self.period = base, warmup, period
        self.alpha, self.low, self.high, self.squared, self.mixed = alpha, low, high, squared, mixed
        self.hysteresis, self.memory = hysteresis, memory
        self._world, self._warmup, self._past = World(), self._opening(), Past(memory)
        self._ladders: dict[str, Ladder] = {}
        self._known: dict[str, Compressor] = {}  # what makes the budget, where no Accordion does

    def __repr__(self) -> str:
        return given.described(self)

    def _opening(self) -> WarmUp:
        return WarmUp() if self.warmup is None else WarmUp(self.warmup, follows=False)

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        uniform = (self.accordion or Static(self.bases[0])).start(layers, world)
        self._world, self._why, self._warmup = world, uniform.why, self._opening()
        self._past = Past(self.memory)
        suited: dict[str, tuple[Compressor, ...]]
        if self.accordion is not None:
            suited = dict(self.accordion.pairs)
        else:
            suited = {layer.name: (uniform[layer.name],) for layer in layers if not uniform[layer.name].lossless}
        self._known = {name: known[0] for name, known in suited.items()}
        self._ladders = {
            layer.name: self._ladder(layer, suited[layer.name]) for layer in layers if layer.name in suited
        }
        dense = dict.fromkeys(self._ladders, Dense()) if self._warmup.ends else {}
        return Plan({**uniform, **dense}, {**dict.fromkeys(dense, "warm-up"), **uniform.why})

    def _ladder(self, layer: Layer, known: Sequence[Compressor]) -> Ladder:
        if isinstance(self.base, Sequence):
            others = [one.for_layer(layer) for one in self.bases if unsuited(one, layer) is None]
        else:
            others = [rung for one in known for rung in one.ladder(layer, self.low, self.high)]
        if self.mixed:
            others += [one for one in MIXED if unsuited(one, layer) is None]
        return Ladder.of(layer, known, others, self._world)

    def rounds(self, layers: Sequence[Layer], world: World) -> int:
        self.start(layers, world)
        named = {layer.name: layer for layer in layers}
        depths = [len(r.legs(named[name], world)) for name, ladder in self._ladders.items() for r in ladder.rungs]
        return max(depths, default=1)

    def _ahead(self, step: int) -> int:
        """Steps until the next plan is made, after so many."""
        assert self.period is not None
        first = self._warmup.ends
        return first - step if step < first else self.period - (step - first) % self.period

    def due(self, step: int) -> bool:
        return self._warmup.looks(step) or (step > 0 and self._ahead(step - 1) == 1)

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        assert self.period is not None
        ahead = self._ahead(step)
        if not given.watched(ahead, self.period) or (self.mixed and self.period > 2 and ahead % 2):
            return {}  # many candidates cost more to measure: every other step is enough
        return {name: ladder.rungs for name, ladder in self._ladders.items()}

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        if self._warmup.looks(stats.steps):
            seen = self._warmup.looked(stats.steps, stats.learning_rate)
            return Proposal(plan, f"the warm-up is to end at step {seen.ends}", {"warmup": asdict(seen)})
        known, notes, why = self._known, dict[str, Any](), ""
        if self.accordion is not None:
            verdict = self.accordion.judge(stats.tables, stats.learning_rate)
            known, notes = self.accordion.choice(verdict.high), {"accordion": self.accordion.notes(verdict)}
            why = f"Accordion: {self.accordion.tell(verdict)}. "
        stays, words = plan, "the plan stays"
        if stats.steps == self._warmup.ends:
            stays, words = Plan({**plan, **known}, self._why), f"{self._named()} is used"
        if not self._ladders:
            return Proposal(plan, "no layer is compressed")
        missing = [n for n, ladder in self._ladders.items() if not ladder.covered(stats.tables.get(n))]
        if missing:
            told = f"{why}no finite statistics of {len(missing)} layers, first {missing[0]}: {words}"
            return Proposal(stays, told, notes)
        tables = {name: stats.tables[name] for name in self._ladders}
        if self.memory:
            notes["past"] = self._past.joined(tables)
            tables = self._past.means(notes["past"], tables)
        at = [ladder.rungs.index(known[name]) for name, ladder in self._ladders.items()]
        errors = [[e if self.squared else sqrt(e) for e in table.errors] for table in tables.values()]
        before = sum(row[index] for row, index in zip(errors, at, strict=True))
        sizes = [ladder.sizes for ladder in self._ladders.values()]
        try:
            choice = solve(errors, sizes, self.alpha * before, at)
        except Infeasible as error:
            return Proposal(stays, f"{why}infeasible: {error}: {words}", notes)
        if self._keeps(plan, errors, choice, self.alpha * before):
            return Proposal(plan, f"{why}another plan would save less than {self.hysteresis:.0%}: it stays", notes)
        chosen = {n: lad.rungs[rung] for (n, lad), rung in zip(self._ladders.items(), choice.rungs, strict=True)}
        uniform = sum(row[index] for row, index in zip(sizes, at, strict=True))
        why += self._tell(choice, uniform, before, min(table.steps for table in tables.values()))
        return Proposal(Plan({**plan, **chosen}, self._why), why, notes, _predicted(tables, choice))

    def _keeps(self, plan: Plan, errors: Sequence[Sequence[float]], choice: Choice, budget: float) -> bool:
        """Whether the plan in use is as good as the new one but for the hysteresis."""
        size, left = 0, 0.0
        for (name, ladder), row in zip(self._ladders.items(), errors, strict=True):
            if plan[name] not in ladder.rungs:
                return False  # dense in the warm-up
            at = ladder.rungs.index(plan[name])
            size, left = size + ladder.sizes[at], left + row[at]
        slack = 1 + self.hysteresis
        return self.hysteresis > 0 and size <= slack * choice.size and left <= slack * budget

    def _named(self) -> str:
        return "Accordion's choice" if self.accordion is not None else f"uniform {self.bases[0]}"

    def _tell(self, choice: Choice, uniform: int, before: float, steps: int) -> str:
        share = f", {uniform / choice.size:.2f} times less" if choice.size else ""
        kind = "squared error" if self.squared else "error"
        return (
            f"{choice.size} bytes a step where {self._named()} sends {uniform}{share}; {kind} {choice.error:.4g} "
            f"within {self.alpha:g} x {before:.4g}, over {len(self._ladders)} layers and {steps} steps"
        )

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        if "past" in notes:
            self._past.take(notes["past"])
        if "warmup" in notes:
            self._warmup = WarmUp(**notes["warmup"])
        if self.accordion is not None and "accordion" in notes:
            self.accordion.take_notes(notes["accordion"])

    def state_dict(self) -> Mapping[str, Tensor]:
        own = notes.as_tensors({"warmup": asdict(self._warmup), "past": self._past.sums})
        return own if self.accordion is None else {**own, "accordion": self.accordion.state_dict()["notes"]}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.take_notes(notes.from_tensors(state))
        if self.accordion is not None and "accordion" in state:
            self.accordion.load_state_dict({"notes": state["accordion"]})


def _predicted(tables: Mapping[str, Table], choice: Choice) -> dict[str, float]:
    """The relative error, as Stats.error has it."""
    energy = sum(table.energy for table in tables.values())
    left = sum(table.errors[rung] for table, rung in zip(tables.values(), choice.rungs, strict=True))
    return {"error": sqrt(left / energy)} if energy else {}
