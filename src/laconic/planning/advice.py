"""A plan with what it gains and where the time goes: what `laconic plan` tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from laconic.compressors.dense import Dense
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.plan import Plan
from laconic.planning.board import Board
from laconic.planning.grammar import plain
from laconic.planning.pricing import simulate
from laconic.planning.profile import Profile
from laconic.planning.search import better, espresso
from laconic.planning.timeline import INTER, RESOURCES, Timeline

SEARCHES = ("espresso", "better")
WORTH = 0.01  # a gain below this share is not worth changing anything for


@dataclass(frozen=True)
class Advice:
    """What to do, and what it is predicted to do. Times are seconds a step."""

    profile: Profile
    plan: Plan
    options: int  # the most that a tensor has
    selection: float  # seconds that the search took, by the clock on the wall
    dense: float
    predicted: float
    bound: float
    found: float  # of the best plan found, even if it is not worth it
    timeline: Timeline
    fused: tuple[float, float]  # dense and planned, as the engine fuses them into DDP's buckets

    @property
    def gain(self) -> float:
        """How many times as many steps a second."""
        return self.dense / self.predicted

    @property
    def pays(self) -> bool:
        return self.predicted < self.dense

    def as_json(self) -> dict[str, object]:
        return {
            "model": self.profile.model,
            "tensors": len(self.profile.trace.layers),
            "options_per_tensor": self.options,
            "selection_ms": round(self.selection * 1e3, 3),
            "dense_ms": round(self.dense * 1e3, 4),
            "predicted_ms": round(self.predicted * 1e3, 4),
            "bound_ms": round(self.bound * 1e3, 4),
            "plan": {name: str(compressor) for name, compressor in self.plan.items()},
        }


def advise(profile: Profile, given: Sequence[Compressor], search: str = "espresso") -> Advice:
    """Search the options that these compressors give; `search` is the published decision or the better one.

    A plan that would gain less than WORTH is not proposed: the advice is then to stay dense.
    """
    if search not in SEARCHES:
        raise InvalidConfig("search", search, f"choose one of {', '.join(SEARCHES)}")
    board = Board.of(profile, given)
    began = perf_counter()
    choice = espresso(board) if search == "espresso" else better(board)
    took = perf_counter() - began
    found, dense = board.seconds(choice), board.seconds(board.dense())
    if found * (1 + WORTH) >= dense:
        choice = board.dense()
    plan = board.plan(choice)
    fused = (
        simulate(profile, {}, "bucket", "step").seconds,
        simulate(profile, plan, "bucket", "step").seconds,
    )
    return Advice(
        profile, plan, board.widest, took, dense, board.seconds(choice), board.bound(), found, simulate(profile, plan),
        fused,
    )  # fmt: skip


def told(advice: Advice) -> list[str]:
    """In plain words: what to do, what it gains, where the time goes."""
    profile, timeline = advice.profile, advice.timeline
    layers = profile.trace.layers
    numel = sum(layer.numel for layer in layers)
    ranks, node = profile.world.size, profile.world.node_size
    lines = [
        f"{profile.model}: {numel / 1e6:,.1f}M parameters in {len(layers)} tensors,"
        f" on {_count(ranks // node, 'machine')} of {_count(node, profile.device)}."
    ]
    used: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        used.setdefault(str(advice.plan[layer.name]), []).append(index)
    if not advice.pays:
        lines.append("What to do: do not compress. The network keeps up with the backward pass as it is,")
        lines.append(f"and the best plan found would be {advice.dense / advice.found - 1:.1%} faster.")
    else:
        chosen = [advice.plan[layer.name] for layer in layers]
        compressed = sum(not plain(option) for option in chosen)
        routed = sum(plain(option) and option != Dense() for option in chosen)
        also = f", and send {_count(routed, 'tensor')} dense by another route" if routed else ""
        lines.append(f"What to do: compress {compressed} of {len(layers)} tensors{also}.")
    for text, rows in sorted(used.items(), key=lambda item: -sum(layers[i].numel for i in item[1])):
        share = sum(layers[i].numel for i in rows) / numel
        biggest = max((layers[i] for i in rows), key=lambda layer: layer.numel).name
        lines.append(f"  {text:58} {_count(len(rows), 'tensor'):>11}, {share:6.1%} of the parameters, as {biggest}")
    lines.append(
        f"What it gains: {_ms(advice.dense)} a step dense, {_ms(advice.predicted)} planned: {advice.gain:.2f} times"
        f" the speed."
    )
    lines.append(
        f"  No plan of these {advice.options} options a tensor can be faster than {_ms(advice.bound)}, compression for"
        f" free: {advice.predicted / advice.bound - 1:.1%} away. Found in {advice.selection * 1e3:.1f} ms."
    )
    lines.append(f"  Fused into DDP's buckets as the engine does: {_ms(advice.fused[0])} and {_ms(advice.fused[1])}.")
    computing = profile.trace.forward + profile.trace.ready[-1] + profile.trace.after
    exposed = max(0.0, timeline.seconds - profile.trace.forward - profile.trace.after - timeline.backward)
    lines.append(
        f"Where the time goes: {_ms(computing)} computing, {_ms(timeline.delayed)} encoding in its way,"
        f" {_ms(exposed)} waiting for the rest."
    )
    busy = [(RESOURCES[r], timeline.busy(r)) for r in range(4) if timeline.busy(r)]
    lines.append("  In use: " + ", ".join(f"{name} {_ms(seconds)}" for name, seconds in busy) + ".")
    idle = sum(to - since for _, since, to in timeline.bubbles(INTER))
    if idle:
        lines.append(f"  The link between machines idles {_ms(idle)} waiting for gradients, once it has begun.")
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
