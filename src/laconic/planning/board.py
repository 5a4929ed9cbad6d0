"""The board that a search plays on: for every tensor its options, each with its price."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laconic.compressors.routes import OnCpu
from laconic.exchange import Compressor
from laconic.plan import Plan
from laconic.planning.grammar import expressions, options
from laconic.planning.pricing import price
from laconic.planning.profile import Profile
from laconic.planning.timeline import INTER, NODE, Talk, finish

Array = NDArray[np.float64]
Choice = tuple[int, ...]  # an option for each tensor; 0 is dense


class Table(NamedTuple):
    """Some options of a tensor as rows of numbers: what they take of each resource, and how soon.

    Columns are the four resources and, last, the conversation as a whole, which takes nothing of what others need.
    """

    options: tuple[int, ...]
    delay: Array  # [K]
    settle: Array  # [K]
    work: Array  # [K, 5], seconds of each resource
    reach: Array  # [K, 5], from ready to the first use (encoding included) and the use itself; -inf where there is none


@dataclass(frozen=True, eq=False)
class Column:
    """One tensor's options, shared by tensors of one shape."""

    options: tuple[Compressor | None, ...]
    talks: tuple[Talk, ...]
    hosted: tuple[bool, ...]  # done by the host
    twins: tuple[int, ...]  # the same option on the host, -1 if there is none

    @cached_property
    def table(self) -> Table:
        """Every option."""
        count = len(self.talks)
        work, reach = np.zeros((count, 5)), np.full((count, 5), -np.inf)
        for k, talk in enumerate(self.talks):
            now = talk.delay
            for resource, seconds in talk.steps:
                if reach[k, resource] < 0:
                    reach[k, resource] = now
                work[k, resource] += seconds
                now += seconds
            reach[k, 4] = now
        reach += work
        delay, settle = (np.array([getattr(talk, name) for talk in self.talks]) for name in ("delay", "settle"))
        return Table(tuple(range(count)), delay, settle, work, reach)

    @cached_property
    def least(self) -> tuple[float, ...]:
        """The least that any option takes of each resource."""
        return tuple(self.table.work.min(0).tolist())

    @cached_property
    def shortest(self) -> float:
        """The shortest time that any option's messages take."""
        return float(self.table.work[:, [NODE, INTER]].sum(1).min())

    def prepare(self) -> None:
        """Make what a search asks for now rather than at first use."""
        for name in ("table", "least", "shortest", "worthy", "worthy_on_device"):
            getattr(self, name)

    def rows(self, chosen: Sequence[int]) -> Table:
        """These options."""
        table, index = self.table, list(chosen)
        return Table(tuple(chosen), *(part[index] for part in table[1:]))

    @cached_property
    def worthy(self) -> Table:
        """Options that no other beats in every respect; of equals the first; dense always."""
        return self.rows(_unbeaten(self.table))

    @cached_property
    def worthy_on_device(self) -> Table:
        """The same among the options without the host."""
        return self.rows(_unbeaten(self.rows([k for k, hosted in enumerate(self.hosted) if not hosted])))


def _unbeaten(table: Table) -> list[int]:
    facts = np.column_stack([table.delay, table.settle, table.work, table.reach - table.work])
    no_worse = (facts[None] <= facts[:, None]).all(2)  # [i, j]: j asks for no more of anything, and no later, than i
    earlier = np.tri(len(facts), k=-1, dtype=bool)
    beats = no_worse & (~no_worse.T | earlier)
    return [option for lost, option in zip(beats, table.options, strict=True) if not lost.any() or option == 0]


@dataclass(frozen=True)
class Board:
    """Tensors in the order of ready, with their columns."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ready: tuple[float, ...]
    columns: tuple[Column, ...]
    forward: float = 0.0
    link: int = INTER  # whose bubbles count

    @staticmethod
    def of(
        profile: Profile, given: Sequence[Compressor], commit: str = "bucket", offload: bool | None = None
    ) -> "Board":
        """Every option that the grammar has for every layer of a profile, priced. Equal shapes are priced once.

        `offload` adds the options that use the host; by default where there is a device beside it.
        """
        every = expressions(given, profile.world, profile.device != "cpu" if offload is None else offload)
        made: dict[object, Column] = {}
        columns = []
        for layer in profile.trace.layers:
            key = layer.shape, layer.dtype
            if key not in made:
                mine = options(layer, every)
                place = {option: k for k, option in enumerate(mine)}
                made[key] = Column(
                    tuple(mine),
                    tuple(price(profile, layer, option, commit) for option in mine),
                    tuple(isinstance(option, OnCpu) for option in mine),
                    tuple(place.get(OnCpu(o), -1) if not isinstance(o, OnCpu) else -1 for o in mine),
                )
                made[key].prepare()
            columns.append(made[key])
        alone = profile.world.size == profile.world.node_size
        layers = profile.trace.layers
        return Board(
            tuple(layer.name for layer in layers), tuple(layer.numel for layer in layers), profile.trace.ready,
            tuple(columns), profile.trace.forward + profile.trace.after, NODE if alone else INTER,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ready)

    def talks(self, choice: Choice) -> list[Talk]:
        return [column.talks[k] for column, k in zip(self.columns, choice, strict=True)]

    def seconds(self, choice: Choice) -> float:
        """F: the exact time of the step under this choice."""
        return self.forward + finish(self.ready, self.talks(choice))

    def dense(self) -> Choice:
        return (0,) * len(self)

    def plan(self, choice: Choice) -> Plan:
        entries = {}
        for name, column, k in zip(self.names, self.columns, choice, strict=True):
            option = column.options[k]
            assert option is not None
            entries[name] = option
        return Plan(entries)

    @property
    def widest(self) -> int:
        """The most options that a tensor has."""
        return max(len(column.talks) for column in self.columns)

    def bound(self) -> float:
        """No plan is faster: every tensor takes of each resource what its most sparing option takes, for free.

        Arithmetic costs nothing here. From when a tensor is ready, a link has at least its work and that of all later
        ones before it; and no conversation is shorter than its own messages.
        """
        least = self.ready[-1]
        for link in (NODE, INTER):
            after = 0.0
            for ready, column in zip(reversed(self.ready), reversed(self.columns), strict=True):
                after += column.least[link]
                if after:
                    least = max(least, ready + after)
        for ready, column in zip(self.ready, self.columns, strict=True):
            least = max(least, ready + column.shortest)
        return self.forward + least
