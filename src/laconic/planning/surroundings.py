"""What a run finds where it starts, and what its first steps add: enough to simulate the next ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from laconic.exchange import Op, wire_bytes
from laconic.layer import Layer
from laconic.planning.buckets import FEWEST, WAKING
from laconic.planning.link import Curves, collective_seconds
from laconic.planning.profile import Profile, Talks, Trace
from laconic.stats import BucketTrace, Sounding, StepTrace, Transfer
from laconic.world import Scope, World

STARTING = 1.5e-3  # seconds: packing, gloo's threads, ours and their waking, on caches that backward has filled
SMALL = 1 << 16  # bytes: what shorter messages take says little about the link's rate
STRAY = 2e-3  # seconds: what cores that are busy with the forward pass may add to a message, or to a shorter one


@dataclass(frozen=True)
class Surroundings:
    """Links and arithmetic, as every rank measured them together before the first step."""

    world: World
    links: Curves
    talks: Talks = field(default_factory=dict)  # arithmetic of each expression's conversation
    cores: float = 1.0  # that one rank has for backward pass and arithmetic together
    handling: float = 0.0  # a core's seconds for every byte sent
    device: str = "cpu"
    dear: float = 1.0  # how many times as long arithmetic takes in a step as it took rehearsed

    @property
    def starting(self) -> float:
        """A core's seconds for a collective, whatever its size."""
        return self.dear * STARTING if self.device == "cpu" else 0.0

    def dearer(self, times: float) -> "Surroundings":
        """The same with arithmetic that takes so many times as long: in a step, caches are not warm."""
        talks = {name: tuple(line.longer(times) for line in parts) for name, parts in self.talks.items()}
        return replace(self, talks=talks, dear=times * self.dear)

    def dense_seconds(self, layers: Sequence[Layer]) -> float:
        """What the link takes to add up all gradients as they are, in one message."""
        return collective_seconds(self.links, Op.SUM, Scope.WORLD, sum(layer.nbytes for layer in layers))

    def worth_cutting(self, layers: Sequence[Layer]) -> bool:
        """Whether smaller buckets pay: a piece takes longer on the link than it costs to wake up for it."""
        return self.dense_seconds(layers) > FEWEST * WAKING

    def slower(self, times: float) -> "Surroundings":
        """The same with links that take so many times as long for a byte; those inside a machine stay as they are."""
        links = {
            (op, scope): tuple(line.slower(times) for line in lines) if self.leaves(scope) else lines
            for (op, scope), lines in self.links.items()
        }
        return replace(self, links=links)

    def leaves(self, scope: Scope) -> bool:
        """Whether messages of this scope go between machines, where there are several."""
        return scope is not Scope.NODE or self.world.node_size == self.world.size


