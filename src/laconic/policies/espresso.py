"""Espresso (arXiv 2205.14465) at run time: whether to compress each layer and by which route, from measurements.

It starts dense. After a few traced steps rank 0 simulates the step under the published decision and under a search that
sees buckets (planning/together.py), and proposes the faster. From then on the transfers that are made anyway tell what
the link takes, and the clock what a step takes; where either drifts, or after `period` steps, it decides again. A new
plan must promise a gain beyond noise, so that it does not go back and forth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from laconic.compressors import Dense
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.grammar import expressions, options
from laconic.planning.surroundings import Cadence, Surroundings, slowdown
from laconic.planning.together import decide
from laconic.policies import given, notes
from laconic.policies.moment import typical
from laconic.policies.policy import Policy, Proposal
from laconic.stats import Stats
from laconic.world import World

MEASURED = 4  # steps that are traced before a decision: the first ones allocate, and DDP rebuilds its buckets
LOOK = 10  # steps between looks at the clock and the link
WORTH = 0.03  # the least relative gain that a change must promise
DRIFT = 0.25  # relative change of step time or link that calls for a new decision


@dataclass(frozen=True)
class Standing:
    """What is remembered from decision to decision; published, so alike on every rank."""

    tracing: bool = True
    next: int = MEASURED
    since: int = 0  # the step of the last decision
    took: float = 0.0  # seconds a step under its plan, once they are known
    slow: float = 1.0  # what the links took for a byte then, relative to the survey


class Espresso(Policy):
    """Which layers to compress, by which route, from the compressors that are given and Cast.

    The degree is as given: Espresso decides whether and where, not how much. `period` is the number of steps after
    which it decides again in any case.

    >>> import laconic
    >>> laconic.Espresso(laconic.TopK(density=0.01), period=500)
    Espresso(TopK(density=0.01), period=500)
    """

    def __init__(self, compressor: Compressor | Sequence[Compressor], *, period: int = 1000) -> None:
        listed = [compressor] if isinstance(compressor, Compressor) else compressor
        if not isinstance(listed, Sequence) or not listed:
            raise InvalidConfig("compressor", compressor, "give a compressor, such as laconic.TopK(density=0.01)")
        expressions(listed, World())  # names what cannot be searched
        given.steps("period", period, LOOK)
        self.compressor, self.period = compressor, period
        self._given = tuple(listed)
        self._around: Surroundings | None = None
        self._layers: tuple[Layer, ...] = ()
        self._now = Standing()

    def __repr__(self) -> str:
        return given.described(self)

    # On every rank.

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        self._layers, self._now = tuple(layers), Standing()
        return Plan({layer.name: Dense() for layer in layers})

    def rounds(self, layers: Sequence[Layer], world: World) -> int:
        every = expressions(self._given, world, offload=False)
        return max((len(x.legs(layer, world)) for layer in layers for x in options(layer, every)), default=1)

    def surveyed(self, layers: Sequence[Layer], world: World) -> Sequence[Compressor]:
        return expressions(self._given, world, offload=False)

    def learn(self, around: Surroundings, plan: Plan) -> Plan:
        self._around = around
        return plan

    def due(self, step: int) -> bool:
        return self._around is not None and step >= self._now.next

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        return {layer.name: () for layer in self._layers} if self._around is not None and self._now.tracing else {}

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        self._now = Standing(**notes)

    def state_dict(self) -> Mapping[str, Tensor]:
        return notes.as_tensors(asdict(self._now))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if known := notes.from_tensors(state):
            self.take_notes(known)

    # On rank 0.

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        return self._decide(stats, plan) if self._now.tracing else self._look(stats, plan)

    def _decide(self, stats: Stats, plan: Plan) -> Proposal:
        around = self._around
        assert around is not None
        cadence = Cadence.of(stats.recent, around)
        if cadence is None:
            waiting = replace(self._now, next=stats.steps + MEASURED)
            return Proposal(plan, "no step was traced: the plan stays", asdict(waiting))
        slow = slowdown(stats.recent, around) or self._now.slow
        profile = cadence.profile(self._layers, around.slower(slow))
        found = decide(profile, self._given, cadence.groups, plan)
        settled = Standing(False, stats.steps + 1 + LOOK, stats.steps, 0.0, slow)
        told = (
            f"{_ms(found.seconds)} a step expected, {_ms(found.held)} with the plan in use, {_ms(found.dense)} dense,"
            f" {_ms(found.published)} by the published decision; the link takes {slow:.2f} times what the survey found"
        )
        if found.seconds * (1 + WORTH) >= found.held:
            return Proposal(plan, f"the plan stays: {told}", asdict(settled), {"step_s": found.held})
        chosen = Plan({**plan, **found.plan}, plan.why)
        return Proposal(chosen, told, asdict(settled), {"step_s": found.seconds})

    def _look(self, stats: Stats, plan: Plan) -> Proposal:
        """Whether the link or the step has drifted since the decision."""
        now, around = self._now, self._around
        assert around is not None
        took = typical(stats.recent, plan.digest)
        slow = slowdown([step for step in stats.recent if step.plan == plan.digest], around)
        why = None
        if now.took and took and abs(took / now.took - 1) > DRIFT:
            why = f"a step takes {_ms(took)}, and it was {_ms(now.took)}"
        elif slow is not None and now.took and not 1 / (1 + DRIFT) < slow / now.slow < 1 + DRIFT:
            why = f"the link takes {slow:.2f} times what the survey found, and it was {now.slow:.2f}"
        elif stats.steps - now.since >= (self.period or 0):
            why = f"{stats.steps - now.since} steps since the last decision"
        if why is not None:
            return Proposal(plan, f"measuring: {why}", asdict(replace(now, tracing=True, next=stats.steps + MEASURED)))
        kept = replace(
            now, next=stats.steps + LOOK, took=now.took or took, slow=now.slow if now.took else slow or now.slow
        )
        return Proposal(plan, "as expected", asdict(kept))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
