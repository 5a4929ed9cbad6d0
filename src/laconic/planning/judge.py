"""Two ways to tell what a change of one tensor's option does to the step.

`Exact` simulates. `Estimate` is a closed form: did every resource serve tensors in their order, the step would end at

    F = max over resources r and tensors i of   ready_i + (delays up to i) + head_i(r) + (work of i and all later on r)

or when the longest single conversation ends. A change of tensor k shifts the terms before k by its change of work, and
those after k by its change of delay; so with running maxima from both sides an option costs a few additions. It is
exact for one link and one round a tensor, Espresso's own example, and else near; what it chooses is simulated then.
"""

from typing import Protocol

import numpy as np

from laconic.planning.board import Board, Choice, Table
from laconic.planning.timeline import Replay, play

TINY = 1e-12  # seconds: less is rounding


class Judge(Protocol):
    """Holds a choice; tells what changes would do, and makes them."""

    @property
    def seconds(self) -> float:
        """The step's time under what is held."""

    def best(self, tensor: int, options: Table) -> tuple[float, int]:
        """The least time over these options for a tensor, the others fixed; of equals the first."""

    def take(self, tensor: int, option: int) -> None:
        """Make a change."""

    def choice(self) -> Choice:
        """What is held."""

    def last_bubble(self) -> int:
        """The last tensor before which the link idles; 0 if there is none."""


class Exact:
    """By simulation, from the nearest saved state; after `left` simulations it finds nothing better any more."""

    def __init__(self, board: Board, choice: Choice, left: int = 1 << 60) -> None:
        self._board, self._choice = board, list(choice)
        self._replay = Replay(board.ready, board.talks(choice))
        self.left = left

    @property
    def seconds(self) -> float:
        return self._replay.seconds + self._board.forward

    def best(self, tensor: int, options: Table) -> tuple[float, int]:
        held = self._choice[tensor]
        least, found = self.seconds, held
        for option in options.options:
            if option != held and self.left > 0:
                self.left -= 1
                time = self._replay.with_change(tensor, self._board.columns[tensor].talks[option]) + self._board.forward
                if time < least - TINY:
                    least, found = time, option
        return least, found

    def take(self, tensor: int, option: int) -> None:
        self._choice[tensor] = option
        self._replay.change(tensor, self._board.columns[tensor].talks[option])

    def choice(self) -> Choice:
        return tuple(self._choice)

    def last_bubble(self) -> int:
        bubbles = play(self._board.ready, self._replay.talks).bubbles(self._board.link)
        return max((talk for talk, _, _ in bubbles), default=0)


class Estimate:
    """By the closed form."""

    def __init__(self, board: Board, choice: Choice) -> None:
        self._board, self._choice = board, list(choice)
        tables = [column.table for column in board.columns]
        rows = list(zip(tables, choice, strict=True))
        self._ready = np.array(board.ready)
        self._delay = np.array([table.delay[k] for table, k in rows])
        self._work = np.array([table.work[k] for table, k in rows])
        self._reach = np.array([table.reach[k] for table, k in rows])
        self._settle = float(sum(table.settle[k] for table, k in rows))
        self._refresh()

    def _refresh(self) -> None:
        """The running maxima after a change: of the terms before each tensor, and of those after it."""
        start = self._ready + self._delay.cumsum() - self._delay  # ready, were it not encoded itself
        self._after = self._work[::-1].cumsum(0)[::-1] - self._work
        terms = self._reach + start[:, None] + self._after
        self._before = np.maximum.accumulate(terms, 0)
        self._beyond = np.maximum.accumulate(terms.max(1)[::-1])[::-1]
        self._start, self._end = start, float(start[-1] + self._delay[-1])
        self.seconds = self._board.forward + self._settle + max(self._end, float(self._beyond[0]))

    def best(self, tensor: int, options: Table) -> tuple[float, int]:
        held = self._choice[tensor]
        last = tensor + 1 == len(self._choice)
        later = self._end if last else max(self._end, self._beyond[tensor + 1])
        later -= self._delay[tensor]
        fixed = self._board.forward + self._settle - self._board.columns[tensor].table.settle[held]
        if later + fixed >= self.seconds:  # what comes after it ends no sooner, whatever is done here
            return self.seconds, held
        terms = options.reach + (self._after[tensor] + self._start[tensor])
        if tensor:
            np.maximum(terms, options.work + (self._before[tensor - 1] - self._work[tensor]), out=terms)
        times = np.maximum(terms.max(1), options.delay + later)
        times += options.settle
        place = int(times.argmin())
        time = float(times[place]) + fixed
        return (time, options.options[place]) if time < self.seconds - TINY else (self.seconds, held)

    def take(self, tensor: int, option: int) -> None:
        table = self._board.columns[tensor].table
        self._settle += table.settle[option] - table.settle[self._choice[tensor]]
        self._choice[tensor] = option
        self._delay[tensor], self._work[tensor] = table.delay[option], table.work[option]
        self._reach[tensor] = table.reach[option]
        self._refresh()

    def choice(self) -> Choice:
        return tuple(self._choice)

    def last_bubble(self) -> int:
        link = self._board.link
        work = self._work[:, link]
        asked = self._start + self._reach[:, link] - work.cumsum()
        running = np.maximum.accumulate(asked)
        first = int(running.searchsorted(running[-1] - TINY))  # where the last busy period begins
        return first if first and np.isfinite(running[first - 1]) else 0
