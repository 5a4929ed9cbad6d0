"""Buckets that are known by heart: what travels, arrives and is left is what it would be if each step made it up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from laconic import Dense, Plan, PowerSGD, Quantize, Ternary, TopK, kernels
from laconic.comm.loopback import Loopback
from laconic.layer import Layer
from laconic.runtime import by_heart, engine
from tests.engine.fleet import Fleet, Gradients, Recording, same_bits, same_ledgers
from tests.engine.test_failure import outcome

pytestmark = pytest.mark.skipif(kernels.lines() is None, reason="compiled kernels are not installed")

LAYERS = (
    Layer("a.weight", (40, 64)), Layer("a.bias", (40,)), Layer("b.weight", (64, 40)), Layer("b.bias", (7,)),
    Layer("c.weight", (33, 96)), Layer("c.bias", (33,)), Layer("c.scale", ()),
)  # fmt: skip
BUCKETS = (("c.scale", "c.bias", "c.weight"), ("b.bias", "b.weight", "a.bias", "a.weight"))
WEIGHTS = ("a.weight", "b.weight", "c.weight")
PLANS = {
    "2 bits": Plan(dict.fromkeys(WEIGHTS, Quantize(bits=2))),
    "1 bit": Plan(dict.fromkeys(WEIGHTS, Quantize(bits=1, bucket=64))),
    "norms": Plan(dict.fromkeys(WEIGHTS, Quantize(bits=4, scaling="l2"))),
    "ternary": Plan(dict.fromkeys(WEIGHTS, Ternary(bits=1.0, bucket=128))),
    "rank, 8 bits": Plan(dict.fromkeys(WEIGHTS, PowerSGD(rank=4, dtype="int8"))),
    "rank, 3 bits": Plan(dict.fromkeys(WEIGHTS, PowerSGD(rank=5, dtype="int3"))),
    "rank, bf16": Plan(dict.fromkeys(WEIGHTS, PowerSGD(rank=4, dtype="bf16"))),
    "rank, fp32": Plan(dict.fromkeys(WEIGHTS, PowerSGD(rank=3))),
    "short ones too": Plan({"*.weight": PowerSGD(rank=4, dtype="int8"), "*": Quantize(bits=8)}),
    "kinds": Plan({"a.weight": Quantize(bits=2), "b.weight": PowerSGD(rank=4, dtype="int8"), "c.weight": Quantize()}),
    "kinds that are added up": Plan({"a.weight": PowerSGD(rank=2), "b.weight": Quantize(), "c.weight": PowerSGD(4)}),
    "waiting": Plan(dict.fromkeys(WEIGHTS, Quantize(bits=2)), waits=["c.weight"]),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


@contextmanager
def made_up(*which: int) -> Iterator[None]:
    """In which the engines of these ranks, or all, learn nothing by heart."""

    def learn(segments: Any, slices: Any, ledger: Any, world: Any) -> Any:
        return None if not which or world.rank in which else by_heart.learn(segments, slices, ledger, world)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "learn", learn)
        yield


def spoilt(fleet: Fleet, step: int) -> list[Gradients]:
    gradients = fleet.gradients(step)
    if step in (3, 6):
        gradients[1]["b.weight" if step == 3 else "c.bias"].view(-1)[5] = torch.inf
    return gradients


def played(fleet: Fleet, steps: int = 14) -> list[list[Gradients]]:
    """Good steps and spoilt ones; more than observations are apart."""
    return [fleet.step(spoilt(fleet, step), BUCKETS) for step in range(steps)]


def assert_alike(one: Fleet, other: Fleet, ours: list[list[Gradients]], theirs: list[list[Gradients]]) -> None:
    for step, (means, same) in enumerate(zip(ours, theirs, strict=True)):
        for a, b in zip(means, same, strict=True):
            assert all(same_bits(a[name], b[name]) for name in one.layers), step
    assert same_ledgers(one.ledgers(), other.ledgers())
    for mine, yours in zip(one.engines, other.engines, strict=True):
        a, b = mine.stats(), yours.stats()
        assert (a.steps, a.skipped, a.wire_bytes) == (b.steps, b.skipped, b.wire_bytes)
        for name in one.layers:
            assert a.layers[name] == b.layers[name], name


@every_plan
@pytest.mark.parametrize(("size", "node"), [(2, 1), (3, 1), (4, 2)])
def test_the_same_bits_travel_arrive_and_are_left(plan: Plan, size: int, node: int) -> None:
    comms = [[Recording(comm) for comm in Loopback.ranks(size, node)] for _ in range(2)]
    with (
        Fleet(LAYERS, plan, comms=comms[0], twins=True) as known,
        Fleet(LAYERS, plan, comms=comms[1], twins=True) as free,
    ):
        with made_up():
            theirs = played(free)
        ours = played(known)
        assert_alike(known, free, ours, theirs)
        for one, other in zip(*comms, strict=True):
            assert [one.lane(lane) for lane in range(2)] == [other.lane(lane) for lane in range(2)]


@every_plan
def test_one_rank_may_know_it_while_another_makes_it_up(plan: Plan) -> None:
    with Fleet(LAYERS, plan, 2, twins=True) as mixed, Fleet(LAYERS, plan, 2, twins=True) as free:
        with made_up():
            theirs = played(free)
        with made_up(1):
            ours = played(mixed)
        assert_alike(mixed, free, ours, theirs)


@every_plan
def test_plans_are_known_by_heart(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps but the first, which has no residuals, and those that tell what was observed."""
    sent: list[int] = []
    send = by_heart.ByHeart._send

    def noted(bucket: by_heart.ByHeart, stage: int) -> None:
        send(bucket, stage)
        if stage == 0:
            sent.append(int(bucket._score is not None))

    monkeypatch.setattr(by_heart.ByHeart, "_send", noted)
    with Fleet(LAYERS, plan, 3, twins=True) as fleet:
        for step in range(5):
            fleet.step(fleet.gradients(step), BUCKETS)
    buckets = 3 * (1 if plan.waits else 2)
    assert sum(sent) == buckets * 3, "not the first, and not the second, which tells what the first observed"


