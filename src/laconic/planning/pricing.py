"""From expressions to seconds: what a plan's conversations cost under a profile, one by one or fused into buckets."""

from collections.abc import Collection, Mapping, Sequence

import torch

from laconic.compressors.dense import Dense
from laconic.errors import InvalidConfig
from laconic.exchange import ALONG, Compressor, Leg, Op, wire_bytes
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.buckets import WHOLE, buckets, together
from laconic.planning.costs import Work, steps
from laconic.planning.lanes import Load, Round, Send, travel
from laconic.planning.link import collective_seconds
from laconic.planning.profile import Profile
from laconic.planning.timeline import HOST, INTER, NODE, SIDE, Talk, Timeline, play
from laconic.world import Scope

FUSIONS = ("tensor", "bucket")
COMMITS = ("step", "bucket")

Parcels = dict[tuple[Op, Scope, torch.dtype], int]  # bytes of each collective of a round


def simulate(
    profile: Profile, plan: Mapping[str, Compressor], fusion: str = "tensor", commit: str = "bucket"
) -> Timeline:
    """The step under a plan; layers that it does not name are dense.

    `fusion="tensor"` gives every tensor collectives of its own, as Espresso does; "bucket" fuses as the engine does
    under DDP. `commit="step"` decodes when the last message has come, the engine's default; "bucket" at once.
    """
    if fusion not in FUSIONS:
        raise InvalidConfig("fusion", fusion, f"choose one of {', '.join(FUSIONS)}")
    if commit not in COMMITS:
        raise InvalidConfig("commit", commit, f"choose one of {', '.join(COMMITS)}")
    layers, chosen = profile.trace.layers, [plan.get(layer.name, Dense()) for layer in profile.trace.layers]
    unknown = set(plan) - {layer.name for layer in layers}
    if unknown:
        raise InvalidConfig("plan", sorted(unknown)[0], f"{profile.model} has no such layer; resolve the plan first")
    if fusion == "tensor":
        talks = [price(profile, layer, compressor, commit) for layer, compressor in zip(layers, chosen, strict=True)]
        return play(profile.trace.ready, talks, profile.trace.forward + profile.trace.after)
    waits = plan.waits if isinstance(plan, Plan) else frozenset()
    passage = travel(loads(profile, chosen, waits), profile.cores, commit)
    seconds = profile.trace.forward + passage.end + profile.trace.after
    return Timeline(seconds, passage.backward, passage.backward - profile.trace.ready[-1], ())


def step_seconds(profile: Profile, plan: Mapping[str, Compressor], commit: str = "step") -> float:
    """What a step should take under a plan, as the engine runs it under DDP: the figure that races are held to."""
    return simulate(profile, plan, "bucket", commit).seconds


def parts(profile: Profile, layer: Layer, compressor: Compressor) -> list[float]:
    """Seconds of a conversation's arithmetic: opening, between its rounds, ending. As measured, or as estimated."""
    measured = profile.talks.get(str(compressor))
    talk = steps(compressor, layer, profile.world)
    if measured is not None and len(measured) == len(talk) // 2 + 1:
        return [line.seconds(layer.numel) for line in measured]
    return [profile.arithmetic.seconds(work) for work in talk[::2] if isinstance(work, Work)]


def loads(profile: Profile, chosen: Sequence[Compressor], waits: Collection[str] = ()) -> list[Load]:
    """The plan's buckets, as lanes carry them; a plan that sends all as it is leaves DDP its own."""
    layers = profile.trace.layers
    groups = buckets(layers, WHOLE if all(compressor.lossless for compressor in chosen) else None)
    made = []
    for group in together(groups, layers, waits):
        members = [(layers[i], chosen[i]) for i in group]
        made.append(load(profile, members, profile.trace.ready[group[-1]]))
    return made


def load(profile: Profile, members: Sequence[tuple[Layer, Compressor]], ready: float) -> Load:
    """One bucket: layers that are sent as they are share a conversation, messages of a round share collectives."""
    works: list[float] = []
    sends: list[Parcels] = []
    ending = 0.0
    inline = all(compressor.lossless for _, compressor in members)
    for layer, compressor in _joined(members):
        *before, last = parts(profile, layer, compressor)
        ending += last
        for depth, (seconds, leg) in enumerate(zip(before, compressor.legs(layer, profile.world), strict=True)):
            if depth == len(works):
                works.append(0.0)
                sends.append({})
            works[depth] += seconds
            key = (leg.op, leg.scope, leg.dtype)
            sends[depth][key] = sends[depth].get(key, 0) + leg.numel * leg.dtype.itemsize
    rounds = tuple(
        Round(work, tuple(send(profile, op, scope, nbytes) for (op, scope, _), nbytes in parcels.items()))
        for work, parcels in zip(works, (carried(each, profile) for each in sends), strict=True)
    )
    return Load(ready, rounds, ending, inline)


