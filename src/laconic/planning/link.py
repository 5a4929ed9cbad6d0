"""What a collective costs: alpha-beta lines per op and scope, from a rate or fitted to measurements.

A line says `alpha + beta * nbytes` for a message of `nbytes` on one rank. Where a library may choose between algorithms
(ring or tree), there are several lines and the fastest counts, so a curve is a least of lines.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite, log2
from statistics import fmean

import numpy as np

from laconic.errors import InvalidConfig
from laconic.exchange import Op
from laconic.world import Scope, World

REACHED = 0.8  # the share of a link's data-sheet rate that a collective reaches
INTER_LATENCY = 15e-6  # seconds a hop between machines: a kernel's TCP or RoCE stack, one way
INTRA_LATENCY = 4e-6  # seconds a hop inside a machine


@dataclass(frozen=True)
class Line:
    """`alpha` seconds and `beta` seconds a byte; `error` is the fit's relative root mean square, 0 if not fitted.

    Real links bend: a shaped one lets the first bytes of a message pass, a queue that overflows makes long ones longer.
    So where there are `points` (bytes, seconds), they are the cost, and the line is what they come to in two numbers.

    >>> Line(1e-3, 1e-6).seconds(500)
    0.0015
    >>> bent = Line(0.0, 1.0, points=((10.0, 1.0), (20.0, 1.0), (30.0, 3.0)))
    >>> bent.seconds(0), bent.seconds(25), bent.seconds(40)
    (1.0, 2.0, 4.0)
    """

    alpha: float
    beta: float
    error: float = 0.0
    points: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    def seconds(self, nbytes: float) -> float:
        """Between points by interpolation; beyond the last at the pace from the first to the last."""
        points = self.points
        if not points:
            return self.alpha + self.beta * nbytes
        first, last = points[0], points[-1]
        if nbytes <= first[0]:
            return first[1]
        if nbytes >= last[0]:
            pace = (last[1] - first[1]) / (last[0] - first[0]) if len(points) > 1 else self.beta
            return last[1] + pace * (nbytes - last[0])
        above = bisect_right(points, nbytes, key=_nbytes)
        (x0, y0), (x1, y1) = points[above - 1], points[above]
        return y0 + (y1 - y0) * (nbytes - x0) / (x1 - x0)

    def longer(self, times: float) -> "Line":
        """The same where everything takes so many times as long."""
        points = tuple((nbytes, times * seconds) for nbytes, seconds in self.points)
        return replace(self, alpha=times * self.alpha, beta=times * self.beta, points=points)

    def slower(self, times: float) -> "Line":
        """The same with bytes that take so many times as long; latency stays.

        Each byte takes longer by as much: what a quick link lets pass at once, a slow one does not.

        >>> Line(0.0, 1.0, points=((10.0, 3.0), (30.0, 5.0))).slower(10).points  # 2 s of latency, 0.1 s a byte
        ((10.0, 12.0), (30.0, 32.0))
        >>> Line(0.0, 1.0, points=((10.0, 2.0), (20.0, 2.0), (30.0, 5.0))).slower(11).points
        ((10.0, 12.0), (20.0, 22.0), (30.0, 35.0))
        """
        start = 0.0
        if len(self.points) > 1:
            (x0, y0), (x1, y1), *_ = self.points
            start = max(0.0, y0 - x0 * (y1 - y0) / (x1 - x0))
        longest, most = self.points[-1] if self.points else (0.0, 0.0)
        pace = max(0.0, most - start) / longest if longest else 0.0
        points = tuple(
            (nbytes, seconds + (times - 1) * (pace * nbytes if times > 1 else seconds - start))
            for nbytes, seconds in self.points
        )
        return replace(self, beta=self.beta * times, points=points)


def _nbytes(point: tuple[float, float]) -> float:
    return point[0]


Curves = Mapping[tuple[Op, Scope], tuple[Line, ...]]


def check_line(line: Line, key: str) -> Line:
    """The line, if it can be a cost."""
    for name in ("alpha", "beta", "error"):
        value = getattr(line, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value) or value < 0:
            raise InvalidConfig(f"{key}.{name}", value, "a cost is a number that is not negative; probe again")
    last = -1.0
    for nbytes, seconds in line.points:
        if not (isfinite(seconds) and seconds >= 0 and isfinite(nbytes) and nbytes > last):
            raise InvalidConfig(f"{key}.points", (nbytes, seconds), "give growing sizes, and times from 0; probe again")
        last = nbytes
    return line


def bend(nbytes: Sequence[float], seconds: Sequence[float], key: str = "link") -> Line:
    """The fitted line together with its points; a longer message never takes less time than a shorter one.

    Where measurements say so, neighbours share their mean (pool adjacent violators).

    >>> bend([1, 2, 3], [1.0, 3.0, 2.0]).points
    ((1.0, 1.0), (2.0, 2.5), (3.0, 2.5))
    """
    line = fit(nbytes, seconds, key)
    pools: list[list[float]] = []
    for value in seconds:
        pools.append([value])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    level = [fmean(pool) for pool in pools for _ in pool]
    points = tuple((float(n), float(f"{t:.6g}")) for n, t in zip(nbytes, level, strict=True))
    return replace(line, points=points)


def fit(nbytes: Sequence[float], seconds: Sequence[float], key: str = "link") -> Line:
    """The line that is nearest to measurements, in relative terms, with no negative coefficient.

    Relative, because sizes span orders of magnitude and the small ones decide alpha.

    >>> fit([1e3, 1e6], [2e-3, 1.001])
    Line(alpha=0.001, beta=1e-06, error=0.0)
    """
    x, y = np.asarray(nbytes, float), np.asarray(seconds, float)
    if x.size < 2 or x.size != y.size or np.ptp(x) == 0:
        raise InvalidConfig(key, f"{x.size} sizes, {y.size} times", "measure at least two different sizes")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (y > 0).all() and (x >= 0).all()):
        raise InvalidConfig(key, min(seconds), "times must be positive numbers; measure again")
    weighted = np.stack([1 / y, x / y], 1)
    alpha, beta = np.linalg.lstsq(weighted, np.ones_like(y), rcond=None)[0]
    if beta < 0:  # latency alone
        alpha, beta = (1 / y).sum() / (1 / y**2).sum(), 0.0
    elif alpha < 0:  # rate alone
        alpha, beta = 0.0, (x / y).sum() / ((x / y) ** 2).sum()
    error = float(np.sqrt(np.mean(((alpha + beta * x) / y - 1) ** 2)))
    return Line(float(f"{alpha:.9g}"), float(f"{beta:.9g}"), float(f"{error:.3g}") if error > 1e-12 else 0.0)


def fit_total(sizes: Sequence[float], seconds: Sequence[float], key: str = "kernel") -> Line:
    """The line of least squared error with no negative coefficient; its total over the sizes is that of the seconds.

    For costs that are added up over a model's layers, where the large ones decide.

    >>> fit_total([10, 20, 60], [2, 3, 7])
    Line(alpha=1.0, beta=0.1, error=0.0)
    """
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    if not x.size or x.size != y.size or not (np.isfinite(x).all() and np.isfinite(y).all() and (y >= 0).all()):
        raise InvalidConfig(key, f"{x.size} sizes, {y.size} times", "measure at least one size; times are not negative")
    spread = x - x.mean()
    beta = float(spread @ y / (spread @ spread)) if np.ptp(x) > 0 else float(y.mean() / max(x.mean(), 1.0))
    alpha = float(y.mean() - beta * x.mean())
    if beta < 0:
        alpha, beta = float(y.mean()), 0.0
    elif alpha < 0:
        alpha, beta = 0.0, float(y.sum() / x.sum())
    off = float(np.sqrt(np.mean((alpha + beta * x - y) ** 2)) / y.mean()) if y.mean() > 0 else 0.0
    return Line(float(f"{alpha:.9g}"), float(f"{beta:.9g}"), float(f"{off:.3g}") if off > 1e-9 else 0.0)


def algorithms(op: Op, size: int, alpha: float, beta: float) -> tuple[Line, ...]:
    """The lines of one collective among `size` ranks that talk at `alpha` seconds a hop and `beta` seconds a byte.

    Sum: ring, or a pair of trees (2 log S hops, 2 n bytes, NCCL's choice at scale). Gather: recursive doubling, log S
    hops. Scatter (all-to-all): pairwise, S-1 hops, or Bruck's, log S hops of half the data.
    """
    if size == 1:
        return (Line(0.0, 0.0),)
    hops = ceil(log2(size))
    match op:
        case Op.SUM | Op.MAX:
            return (
                Line(2 * (size - 1) * alpha, 2 * (size - 1) / size * beta),
                Line(2 * hops * alpha, 2 * beta),
            )
        case Op.GATHER:
            return (Line(hops * alpha, (size - 1) * beta),)
        case Op.SCATTER:
            return (
                Line((size - 1) * alpha, (size - 1) / size * beta),
                Line(hops * alpha, hops / 2 * beta),
            )


def what_if(world: World, inter_bits: float, intra_bits: float) -> Curves:
    """Curves for a cluster that is described and not measured: one network card a machine, shared by its ranks.

    Around the whole world a ring enters and leaves each machine once, so it runs at the card's rate. Across, every rank
    of a machine has a ring of its own, and they share the card. All-to-all over the world sends all but the machine's
    own rows through the card.
    """
    inside, across = world.inside().size, world.across().size
    inter, intra = 8 / (inter_bits * REACHED), 8 / (intra_bits * REACHED)
    curves: dict[tuple[Op, Scope], tuple[Line, ...]] = {}
    for op in Op:
        curves[op, Scope.NODE] = algorithms(op, inside, INTRA_LATENCY, intra)
        curves[op, Scope.ACROSS] = algorithms(op, across, INTER_LATENCY, inter * inside)
        if across == 1:
            curves[op, Scope.WORLD] = curves[op, Scope.NODE]
            continue
        shared = inside if op is Op.SCATTER else 1
        slowest = max(inter * shared, intra)
        curves[op, Scope.WORLD] = algorithms(op, world.size, INTER_LATENCY, slowest)
    return curves


def collective_seconds(curves: Curves, op: Op, scope: Scope, nbytes: float) -> float:
    """What one collective takes on an idle link."""
    lines = curves.get((op, scope)) or (curves.get((Op.SUM, scope)) if op is Op.MAX else None)
    if not lines:
        raise InvalidConfig("links", f"{op.value} {scope.value}", "the profile has no cost for it: probe again")
    return min(line.seconds(nbytes) for line in lines)
