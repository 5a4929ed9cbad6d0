"""Where a step's means and replies wait: the same bits wherever it is, and no more memory than is said."""

import threading
from contextlib import nullcontext
from time import monotonic

import pytest
import torch
from torch import Tensor

from laconic import Cast, Compressor, Divided, Hierarchical, Plan, PowerSGD, Quantize, RandomK, TopK
from laconic.comm.loopback import Loopback
from laconic.layer import Layer
from laconic.runtime.buffers import GRAIN, Arena, Window
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import Stream
from tests.engine.fleet import Fleet, Gradients, Recording, same_bits, same_ledgers
from tests.engine.model import BUCKETS, LAYERS, MIXED, OTHER
from tests.engine.test_order import Enqueueing

NUMEL = 16 * GRAIN
COMPRESSORS = [
    Cast(), Quantize(bits=4), Divided(Quantize(bits=4)), Divided(Cast()), TopK(density=0.01), RandomK(density=0.1),
    Hierarchical(Quantize(bits=8), Quantize(bits=4)), PowerSGD(rank=2),
]  # fmt: skip


def story(fleet: Fleet) -> tuple[list[list[Gradients]], list[dict[str, dict[str, Tensor]]]]:
    """Good steps and bad ones, under two plans."""
    seen = []
    for step in range(8):
        gradients = fleet.gradients(step)
        if step in (2, 5):
            gradients[1]["c.weight" if step == 2 else "stem.bias"].view(-1)[0] = torch.inf
        if step == 4:
            fleet.adopt(OTHER)
        seen.append(fleet.step(gradients, BUCKETS))
    return seen, fleet.ledgers()


def assert_same(one: Fleet, other: Fleet) -> None:
    (ours, mine), (theirs, yours) = story(one), story(other)
    for step, (means, same) in enumerate(zip(ours, theirs, strict=True)):
        for a, b in zip(means, same, strict=True):
            assert all(same_bits(a[name], b[name]) for name in one.layers), step
    assert same_ledgers(mine, yours)


@pytest.mark.parametrize("size", [2, 3])
def test_means_that_wait_elsewhere_are_the_same_means(size: int) -> None:
    with Fleet(LAYERS, MIXED, size) as plain, Fleet(LAYERS, MIXED, size, twins=True) as twinned:
        assert_same(plain, twinned)


@pytest.mark.parametrize("twins", [False, True])
def test_nothing_is_read_after_it_was_given_back(monkeypatch: pytest.MonkeyPatch, twins: bool) -> None:
    with Fleet(LAYERS, MIXED, 4, 2) as plain, Fleet(LAYERS, MIXED, 4, 2, twins=twins) as poisoned:
        give, theirs = Arena.give, [engine._arena for engine in poisoned.engines]

        def give_rubbish(arena: Arena, buffer: Tensor) -> None:
            if arena in theirs:
                buffer.fill_(0xFF)
            give(arena, buffer)

        monkeypatch.setattr(Arena, "give", give_rubbish)
        assert_same(plain, poisoned)


