"""Espresso's decision for a step whose tensors share buckets: the published choice, and a search that sees the buckets.

The published algorithm prices each tensor as if it travelled alone. The engine fuses tensors into DDP's buckets, where
latency is paid once and a conversation of two rounds makes its whole bucket take two. So its choice, dense, and every
expression used wherever it may be are priced as the engine runs them, and improved layer by layer on that price. Layers
whose compression gains nothing are sent as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laconic.compressors.dense import Dense
from laconic.exchange import Compressor
from laconic.plan import Plan
from laconic.planning.board import Board
from laconic.planning.buckets import buckets
from laconic.planning.budget import FREE, PATIENCE, fastest
from laconic.planning.fused import Choice, Fused
from laconic.planning.grammar import expressions, options, plain
from laconic.planning.profile import Profile
from laconic.planning.search import espresso


@dataclass(frozen=True)
class Decision:
    """A plan and its step; what the published choice, dense, and a plan in use would take. Seconds."""

    plan: Plan
    seconds: float
    published: float
    dense: float
    held: float


def decide(
    profile: Profile,
    given: Sequence[Compressor],
    groups: Sequence[Sequence[str]] | None = None,
    held: Mapping[str, Compressor] | None = None,
    commit: str = "step",
    patience: float = PATIENCE,
) -> Decision:
    """The fastest plan that is found over the grammar; `groups` are the buckets, by default DDP's own.

    `held` is the plan in use: it is priced beside the others, and stays where nothing is faster. Where conversations
    were measured, the search keeps to those: an estimate must not win by being too low. `patience` is in seconds.
    """
    layers = profile.trace.layers
    groups = groups or [[layers[i].name for i in group] for group in buckets(layers)]
    every = expressions(given, profile.world, offload=False)
    every = [option for option in every if not profile.talks or str(option) in profile.talks or plain(option)]
    rows = [options(layer, every) for layer in layers]
    now = [(held or {}).get(layer.name, Dense()) for layer in layers]
    rows = [row if option in row else [*row, option] for row, option in zip(rows, now, strict=True)]
    fused = Fused(profile, groups, rows, commit)
    board = Board.of(profile, given, offload=False)
    chosen = board.plan(espresso(board))
    published = tuple(
        row.index(chosen[y.name]) if chosen[y.name] in row else 0 for y, row in zip(layers, rows, strict=True)
    )
    current: Choice = tuple(row.index(option) for row, option in zip(rows, now, strict=True))
    dense = (0,) * len(layers)
    touched = [[0.0 if x.lossless else float(y.numel) for x in row] for y, row in zip(layers, rows, strict=True)]
    searched = fastest(fused, touched, sum(layer.numel for layer in layers), patience).choice
    times = {choice: fused.seconds(choice) for choice in (searched, current, dense, published)}
    best = min(times, key=lambda choice: times[choice])
    if times[searched] <= times[best] * (1 + FREE):
        best = searched
    plan = Plan({layer.name: row[k] for layer, row, k in zip(layers, rows, best, strict=True)})
    return Decision(plan, times[best], times[published], times[dense], times[current])
