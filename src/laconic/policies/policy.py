"""What a policy is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from laconic.layer import Layer
from laconic.plan import Plan
from laconic.stats import Stats
from laconic.world import World


class Policy(ABC):
    """Decides the plan: once at the start, and every `period` steps again.

    `start` runs on every rank and must give the same plan everywhere; `propose` runs on rank 0, on the main thread, and
    its plan is published and adopted by all ranks at one step, or by none.
    """

    period: int | None = None  # None: the first plan stays

    @abstractmethod
    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        """The first plan."""

    def propose(self, stats: Stats, plan: Plan) -> tuple[Plan, str]:
        """The next plan, which may be the same, and the reason in plain words."""
        return plan, "nothing has changed"

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
