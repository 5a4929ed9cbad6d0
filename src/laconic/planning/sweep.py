"""What-if over many clusters: how a step scales with ranks and bandwidth, and where compression stops paying."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log

from laconic.exchange import Compressor
from laconic.planning.board import Board
from laconic.planning.profile import Profile
from laconic.planning.search import espresso

SLOWEST, FASTEST = 1e7, 1e13  # bit/s between which a break-even is looked for
PAYS = 1.01  # speed over dense from which compression is said to pay


@dataclass(frozen=True)
class Point:
    """One cluster, one way to exchange gradients: seconds a step, and the share of it that is computing."""

    way: str
    ranks: int
    inter_bits: float
    seconds: float
    efficiency: float


@dataclass(frozen=True)
class BreakEven:
    """Below this bandwidth a way is at least 1% faster than dense; None: it never is; infinite: it always is."""

    way: str
    ranks: int
    inter_bits: float | None


Cluster = Callable[[int, float], Profile]  # (machines, bit/s between them) to a profile


def ways(profile: Profile, given: Sequence[Compressor]) -> dict[str, float]:
    """Seconds a step: dense, each compressor on every tensor it suits, and each one planned.

    Options on the host are left out, which halves the time of a sweep and rarely matters where devices are fast.
    """
    made: dict[str, float] = {}
    for compressor in given:
        dense, everywhere, planned = _three(profile, compressor)
        made["dense"] = dense
        made[f"{compressor} everywhere"] = everywhere
        made[f"{compressor} planned"] = planned
    return made


def _three(profile: Profile, compressor: Compressor) -> tuple[float, float, float]:
    """Seconds a step: dense, everywhere, planned."""
    board = Board.of(profile, [compressor], offload=False)
    everywhere = tuple(
        column.options.index(compressor) if compressor in column.options else 0 for column in board.columns
    )
    return board.seconds(board.dense()), board.seconds(everywhere), board.seconds(espresso(board))


def points(
    cluster: Cluster, machines: Sequence[int], rates: Sequence[float], given: Sequence[Compressor]
) -> list[Point]:
    """Every combination of machines and rates."""
    made = []
    for nodes in machines:
        for bits in rates:
            profile = cluster(nodes, bits)
            computing = profile.trace.forward + profile.trace.ready[-1]
            for way, seconds in ways(profile, given).items():
                made.append(Point(way, profile.world.size, bits, seconds, computing / seconds))
    return made


def break_evens(cluster: Cluster, nodes: int, given: Sequence[Compressor], steps: int = 9) -> list[BreakEven]:
    """By bisection on the logarithm of the rate: a step's gain falls as the network gets faster. To about 3%."""
    ranks = cluster(nodes, SLOWEST).world.size
    return [
        BreakEven(f"{compressor} {('everywhere', 'planned')[kind - 1]}", ranks, bits)
        for compressor in given
        for kind, bits in enumerate(_where(cluster, nodes, compressor, steps), 1)
    ]


def _where(cluster: Cluster, nodes: int, compressor: Compressor, steps: int) -> Iterator[float | None]:
    """Where the compressor stops paying, everywhere and planned."""
    seen: dict[float, tuple[float, float, float]] = {}

    def pays(kind: int, bits: float) -> bool:
        if bits not in seen:
            seen[bits] = _three(cluster(nodes, bits), compressor)
        return seen[bits][0] > PAYS * seen[bits][kind]

    for kind in (1, 2):
        low, high = log(SLOWEST), log(FASTEST)
        if not pays(kind, SLOWEST):
            yield None
        elif pays(kind, FASTEST):
            yield float("inf")
        else:
            for _ in range(steps):
                middle = (low + high) / 2
                low, high = (middle, high) if pays(kind, exp(middle)) else (low, middle)
            yield exp((low + high) / 2)