def test_what_is_left_is_worked_out_while_the_second_factor_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    from laconic.kernels.native_lines import LowRank

    here, on_its_way = threading.local(), []  # a stage's thread: what it started since it made the second message
    answer, leave, start = LowRank.answer, LowRank.leave, Recording.start

    def answering(lines: LowRank, *what: Any) -> None:
        answer(lines, *what)
        here.started = 0

    def starting(comm: Recording, *what: Any) -> Any:
        here.started = getattr(here, "started", 0) + 1
        return start(comm, *what)

    def leaving(lines: LowRank) -> None:
        on_its_way.append(here.started)
        leave(lines)

    for name, noting in (("answer", answering), ("leave", leaving)):
        monkeypatch.setattr(LowRank, name, noting)
    monkeypatch.setattr(Recording, "start", starting)
    with Fleet(
        LAYERS, PLANS["rank, 3 bits"], comms=[Recording(comm) for comm in Loopback.ranks(2)], twins=True
    ) as fleet:
        played(fleet, 4)
    assert on_its_way
    assert all(on_its_way)


def test_what_says_more_in_one_step_than_in_another_is_not() -> None:
    layers = LAYERS[:2]
    slices = {layer.name: torch.zeros(layer.numel) for layer in layers}
    with Fleet(layers, Plan({"a.weight": TopK(density=0.1)}), 2) as fleet:
        one = fleet.engines[0]
        assert by_heart.learn(one._segments(slices), slices, one.ledger, one.comm.world) is None
        fleet.adopt(Plan({"a.weight": Quantize(stochastic=True)}))
        assert by_heart.learn(one._segments(slices), slices, one.ledger, one.comm.world) is None
        fleet.adopt(Plan({"a.weight": Quantize()}))
        assert by_heart.learn(one._segments(slices), slices, one.ledger, one.comm.world) is not None


