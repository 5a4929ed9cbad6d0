"""From expressions to seconds: what a plan's conversations cost under a profile, one by one or fused into buckets."""

from collections.abc import Mapping, Sequence

import torch

from laconic.compressors.dense import Dense
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor, Leg, Op
from laconic.layer import Layer
from laconic.planning.costs import Work, steps
from laconic.planning.link import collective_seconds
from laconic.planning.profile import Profile
from laconic.planning.timeline import HOST, INTER, NODE, SIDE, Talk, Timeline, play
from laconic.world import Scope

FUSIONS = ("tensor", "bucket")
COMMITS = ("step", "bucket")
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # DDP's own sizes, in bytes


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
        return play(profile.trace.ready, talks, profile.trace.forward)
    groups = buckets(layers)
    ready = [profile.trace.ready[group[-1]] for group in groups]
    talks = [price_together(profile, [(layers[i], chosen[i]) for i in group], commit) for group in groups]
    return play(ready, talks, profile.trace.forward)


def price(profile: Profile, layer: Layer, compressor: Compressor, commit: str = "bucket") -> Talk:
    """One layer's conversation."""
    return price_together(profile, [(layer, compressor)], commit)


def price_together(profile: Profile, members: Sequence[tuple[Layer, Compressor]], commit: str = "bucket") -> Talk:
    """A bucket's conversation: the messages of one (round, op, scope, dtype) share a collective.

    Collectives of one round go one after the other, as if they shared a link.
    """
    arithmetic = profile.arithmetic
    device, host, rounds = [0.0], [0.0], []
    last_device, last_host = 0.0, 0.0
    talks = [steps(compressor, layer, profile.world) for layer, compressor in members]
    for depth in range(max(len(talk) for talk in talks) // 2):
        parcels: dict[tuple[Op, Scope, torch.dtype], int] = {}
        for talk in talks:
            if 2 * depth + 1 < len(talk):
                leg = talk[2 * depth + 1]
                assert isinstance(leg, Leg)
                key = (leg.op, leg.scope, leg.dtype)
                parcels[key] = parcels.get(key, 0) + leg.numel * leg.dtype.itemsize
        rounds.append(parcels)
        device.append(0.0)
        host.append(0.0)
    for talk in talks:
        for depth, work in enumerate(talk[::2]):
            assert isinstance(work, Work)
            seconds = arithmetic.seconds(work)
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
        for (op, scope, _), nbytes in parcels.items():
            made.append((resource(profile, scope), collective_seconds(profile.links, op, scope, nbytes)))
    if commit == "bucket":
        made += [(SIDE, last_device), (HOST, last_host)]
    settle = last_device + last_host if commit == "step" else 0.0
    return Talk(device[0], tuple(step for step in made if step[1] > 0), settle)


def resource(profile: Profile, scope: Scope) -> int:
    """The link that a scope uses: whatever leaves the machine uses the one between machines."""
    alone = profile.world.size == profile.world.node_size
    return NODE if scope is Scope.NODE or alone else INTER


def buckets(layers: Sequence[Layer]) -> list[list[int]]:
    """How DDP groups layers, in the order of ready: a bucket closes when it has reached its size, the first early."""
    groups: list[list[int]] = [[]]
    size, limit = 0, FIRST_BUCKET
    for index, layer in enumerate(layers):
        groups[-1].append(index)
        size += layer.nbytes
        if size >= limit and index + 1 < len(layers):
            groups.append([])
            size, limit = 0, BUCKET
    return groups
