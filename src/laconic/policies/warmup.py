"""How long gradients travel dense at the start: as long as the learning rate rises, where it can be seen.

Rank 0 looks now and then, and what it makes of it is in its notes, so every rank knows the same end.
"""

from dataclasses import dataclass, replace

from laconic.policies.given import WATCHED

STEPS = 1000  # where no learning rate is seen to rise
LONGEST = 4000  # a rate that rises for longer, as a one-cycle schedule's does, is no warm-up
LOOK = 25  # steps from look to look
AHEAD = WATCHED + 2  # steps from a look to the earliest end: those that are watched, and until their sums arrive


@dataclass(frozen=True)
class WarmUp:
    """When the warm-up ends, as far as is known; a rate that rises in stairs may pause as long as its longest stair.

    >>> WarmUp().looked(25, 0.1).looked(50, 0.2).ends
    112
    """

    ends: int = STEPS
    follows: bool = True
    rate: float | None = None  # at the last look
    risen: int = 0  # the look that saw it rise last, or the first one
    stair: int = 0  # the longest that a rise was waited for, a look longer

    def looks(self, step: int) -> bool:
        """Whether the learning rate is to be seen after so many steps."""
        return self.follows and step > 0 and step % LOOK == 0 and step <= self.ends - AHEAD

    def looked(self, step: int, rate: float | None) -> "WarmUp":
        """What is known after such a look."""
        if rate is None:
            return replace(self, follows=False)
        if self.rate is None:
            return replace(self, rate=rate, risen=step)
        if rate <= self.rate:
            return replace(self, rate=rate)
        stair = max(self.stair, step - self.risen + LOOK)
        return replace(self, ends=min(LONGEST, step + stair + AHEAD), rate=rate, risen=step, stair=stair)