def test_plans_and_places_may_change() -> None:
    names = list(PLANS)
    with Fleet(LAYERS, PLANS["2 bits"], 2, twins=True) as known, Fleet(LAYERS, PLANS["2 bits"], 2) as plain:
        for step in range(3 * len(names)):
            if step % 3 == 0:
                plan = Plan({}) if step == 12 else PLANS[names[step // 3]]
                known.adopt(plan)
                plain.adopt(plan)
            gradients = known.gradients(step)
            buckets = BUCKETS if step % 2 else (tuple(name for names in BUCKETS for name in names),)
            ours, theirs = known.step(gradients, buckets), plain.step(gradients, buckets)
            for a, b in zip(ours, theirs, strict=True):
                assert all(same_bits(a[name], b[name]) for name in known.layers), step
        assert same_ledgers(known.ledgers(), plain.ledgers())


@every_plan
def test_a_bucket_that_stays_where_it_is_is_learnt_once(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DDP's do: the same memory in every step."""
    learnt: list[int] = []

    def learn(*what: Any) -> Any:
        learnt.append(1)
        return by_heart.learn(*what)

    monkeypatch.setattr(engine, "learn", learn)
    with Fleet(LAYERS, plan, 2, twins=True) as stays, Fleet(LAYERS, plan, 2) as plain:
        memory = []
        for own in stays.gradients(0):
            memory.append([torch.cat([own[name].flatten() for name in names]) for names in BUCKETS])
        cuts = [
            [
                dict(zip(names, buffer.split([stays.layers[name].numel for name in names]), strict=True))
                for names, buffer in zip(BUCKETS, own, strict=True)
            ]
            for own in memory
        ]
        for step in range(6):
            gradients, futures = spoilt(stays, step), []
            for one, own, mine, grads in zip(stays.engines, memory, cuts, gradients, strict=True):
                for index, (buffer, cut) in enumerate(zip(own, mine, strict=True)):
                    twins = {name: grads[name].clone() for name in cut}
                    for name, place in cut.items():
                        place.copy_(grads[name].flatten())
                    futures.append(one.reduce(cut, buffer, last=index == 1, twins=twins.get))
            torch.futures.wait_all(futures)
            theirs = plain.step(spoilt(plain, step), BUCKETS)
            for mine, means in zip(cuts, theirs, strict=True):
                every: Gradients = {name: place for cut in mine for name, place in cut.items()}
                assert all(same_bits(every[name], means[name]) for name in every), step
        assert same_ledgers(stays.ledgers(), plain.ledgers())
        assert len(learnt) == 2 * (1 if plan.waits else 2)


def test_a_payload_that_nobody_can_have_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with Fleet(LAYERS[:2], Plan({"a.weight": Quantize()}), 2, twins=True) as fleet:
        names = [[layer.name for layer in LAYERS[:2]]]
        for step in range(2):
            fleet.step(fleet.gradients(step), names)
        receive = by_heart.ByHeart._receive

        def garbled(bucket: by_heart.ByHeart) -> None:
            receive(bucket)
            if bucket._score is not None and bucket._sent:
                bucket._sent[0].result[1, :4] = torch.tensor([0, 0, 0xC0, 0x7F], dtype=torch.uint8)  # NaN

        monkeypatch.setattr(by_heart.ByHeart, "_receive", garbled)
        futures, _ = fleet.start(fleet.gradients(2), names)
        told = [outcome(future) for waiting in futures for future in waiting]
        assert all("can not have been sent" in error for error in told)


def test_what_is_observed_is_told_by_the_layer_that_it_is_of() -> None:
    """Layers of one compressor share a conversation, so that those of a bucket may speak in another order."""
    alone = Plan(dict.fromkeys(WEIGHTS, Quantize(bits=2)))
    mixed = Plan({**alone, "b.weight": PowerSGD(rank=4)})
    names = (("c.weight", "b.weight", "a.weight"),)
    layers = [layer for layer in LAYERS if layer.name in WEIGHTS]
    with Fleet(layers, mixed, 2, twins=True) as fleet, Fleet(layers, alone, 2, twins=True) as other:
        for one in (fleet, other):
            for step in range(2):
                gradients = one.gradients(step)
                for own in gradients:
                    own["b.weight"] *= 100
                one.step(gradients, names)
        told = [one.engines[0].observer.energies for one in (fleet, other)]
        for name in WEIGHTS:
            assert told[0][name][0] == pytest.approx(told[1][name][0], rel=1e-6), "the gradients are the same"


def test_dense_layers_that_are_long_are_sent_from_where_they_lie() -> None:
    layers = [Layer("w", (40, 64)), Layer("long", (1 << 15,))]
    slices: dict[str, Tensor] = {layer.name: torch.zeros(layer.numel) for layer in layers}
    with Fleet(layers, Plan({"w": Quantize(), "long": Dense()}), 2) as fleet:
        one = fleet.engines[0]
        assert by_heart.learn(one._segments(slices), slices, one.ledger, one.comm.world) is None