def test_what_is_left_keeps_the_memory_that_it_lies_in_unless_somebody_else_looks_at_it() -> None:
    """No copy: the gradient, which is about to be overwritten, has the old residual's memory in exchange."""
    layer = Layer("w", (16, NUMEL // 16))
    engine = Engine([layer], Loopback.ranks(1)[0], Stream(nullcontext))
    engine.adopt(Plan({"w": Quantize(bits=4)}))
    account, rng = engine.ledger.accounts["w"], torch.Generator().manual_seed(0)
    kept = []
    for step in range(4):
        twin = torch.randn(layer.shape, generator=rng)
        gradient = twin.flatten().clone()
        at = twin.data_ptr()
        seen = twin.view(-1) if step == 2 else None
        engine.reduce({"w": gradient}, gradient, twins={"w": twin}.get)
        assert account.residual is not None
        assert twin.shape == layer.shape
        assert twin.data_ptr() != account.residual.data_ptr()
        kept.append(account.residual.data_ptr() == at)
        if seen is not None:
            assert seen.data_ptr() == twin.data_ptr() == at
    assert kept == [False, True, False, True], "the first one has nothing to give in exchange"


def buffer_bytes(compressor: Compressor, buckets: int, twins: bool, size: int = 1) -> int:
    """What an engine holds after some steps, if each bucket arrives before the next is sent."""
    layers = [Layer(f"{index}.weight", (16, NUMEL // 16)) for index in range(buckets)]
    comm = Loopback.ranks(1)[0] if size == 1 else Enqueueing(0, size)
    engine = Engine(layers, comm, Stream(nullcontext))
    engine.adopt(Plan({layer.name: compressor for layer in layers}))
    rng = torch.Generator().manual_seed(0)
    for _ in range(4):
        for layer in layers:
            gradient = torch.randn(NUMEL, generator=rng)
            engine.reduce(
                {layer.name: gradient}, gradient, last=layer is layers[-1],
                twins={layer.name: gradient.clone()}.get if twins else None,
            )  # fmt: skip
    assert engine.observer.steps == 4
    return engine.stats().buffer_bytes


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_with_copies_to_work_on_buffers_do_not_grow_with_the_number_of_buckets(compressor: Compressor) -> None:
    assert buffer_bytes(compressor, 9, twins=True) == buffer_bytes(compressor, 2, twins=True)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_without_it_a_bucket_holds_its_last_replies_and_nothing_else(compressor: Compressor) -> None:
    (leg, *_) = reversed(compressor.legs(Layer("", (16, NUMEL // 16)), Loopback.ranks(1)[0].world))
    more = buffer_bytes(compressor, 9, twins=False) - buffer_bytes(compressor, 2, twins=False)
    rider = 2 * GRAIN  # which travels with the first round, and what rounding up may add
    aside = NUMEL // 10 * 4 + GRAIN if isinstance(compressor, RandomK) else 0  # the indices
    assert more <= 7 * (leg.numel * leg.dtype.itemsize + rider + aside)


def test_in_a_large_world_the_mean_is_held_in_place_of_many_replies() -> None:
    """16 ranks send 16 codes of 4 bits, twice the gradient: less than one gradient is held for each bucket."""
    more = buffer_bytes(Quantize(bits=4), 9, twins=False, size=16) - buffer_bytes(Quantize(bits=4), 2, False, size=16)
    assert 0 < more <= 7 * (4 * NUMEL + GRAIN)


def test_a_third_bucket_waits_until_one_of_two_has_arrived() -> None:
    window, entered = Window(), threading.Event()
    window.enter(10)
    window.enter(10)

    def third() -> None:
        window.enter(10)
        entered.set()

    waiting = threading.Thread(target=third, daemon=True)
    waiting.start()
    assert not entered.wait(0.1)
    window.leave(10)
    assert entered.wait(10)


def test_small_buckets_share_the_room_of_a_large_one_and_a_larger_one_enters_alone() -> None:
    window, entered = Window(), threading.Event()
    window.enter(10)
    for _ in range(10):
        window.enter(1)  # does not wait

    def large() -> None:
        window.enter(25)
        entered.set()

    waiting = threading.Thread(target=large, daemon=True)
    waiting.start()
    assert entered.wait(10), "the largest counts itself: 20 inside, and room for 50"
    window.leave(25)
    window.leave(10)


def test_a_rank_that_runs_ahead_encodes_two_buckets_and_no_more() -> None:
    """Rank 1 sends nothing until rank 0 can do no more."""
    layers = [Layer(f"{index}.weight", (16, NUMEL // 16)) for index in range(8)]
    comms = [Recording(comm) for comm in Loopback.ranks(2)]
    with Fleet(layers, Plan({"*": Quantize(bits=4)}), comms=comms) as fleet:
        gradients = fleet.gradients(0)

        def send(engine: Engine, own: Gradients) -> list["torch.futures.Future[Tensor]"]:
            return [
                engine.reduce({layer.name: own[layer.name].flatten()}, own[layer.name], last=layer is layers[-1])
                for layer in layers
            ]

        futures = send(fleet.engines[0], gradients[0])
        end = monotonic() + 10
        while len(comms[0].started) < 2 and monotonic() < end:
            threading.Event().wait(0.01)
        threading.Event().wait(0.05)  # for a third, which must not come
        assert len(comms[0].started) == 2
        torch.futures.wait_all(futures + send(fleet.engines[1], gradients[1]))
        assert len(comms[0].started) == len(layers)
