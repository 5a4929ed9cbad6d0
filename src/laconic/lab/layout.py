"""How many machines, and how many ranks on each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from laconic.errors import InvalidConfig


@dataclass(frozen=True)
class Layout:
    """`machines` machines of `ranks` ranks: fast inside (loopback), slow between (the shaped link).

    >>> Layout.parse("2"), Layout.parse("2x4").world
    (Layout(machines=2, ranks=1), 8)
    """

    machines: int
    ranks: int = 1

    @classmethod
    def parse(cls, text: str, key: str = "hosts") -> "Layout":
        found = re.fullmatch(r"(\d+)(?:x(\d+))?", str(text).strip().lower())
        if not found or not 1 <= int(found[1]) <= 200 or not 1 <= int(found[2] or 1) <= 64:
            raise InvalidConfig(key, text, "write 2 for two hosts of one rank, 2x4 for two machines of four ranks")
        return cls(int(found[1]), int(found[2] or 1))

    @property
    def world(self) -> int:
        return self.machines * self.ranks

    def machine_of(self, rank: int) -> int:
        return rank // self.ranks

    def share(self, machine: int, cores: Sequence[int]) -> Sequence[int]:
        """A machine's own cores, as many as every other's; all of them where there are fewer than machines.

        >>> Layout(2).share(1, (0, 1, 2, 3)), Layout(3).share(1, (0, 1))
        ((2, 3), (0, 1))
        """
        each = len(cores) // self.machines
        return cores[machine * each : (machine + 1) * each] or cores

    def __str__(self) -> str:
        return str(self.machines) if self.ranks == 1 else f"{self.machines}x{self.ranks}"
