"""Accordion (arXiv 2010.16248): compress little while a layer's gradients change much, and much when they do not."""

from collections.abc import Mapping, Sequence
from math import inf, sqrt
from typing import Any, NamedTuple

from torch import Tensor

from laconic.compressors import Dense
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.policies import given, notes
from laconic.policies.policy import Policy, Proposal
from laconic.policies.static import unsuited
from laconic.stats import Stats, Table
from laconic.world import World


class Verdict(NamedTuple):
    """Which layers are to be compressed much, each layer's norm, and how much those changed that were known before."""

    high: frozenset[str]
    norms: dict[str, float]
    changed: dict[str, float]
    rate: float | None = None  # the learning rate, where it can be seen
    fell: bool = False  # far enough since the last time to make every layer's regime critical


class Accordion(Policy):
    """Two degrees for every layer: `low` compression in critical regimes, `high` elsewhere.

    Every `period` steps a layer whose gradient norm has changed by less than `eta` since the last time,
    |old - new| / old < eta, is compressed much, any other little. All begin with little, and all return to it when the
    learning rate is seen to have fallen by the share eta or more.

    >>> from laconic import PowerSGD
    >>> Accordion(low=PowerSGD(rank=4), high=PowerSGD(rank=1))
    Accordion(low=PowerSGD(rank=4), high=PowerSGD(rank=1))
    """

    def __init__(self, *, low: Compressor, high: Compressor, eta: float = 0.5, period: int = 1000) -> None:
        given.compressor("low", low)
        given.compressor("high", high)
        given.number("eta", eta, 0, inf)
        given.steps("period", period, 1)
        self.low, self.high, self.eta, self.period = low, high, eta, period
        self.pairs: dict[str, tuple[Compressor, Compressor]] = {}
        self._why: dict[str, str] = {}
        self._norms: dict[str, float] = {}
        self._high: frozenset[str] = frozenset()
        self._rate: float | None = None

    def __repr__(self) -> str:
        return given.described(self)

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        self._norms, self._high, self._rate = {}, frozenset(), None
        self.pairs, self._why = {}, {}
        entries: dict[str, Compressor] = {}
        for layer in layers:
            reason = unsuited(self.high, layer)
            if reason is not None:
                self._why[layer.name] = reason
                entries[layer.name] = Dense()
                continue
            little: Compressor = Dense() if unsuited(self.low, layer) else self.low.for_layer(layer)
            self.pairs[layer.name] = (little, self.high.for_layer(layer))
            entries[layer.name] = little
        return Plan(entries, self._why)

    def rounds(self, layers: Sequence[Layer], world: World) -> int:
        self.start(layers, world)
        known = {layer.name: layer for layer in layers}
        return max((len(c.legs(known[n], world)) for n, pair in self.pairs.items() for c in pair), default=1)

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        assert self.period is not None
        if not given.watched(self.period - step % self.period, self.period):
            return {}
        return dict.fromkeys(self.pairs, ())

    def judge(self, tables: Mapping[str, Table], rate: float | None = None) -> Verdict:
        """Every layer's regime by its gradients now; a layer of which nothing is known stays as it was.

        Where the learning rate fell, all are critical.
        """
        high, norms, changed = set(self._high), dict(self._norms), {}
        for name in self.pairs:
            if name not in tables:
                continue
            new, old = sqrt(tables[name].gradient), norms.get(name)
            norms[name] = new
            if old is None:
                continue
            changed[name] = abs(old - new) / old if old else (inf if new else 0.0)
            (high.add if changed[name] < self.eta else high.discard)(name)
        fell = rate is not None and self._rate is not None and self._rate - rate >= self.eta * self._rate > 0
        return Verdict(frozenset() if fell else frozenset(high), norms, changed, rate, fell)

    def choice(self, high: frozenset[str]) -> dict[str, Compressor]:
        """Each layer's compressor."""
        return {name: pair[name in high] for name, pair in self.pairs.items()}

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        verdict = self.judge(stats.tables, stats.learning_rate)
        made = Plan({**plan, **self.choice(verdict.high)}, self._why)
        return Proposal(made, self.tell(verdict), self.notes(verdict))

    def tell(self, verdict: Verdict) -> str:
        """The reason in words: who crossed eta, and by how much."""
        if verdict.fell:
            return (
                f"the learning rate fell from {self._rate:g} to {verdict.rate:g}, by eta={self.eta:g} or more: all low"
            )
        if not verdict.changed:
            return "the norms of all layers are known for the first time" if verdict.norms else "no statistics yet"
        moved = [n for n in verdict.changed if (n in verdict.high) != (n in self._high)]
        shown = ", ".join(f"{name} {verdict.changed[name]:.3g}" for name in moved[:4]) + ", ..." * (len(moved) > 4)
        calm = sum(change < self.eta for change in verdict.changed.values())
        return f"gradient norms changed by less than eta={self.eta:g} in {calm} of {len(verdict.changed)} layers" + (
            f"; {len(moved)} crossed it: {shown}" if moved else "; none crossed it"
        )

    def notes(self, verdict: Verdict) -> dict[str, Any]:
        """What to remember of a verdict."""
        return {"norms": verdict.norms, "high": sorted(verdict.high), "rate": verdict.rate}

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        self._norms, self._high, self._rate = dict(notes["norms"]), frozenset(notes["high"]), notes["rate"]

    def state_dict(self) -> Mapping[str, Tensor]:
        return notes.as_tensors({"norms": self._norms, "high": sorted(self._high), "rate": self._rate})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if known := notes.from_tensors(state):
            self.take_notes(known)
