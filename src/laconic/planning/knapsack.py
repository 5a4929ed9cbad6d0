"""The multiple-choice knapsack: one rung for each layer, the fewest bytes within an error budget.

Dynamic programme over a discretised error axis (L-GreCo, arXiv 2210.17357). Errors are rounded up to whole units of
budget / UNITS, so what fits UNITS units fits the budget; the axis goes on for one unit a layer, so that rounding shuts
no plan out, and what lies there is checked against the budget with its real numbers. The result costs at most what the
best plan within budget * (1 - layers / UNITS) costs, and never more than the plan that is given as known to be good.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import InvalidConfig, LaconicError

UNITS = 10_000  # of the error axis
ROUNDING = 1e-12  # relative: a sum in another order may differ by so much

Errors = NDArray[np.float64]
Whole = NDArray[np.integer]
Window = tuple[int, int]  # the first and the last capacity that a row is asked for


class Infeasible(LaconicError, ValueError):
    """No choice stays within the budget."""


@dataclass(frozen=True)
class Choice:
    """A rung for each layer, and what they cost and leave together."""

    rungs: tuple[int, ...]
    size: int
    error: float


def solve(
    errors: Sequence[Sequence[float]], sizes: Sequence[Sequence[int]], budget: float, known: Sequence[int] | None = None
) -> Choice:
    """Minimise the sum of sizes while the sum of errors is within the budget; ties go to the smaller error.

    `known` is a choice to be no worse than, if it is within the budget itself. Infeasible where nothing is.

    >>> solve([[3, 2, .7], [2.4, 2, 1.6], [5, 2, 1.9]], [[4, 8, 16], [400, 800, 1600], [20, 40, 80]], 6.0)
    Choice(rungs=(2, 0, 1), size=456, error=5.1)
    """
    return Knapsack(errors, budget).solve(sizes, known)


class Knapsack:
    """The problem with its errors and budget, to be solved for one kind of size or several in turn."""

    def __init__(self, errors: Sequence[Sequence[float]], budget: float) -> None:
        if not isfinite(budget) or budget < 0:
            raise InvalidConfig("budget", budget, "give a finite error that is not negative")
        self._left, self._budget = [np.asarray(row, dtype=np.float64) for row in errors], budget
        for index, row in enumerate(self._left):
            if not len(row) or not (np.isfinite(row).all() and (row >= 0).all()):
                raise InvalidConfig(f"errors[{index}]", row.tolist(), "give errors that are finite and not negative")
        self._capacity = UNITS + len(self._left)  # of the error axis
        with np.errstate(over="ignore"):
            scaled = [np.ceil(row / budget * UNITS) for row in self._left] if budget > 0 else []
        self._units = [np.minimum(row, self._capacity + 1).astype(np.int64) for row in scaled]

    def solve(self, sizes: Sequence[Sequence[int]], known: Sequence[int] | None = None) -> Choice:
        """As the function of this name says."""
        left, cost = self._left, [np.asarray(row, dtype=np.int64) for row in sizes]
        for index, (e, s) in enumerate(zip(left, cost, strict=True)):
            if e.shape != s.shape or s.min() < 0:
                raise InvalidConfig(f"errors[{index}]", e.tolist(), f"give a size from 0 on for each of {len(e)}")
        least = sum(float(row.min()) for row in left)
        if least > self._budget * (1 + ROUNDING):
            raise Infeasible(f"even the gentlest rungs leave {least:.4g}, and the budget is {self._budget:.4g}")
        found = self._programme(cost)
        if known is not None:
            found.append(_choice(left, cost, known))
        within = [choice for choice in found if choice.error <= self._budget * (1 + ROUNDING)]
        return min(within, key=lambda one: (one.size, one.error))

    def _programme(self, cost: list[NDArray[np.int64]]) -> list[Choice]:
        """The gentlest choice, and the best of those that the programme reaches at capacities from the budget on."""
        left, units = self._left, self._units
        gentlest = _choice(left, cost, [int(np.lexsort((s, e))[0]) for e, s in zip(left, cost, strict=True)])
        if not left or self._budget == 0:
            return [gentlest]  # with nothing to spend: whatever leaves nothing, the cheapest of it
        reach = _reach(units, cost, self._capacity)
        rungs = _trace(reach, units, cost, np.arange(UNITS, self._capacity + 1))
        layers = np.arange(len(left))
        error = _padded(left)[layers, rungs].sum(1)
        size = _padded(cost)[layers, rungs].sum(1)
        fits = np.flatnonzero(error <= self._budget * (1 + ROUNDING / 2))
        if not len(fits):
            return [gentlest]
        best = fits[np.lexsort((error[fits], size[fits]))[0]]
        return [gentlest, _choice(left, cost, rungs[best].tolist())]


def _choice(left: list[Errors], cost: list[NDArray[np.int64]], rungs: Sequence[int]) -> Choice:
    error = sum(float(e[at]) for e, at in zip(left, rungs, strict=True))
    return Choice(tuple(rungs), sum(int(s[at]) for s, at in zip(cost, rungs, strict=True)), error)


def _padded(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Ladders of unequal length as one array; what is added is never looked at."""
    table = np.zeros((len(rows), max(map(len, rows))), dtype=rows[0].dtype)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


