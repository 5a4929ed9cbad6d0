"""What a policy is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.surroundings import Surroundings
from laconic.stats import Stats, Table
from laconic.world import World

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Proposal(NamedTuple):
    """The next plan, which may be the same; the reason in plain words, with the numbers that decided.

    `notes` is what the policy wants to remember, as plain values that JSON holds: every rank takes them when it adopts.
    `predicted` says what the plan should do, such as {"error": 0.3}; bytes are added by the controller.
    """

    plan: Plan
    why: str
    notes: Mapping[str, Any] = NOTHING
    predicted: Mapping[str, float] = NOTHING


class Policy(ABC):
    """Decides the plan: once at the start, at steps that are `due` again, and between any two steps if need be.

    `start`, `watch` and `react` run on every rank and must give the same everywhere, so they may use nothing but their
    arguments and what the policy has made of earlier ones. `propose` runs on rank 0, on the main thread; it changes
    nothing in the policy, and its plan and notes are published and adopted by all ranks at one step, or by none.
    """

    period: int | None = None  # None: the first plan stays, and nothing below is asked
    fresh: bool = False  # what is watched is the gradient alone, whatever waits from earlier steps

    @property
    def lossless(self) -> bool:
        """Whether all gradients will go as they are, whatever happens."""
        return False

    @abstractmethod
    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        """The first plan; the policy forgets what it knew."""

    def surveyed(self, layers: Sequence[Layer], world: World) -> Sequence[Compressor]:
        """Compressors whose arithmetic is to be measured before the first step, with the links; none: nothing is."""
        return ()

    def learn(self, around: Surroundings, plan: Plan) -> Plan:
        """What was measured, alike on every rank; the plan to begin with, which may be the same."""
        return plan

    def due(self, step: int) -> bool:
        """Whether a plan is to be proposed after so many steps."""
        return self.period is not None and step > 0 and step % self.period == 0

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        """Layers of which the next step, numbered from 0, is to measure what these compressors would leave.

        The sums over all ranks are there after the step that follows it.
        """
        return {}

    def sounds(self, step: int) -> bool:
        """Whether the link is to be timed beside the next step; never beside one after which a plan was `due`.

        What was found is in the statistics of the next decision. On every rank, as `watch`.
        """
        return False

    def react(self, step: int, news: Mapping[str, Table], plan: Plan) -> Proposal | tuple[Plan, str]:
        """The plan for the next step, from what all ranks measured and told with the last one; without notes."""
        return plan, ""

    def propose(self, stats: Stats, plan: Plan) -> Proposal | tuple[Plan, str]:
        """The next plan, which may be the same, and the reason in plain words."""
        return plan, "nothing has changed"

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        """Remember the notes of a proposal that all ranks adopt."""
        assert not notes, f"{type(self).__name__} takes no notes"

    def rounds(self, layers: Sequence[Layer], world: World) -> int:
        """The most rounds that any plan of this policy may need."""
        plan = self.start(layers, world)
        return max((len(plan[layer.name].legs(layer, world)) for layer in layers), default=1)

    def __repr__(self) -> str:
        """What all ranks must have alike: a class says here what it was given. Never an address."""
        return type(self).__qualname__

    def state_dict(self) -> Mapping[str, Tensor]:
        """What the policy remembers, as tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Remember it again."""
        assert not state, f"{type(self).__name__} remembers nothing"