def carried(parcels: Parcels, profile: Profile) -> Parcels:
    """The collectives of a round: between two ranks, small sums go with codes (runtime/packing.py)."""
    made = dict(parcels)
    for scope, size in profile.world.sizes.items():
        codes, sums = (Op.GATHER, scope, torch.uint8), (Op.SUM, scope, torch.float32)
        if size == 2 and made.get(codes) and 0 < made.get(sums, 0) <= ALONG:
            made[codes] += made.pop(sums)
    return made


def _joined(members: Sequence[tuple[Layer, Compressor]]) -> list[tuple[Layer, Compressor]]:
    """Neighbours that are sent as they are as one layer: they hold one conversation."""
    made: list[tuple[Layer, Compressor]] = []
    for layer, compressor in members:
        if made and compressor.lossless and made[-1][1] == compressor and made[-1][0].dtype == layer.dtype:
            before = made[-1][0]
            made[-1] = (Layer(before.name, (before.numel + layer.numel,), layer.dtype), compressor)
        else:
            made.append((layer, compressor))
    return made


def send(profile: Profile, op: Op, scope: Scope, nbytes: float) -> Send:
    """One collective on an idle link."""
    latency = collective_seconds(profile.links, op, scope, 0)
    seconds = collective_seconds(profile.links, op, scope, nbytes) - latency
    link = resource(profile, scope)
    sent = wire_bytes(op, int(nbytes), profile.world.sizes[scope])
    return Send(link, latency, seconds, profile.handling * sent if link == INTER else 0.0)


def price(profile: Profile, layer: Layer, compressor: Compressor, commit: str = "bucket") -> Talk:
    """One layer's conversation."""
    return price_together(profile, [(layer, compressor)], commit)


def price_together(profile: Profile, members: Sequence[tuple[Layer, Compressor]], commit: str = "bucket") -> Talk:
    """A bucket's conversation: the messages of one (round, op, scope, dtype) share a collective.

    Collectives of one round go one after the other, as if they shared a link.
    """
    device, host, rounds = [0.0], [0.0], []
    last_device, last_host = 0.0, 0.0
    talks = [steps(compressor, layer, profile.world) for layer, compressor in members]
    for depth in range(max(len(talk) for talk in talks) // 2):
        parcels: Parcels = {}
        for talk in talks:
            if 2 * depth + 1 < len(talk):
                leg = talk[2 * depth + 1]
                assert isinstance(leg, Leg)
                key = (leg.op, leg.scope, leg.dtype)
                parcels[key] = parcels.get(key, 0) + leg.numel * leg.dtype.itemsize
        rounds.append(parcels)
        device.append(0.0)
        host.append(0.0)
    for (layer, compressor), talk in zip(members, talks, strict=True):
        for depth, (work, seconds) in enumerate(zip(talk[::2], parts(profile, layer, compressor), strict=True)):
            assert isinstance(work, Work)
            last = 2 * depth + 1 == len(talk)
            if last and work.on_host:
                last_host += seconds
            elif last:
                last_device += seconds
            else:
                (host if work.on_host else device)[depth] += seconds
    made: list[tuple[int, float]] = []
    for depth, parcels in enumerate(rounds):
        if depth:
            made.append((SIDE, device[depth]))
        made.append((HOST, host[depth]))
        for (op, scope, _), nbytes in carried(parcels, profile).items():
            made.append((resource(profile, scope), collective_seconds(profile.links, op, scope, nbytes)))
    if commit == "bucket":
        made += [(SIDE, last_device), (HOST, last_host)]
    settle = last_device + last_host if commit == "step" else 0.0
    return Talk(device[0], tuple(step for step in made if step[1] > 0), settle)


def resource(profile: Profile, scope: Scope) -> int:
    """The link that a scope uses: whatever leaves the machine uses the one between machines."""
    alone = profile.world.size == profile.world.node_size
    return NODE if scope is Scope.NODE or alone else INTER