@dataclass(frozen=True)
class _Reach:
    """Row l of the table: the least cost of the first l layers within each capacity, in `unit`s; or `never`.

    A row holds what is asked for: capacities from `low` on, up to `high`, beyond which a row is level.
    """

    table: Whole
    unit: int
    never: int
    low: Sequence[int]
    high: Sequence[int]

    def costs(self, row: int, capacities: NDArray[np.int64]) -> NDArray[np.int64]:
        within = np.minimum(capacities, self.high[row])
        found: NDArray[np.int64] = self.table[row].take(within, mode="clip").astype(np.int64)
        found[capacities < self.low[row]] = 1 << 62
        return found


def _windows(units: list[NDArray[np.int64]], capacity: int) -> tuple[list[int], list[int]]:
    """The capacities of each row that a plan can come by which ends with UNITS or more, and `capacity` at most."""
    least = np.cumsum([0, *(int(row.min()) for row in units)])
    most = np.cumsum([0, *(int(row[row <= capacity].max(initial=0)) for row in units)])
    low = np.maximum(least, np.minimum(most, UNITS - (most[-1] - most)))
    high = np.minimum(most, capacity - (least[-1] - least))
    return low.tolist(), high.tolist()


def _undominated(units: NDArray[np.int64], costs: NDArray[np.int64], capacity: int) -> Iterator[tuple[int, int]]:
    """The rungs that are cheaper than all that leave as little."""
    cheapest = None
    for unit, cost in sorted(zip(units.tolist(), costs.tolist(), strict=True)):
        if unit <= capacity and (cheapest is None or cost < cheapest):
            cheapest = cost
            yield unit, cost


def _reach(units: list[NDArray[np.int64]], cost: list[NDArray[np.int64]], capacity: int) -> _Reach:
    """The programme, layer by layer.

    Costs are whole numbers in their common unit, in 32 bits where they fit. Which rung it was is found again on the way
    back instead of being written down.
    """
    unit = gcd(*(int(s) for row in cost for s in row)) or 1
    most = sum(int(row.max()) for row in cost) // unit
    dtype: type[np.integer] = np.int32 if most < 1 << 30 else np.int64
    never = 1 << (30 if dtype is np.int32 else 62)
    low, high = _windows(units, capacity)
    table = np.empty((len(units) + 1, capacity + 1), dtype=dtype)
    windows = list(zip(low, high, strict=True))
    table[0, low[0] : high[0] + 1] = 0
    for row, (e, s) in enumerate(zip(units, cost, strict=True)):
        table[row + 1, low[row + 1] : high[row + 1] + 1] = never
        rungs = list(_undominated(e, s // unit, capacity))
        _extend(table[row], table[row + 1], rungs, windows[row], windows[row + 1])
    return _Reach(table, unit, never, low, high)


def _extend(before: Whole, after: Whole, rungs: list[tuple[int, int]], old: Window, now: Window) -> None:
    """A row from the one before it, each where its window is."""
    native = _compiled() if before.dtype == np.int32 else None
    if native is None:
        extended(before, after, rungs, old, now)
    else:
        native(before.ctypes.data, after.ctypes.data, rungs, old, now)


@cache
def _compiled() -> Callable[[int, int, list[tuple[int, int]], Window, Window], None] | None:
    """The same in C++ (csrc/knapsack.cpp), where it was built."""
    try:
        from laconic.kernels._native import extend
    except ImportError:
        return None
    return extend


def extended(before: Whole, after: Whole, rungs: list[tuple[int, int]], old: Window, now: Window) -> None:
    """`_extend` with numpy, which says what it means: beyond its window a row is level."""
    (first, last), (begin, end) = old, (now[0], now[1] + 1)
    for error, cost in rungs:
        start, stop = max(begin, first + error), min(end, last + error + 1)
        if start < stop:
            part = after[start:stop]
            np.minimum(part, before[start - error : stop - error] + cost, out=part)
        if stop < end:
            level = after[max(begin, stop) : end]
            np.minimum(level, before[last] + cost, out=level)


def _trace(
    reach: _Reach, units: list[NDArray[np.int64]], cost: list[NDArray[np.int64]], capacities: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The rungs that lead to the least cost within each capacity: one row for each that can be reached."""
    at = capacities[reach.costs(len(units), capacities) < reach.never]
    rungs = np.zeros((len(at), len(units)), dtype=np.int64)
    for layer in range(len(units) - 1, -1, -1):
        e, s = units[layer], cost[layer] // reach.unit
        rungs[:, layer] = (reach.costs(layer, at[:, None] - e) + s).argmin(1)
        at = at - e[rungs[:, layer]]
    return rungs
