"""Among whom: everyone, the ranks of one machine, or machine to machine."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Scope(Enum):
    """Who takes part in a collective."""

    WORLD = "world"
    NODE = "node"
    ACROSS = "across"

    __hash__ = object.__hash__  # Enum's own is a function in Python, and these are keys in every round


@dataclass(frozen=True)
class World:
    """A rank's view of the group that it talks to.

    A compressor asks `size` how many contributions there are and `scope` whom to address, and so can be moved
    inside a machine or between machines by handing it another view.

    >>> world = World(rank=3, size=4, node_size=2)
    >>> world.inside()
    World(rank=1, size=2, node_size=1, scope=<Scope.NODE: 'node'>)
    >>> world.across()
    World(rank=1, size=2, node_size=1, scope=<Scope.ACROSS: 'across'>)
    """

    rank: int = 0
    size: int = 1
    node_size: int = 1
    scope: Scope = Scope.WORLD

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.size, self
        assert self.size % self.node_size == 0, self

    @property
    def tiered(self) -> bool:
        """Several machines of several ranks."""
        return 1 < self.node_size < self.size

    def inside(self) -> "World":
        """The ranks of this machine, as a world of its own."""
        return World(self.rank % self.node_size, self.node_size, scope=Scope.NODE)

    def across(self) -> "World":
        """The ranks that hold this one's place on every machine, as a world of its own."""
        return World(self.rank // self.node_size, self.size // self.node_size, scope=Scope.ACROSS)

    @cached_property
    def sizes(self) -> dict[Scope, int]:
        """How many ranks this one meets in each scope, itself included."""
        return {scope: len(self.members(scope)) for scope in Scope}

    def members(self, scope: Scope) -> list[int]:
        """The ranks (of the whole world) that this rank meets in `scope`, in order."""
        node, place = divmod(self.rank, self.node_size)
        if scope is Scope.NODE:
            return list(range(node * self.node_size, (node + 1) * self.node_size))
        if scope is Scope.ACROSS:
            return list(range(place, self.size, self.node_size))
        return list(range(self.size))
