"""Link speeds as people write them, and how they change while training goes on."""

import re
from dataclasses import dataclass

from laconic.errors import InvalidConfig
from laconic.planning.rates import bits_per_second

_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_STAGE = re.compile(r"(?P<rate>.+?)\s+for\s+(?P<steps>\d+)\s+steps?")


@dataclass(frozen=True)
class Rate:
    """Bits per second in each direction of a link; None leaves the link as fast as the machine is.

    >>> Rate.parse("50mbit").bits, str(Rate.parse("2.5gbit")), str(Rate.parse("unshaped"))
    (50000000, '2.5gbit', 'unshaped')
    """

    bits: int | None

    @classmethod
    def parse(cls, text: str, key: str = "rate") -> "Rate":
        text = text.strip().lower()
        if text == "unshaped":
            return cls(None)
        bits = round(bits_per_second(text) or 0)
        if not 10**4 <= bits <= 10**11:
            raise InvalidConfig(key, text, "write a rate from 10kbit to 100gbit, as in 50mbit or 1gbit, or unshaped")
        return cls(bits)

    @property
    def bytes_per_second(self) -> float:
        return float("inf") if self.bits is None else self.bits / 8

    def __str__(self) -> str:
        if self.bits is None:
            return "unshaped"
        unit = next(unit for unit, size in reversed(_UNITS.items()) if self.bits >= size)
        return f"{self.bits / _UNITS[unit]:g}{unit}"


@dataclass(frozen=True)
class Schedule:
    """Rates in turn: each holds until its step, the last one for good.

    >>> plan = Schedule.parse("1gbit for 100 steps, then 50mbit")
    >>> str(plan.at(99)), str(plan.at(100)), plan.next_change(40), plan.next_change(100)
    ('1gbit', '50mbit', 100, None)
    >>> str(plan)
    '1gbit for 100 steps, then 50mbit'
    """

    stages: tuple[tuple[int, Rate], ...]  # (first step, rate)

    @classmethod
    def parse(cls, text: str, key: str = "rate") -> "Schedule":
        *timed, last = re.split(r"\s*,\s*then\s+", text.strip())
        stages, step = [], 0
        for part in timed:
            found = _STAGE.fullmatch(part)
            if not found or not int(found["steps"]):
                raise InvalidConfig(key, text, 'write stages as in "1gbit for 100 steps, then 50mbit"')
            stages.append((step, Rate.parse(found["rate"], key)))
            step += int(found["steps"])
        return cls((*stages, (step, Rate.parse(last, key))))

    def at(self, step: int) -> Rate:
        """The rate in force when `step` (from 0) is taken."""
        return next(rate for start, rate in reversed(self.stages) if step >= start)

    def next_change(self, step: int) -> int | None:
        """The first step after `step` that sees another rate."""
        return next((start for start, _ in self.stages if start > step), None)

    def __str__(self) -> str:
        ends = [start for start, _ in self.stages[1:]]
        timed = [f"{rate} for {end - start} steps" for (start, rate), end in zip(self.stages, ends, strict=False)]
        return ", then ".join([*timed, str(self.stages[-1][1])])