@dataclass(frozen=True)
class Cadence:
    """The step as it runs, without the exchange: which layers share a bucket and when each bucket is ready.

    `ready` counts from the start of the forward pass and is what it would be if nothing were exchanged; `tail` is the
    shortest time from the last mean to the next forward pass.
    """

    groups: tuple[tuple[str, ...], ...]
    ready: tuple[float, ...]
    tail: float

    @staticmethod
    def of(steps: Sequence[StepTrace], around: Surroundings) -> "Cadence | None":
        """From traced steps, of those that have the buckets of the last; None where there are none.

        Told is a quick step, the lower quartile: neighbours on the machine make steps longer, never shorter.
        """
        traced = [step for step in steps if step.buckets]
        if not traced:
            return None
        groups = tuple(bucket.names for bucket in traced[-1].buckets)
        alike = [step for step in traced if tuple(bucket.names for bucket in step.buckets) == groups]
        told = [sorted(_ready(step, index, around) for step in alike) for index in range(len(groups))]
        ready = [times[(len(times) - 1) // 4] for times in told]
        for index in range(1, len(ready)):
            ready[index] = max(ready[index], ready[index - 1])
        return Cadence(groups, tuple(ready), min(step.tail for step in alike))

    def profile(self, layers: Sequence[Layer], around: Surroundings) -> Profile:
        """A profile whose layers are ready when their bucket is, in the order of buckets."""
        named = {layer.name: layer for layer in layers}
        order = [(named[name], ready) for names, ready in zip(self.groups, self.ready, strict=True) for name in names]
        order = [(layer, ready) for layer, ready in order if layer.numel]
        trace = Trace(tuple(layer for layer, _ in order), tuple(ready for _, ready in order), after=self.tail)
        return Profile(
            "this run", around.world, trace, around.links, around.device,
            talks=around.talks, cores=around.cores, handling=around.handling,
        )  # fmt: skip


def _ready(step: StepTrace, index: int, around: Surroundings) -> float:
    """When a bucket would be ready, had nothing been exchanged before.

    On one core, a backward pass that shares it with encoding is held up by half of the time that they share, and by all
    that starting a collective and handling its bytes take of the core; by no more than half of the time in all.
    """
    at = step.buckets[index].ready
    held = 0.0
    for bucket in step.buckets:
        held += sum(max(0.0, min(stop, at) - start) for start, stop in bucket.arithmetic) / 2
        held += sum(_handled(transfer, at, around) for transfer in bucket.transfers)
    shared = min(1.0, max(0.0, 2 - around.cores))  # with two cores neither waits for the other
    return max(0.0, at - step.began - shared * min(held, (at - step.buckets[0].ready) / 2))


def _handled(transfer: Transfer, at: float, around: Surroundings) -> float:
    """A core's seconds that a collective took before some time."""
    if transfer.began >= at:
        return 0.0
    gone = min(1.0, (at - transfer.began) / max(1e-9, transfer.ended - transfer.began))
    sent = wire_bytes(transfer.op, transfer.nbytes, around.world.sizes[transfer.scope])
    return around.starting + gone * around.handling * sent * around.leaves(transfer.scope)


def slowdown(steps: Sequence[StepTrace], around: Surroundings) -> float | None:
    """How many times as long the links between machines take for a byte as they did; None where no message was long
    enough to tell.

    A collective that started while another was under way is counted from that one's end. A sum takes at least what its
    bytes take, so that of several steps the quickest counts: in others this rank waited for one that was late. With a
    gather, which ends at once where this rank is the late one and finds everything there, the median does.
    """
    seen: dict[tuple[int, int, Op, Scope, int], list[float]] = {}
    for step in steps:
        free = 0.0
        queue = sorted(
            ((index, place, transfer) for index, bucket in enumerate(step.buckets)
             for place, transfer in enumerate(_telling(bucket, around))),
            key=lambda entry: entry[2].ended,
        )  # fmt: skip
        for index, place, transfer in queue:
            seconds = transfer.ended - max(transfer.began, free)
            free = transfer.ended
            key = (index, place, transfer.op, transfer.scope, transfer.nbytes)
            seen.setdefault(key, []).append(seconds)
    if not seen:
        return None
    taken = expected = 0.0
    for (_, _, op, scope, nbytes), times in seen.items():
        latency = collective_seconds(around.links, op, scope, 0)
        typical = min(times) if op in (Op.SUM, Op.MAX) else median(times)
        taken += max(0.0, typical - latency)
        expected += collective_seconds(around.links, op, scope, nbytes) - latency
    return taken / expected if expected > 0 else None


def bounded(slow: float, sounding: Sounding, around: Surroundings) -> float | None:
    """How much slower the link is, going by the messages of steps, as far as a sounding bears it out; None without one.

    A sounding's longest message, less its shortest, against the same in the survey.
    """
    if len(sounding) < 2:
        return None
    (short, least), *_, (long, most) = sounding
    gather = partial(collective_seconds, around.links, Op.GATHER, Scope.WORLD)
    surveyed = gather(long) - gather(short)
    if surveyed <= 0:
        return None
    return max(0.0, most - least - STRAY, min(slow * surveyed, most - least + STRAY)) / surveyed


def _telling(bucket: BucketTrace, around: Surroundings) -> list[Transfer]:
    return [transfer for transfer in bucket.transfers if transfer.nbytes >= SMALL and around.leaves(transfer.scope)]
