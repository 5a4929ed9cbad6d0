"""How long a step takes under each plan, by this rank's wall clock."""

from collections import deque
from statistics import median
from time import perf_counter

RECENT = 64  # steps of each plan
PLANS = 8
TRACED = 16  # steps whose boundaries are remembered


class Clock:
    """Times from step boundary to step boundary. The first step under a plan pays for the change and is left out."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        self._last: tuple[int, float] | None = None
        self._fresh = True
        self.bounds: deque[tuple[int, str, float, float]] = deque(maxlen=TRACED)  # step, plan, start, end

    def tick(self, steps: int, digest: str) -> None:
        """So many steps are done, the last of them under this plan."""
        now = perf_counter()
        if self._last is not None and steps == self._last[0] + 1 and not self._fresh:
            times = self._times.pop(digest, deque(maxlen=RECENT))
            times.append(now - self._last[1])
            self.bounds.append((steps - 1, digest, self._last[1], now))
            self._times[digest] = times  # the plan in use is the youngest
            for old in list(self._times)[:-PLANS]:
                del self._times[old]
        self._last, self._fresh = (steps, now), False

    def change(self) -> None:
        """Another plan is used from now on."""
        self._fresh = True

    def medians(self) -> dict[str, float]:
        """Seconds a step, by the plan's digest."""
        return {digest: median(times) for digest, times in self._times.items()}
