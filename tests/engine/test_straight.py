"""Steps that go straight through: the order of their sums, what ends them, and who finds them in the books."""

import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from laconic import Dense, ExchangeFailed, Plan, TopK
from laconic.exchange import Op
from laconic.layer import Layer
from laconic.runtime.engine import Engine
from laconic.runtime.observer import EVERY, StepTally
from laconic.runtime.rounds import Lanes
from laconic.world import Scope, World

LAYERS = (Layer("a", (8, 8)), Layer("b", (4,)), Layer("c", (8, 4)))
BUCKETS = (("c", "b"), ("a",))


class Sum:
    """A sum under way; the test says when and how it ends."""

    def __init__(self, comm: "Held", data: Tensor, lane: int) -> None:
        self.data, self.lane = data, lane
        self._comm, self._future = comm, torch.futures.Future[object]()

    def arrive(self) -> None:
        self.data.mul_(self._comm.world.size)  # as if all ranks had sent the same
        self._future.set_result([self.data])

    def fail(self) -> None:
        self._future.set_exception(RuntimeError("connection reset by peer"))  # type: ignore[arg-type]

    def wait(self) -> Tensor:
        if not self._future.done():
            self.arrive()
        return self.data

    def future(self) -> "torch.futures.Future[object]":
        return self._future


class Held:
    """A comm like gloo's whose collectives end when the test says so, or when somebody waits."""

    futures = True

    def __init__(self) -> None:
        self.world, self.lanes = World(0, 2), 2
        self.started: list[Sum] = []
        self.broken = False

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> Sum:
        if self.broken:
            raise RuntimeError("no route to host")
        if result is not None and op is Op.GATHER:
            result.copy_(data.expand_as(result))
            made = Sum(self, result.div_(1) if result.is_floating_point() else result, lane)
            made.arrive = lambda: None  # type: ignore[method-assign]  # both ranks sent the same
        else:
            made = Sum(self, data, lane)
        self.started.append(made)
        return made

    def broadcast(self, data: Tensor) -> Tensor:
        return data

    def gather(self, data: Tensor) -> Tensor:
        return data.repeat(2, 1)

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def comm() -> Held:
    return Held()


@pytest.fixture
def engine(comm: Held) -> Iterator[Engine]:
    made = Engine(LAYERS, comm, Lanes("test"))
    made.adopt(Plan({}).resolve(list(LAYERS)))
    yield made
    made.close()


def buffers(fill: float = 1.0) -> list[Tensor]:
    sizes = {layer.name: layer.numel for layer in LAYERS}
    return [torch.full((sum(sizes[name] for name in names),), fill) for names in BUCKETS]


def send(engine: Engine, step: list[Tensor]) -> list["torch.futures.Future[Tensor] | None"]:
    return [
        engine.reduce_whole(names, buffer, last=index == len(BUCKETS) - 1, label=f"bucket {index}")
        for index, (names, buffer) in enumerate(zip(BUCKETS, step, strict=True))
    ]


def cut(names: tuple[str, ...], buffer: Tensor) -> dict[str, Tensor]:
    sizes = {layer.name: layer.numel for layer in LAYERS}
    return dict(zip(names, buffer.split([sizes[name] for name in names]), strict=True))


def test_sums_are_started_on_lane_0_in_the_order_of_the_calls_before_the_call_returns(
    engine: Engine, comm: Held
) -> None:
    step = buffers()
    futures = send(engine, step)
    assert [(made.lane, made.data.data_ptr()) for made in comm.started] == [(0, b.data_ptr()) for b in step]
    assert all(bool((buffer == 0.5).all()) for buffer in step), "divided before the sum, as DDP does"
    assert not any(future.done() for future in futures if future is not None)


def test_what_the_network_still_holds_does_not_lead_to_the_process_group() -> None:
    """Else its thread might let go of the group last, end it, and wait for itself."""
    comm = Held()
    engine = Engine(LAYERS, comm, Lanes("test"), on_step=lambda tally: None)
    engine.adopt(Plan({}).resolve(list(LAYERS)))
    futures, under_way = send(engine, buffers(3.0)), comm.started
    for one in under_way:
        one._comm = Held()
    gone = weakref.ref(comm)
    engine._rounds.close()
    del engine, comm
    gc.collect()
    assert gone() is None
    for one in under_way:
        one.arrive()
    assert all(future is not None and bool((future.wait() == 3.0).all()) for future in futures)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_step_counts_when_all_its_buckets_are_through_in_whatever_order_they_arrive(
    engine: Engine, comm: Held, order: tuple[int, int]
) -> None:
    futures = send(engine, buffers(3.0))
    comm.started[order[0]].arrive()
    assert engine.observer.steps == 0
    comm.started[order[1]].arrive()
    assert engine.observer.steps == 1
    for future in futures:
        assert future is not None
        assert bool((future.wait() == 3.0).all())
    stats = engine.stats()
    assert stats.wire_bytes == stats.dense_bytes == sum(layer.nbytes for layer in LAYERS)  # 2 (S-1)/S of it, S = 2
    assert {name: layer.wire_bytes for name, layer in stats.layers.items()} == {one.name: one.nbytes for one in LAYERS}
    (trace,) = engine.observer.recent
    assert [bucket.names for bucket in trace.buckets] == list(BUCKETS)
    assert all(t.ended >= t.began > 0 for bucket in trace.buckets for t in bucket.transfers)
    assert trace.reduced == max(t.ended for bucket in trace.buckets for t in bucket.transfers)


def test_who_listens_hears_of_a_step_before_it_resolves(comm: Held) -> None:
    heard: list[StepTally] = []
    engine = Engine(LAYERS, comm, Lanes("test"), on_step=heard.append)
    engine.adopt(Plan({}).resolve(list(LAYERS)))
    futures = send(engine, buffers())
    last = futures[1]
    assert last is not None
    told: list[int] = []
    last.add_done_callback(lambda _: told.append(len(heard)))
    for made in comm.started:
        made.arrive()
    assert [tally.step for tally in heard] == [0]
    assert told == [1]
    engine.close()


def test_a_failed_sum_raises_from_its_future_and_stops_everything(engine: Engine, comm: Held) -> None:
    send(engine, buffers())
    for made in comm.started:
        made.arrive()
    futures = send(engine, buffers())
    comm.started[3].fail()
    assert futures[1] is not None
    with pytest.raises(Exception, match=r"rank 0, step 1, bucket 1, waiting for round 0: RuntimeError: connection"):
        futures[1].wait()
    before = len(comm.started)
    assert send(engine, buffers()) == [None, None], "and `reduce` tells of the failure"
    with pytest.raises(Exception, match="step 1, bucket 1"):
        engine.reduce(cut(BUCKETS[1], buffers()[1]), buffers()[1]).wait()
    assert len(comm.started) == before
    assert engine.observer.steps == 1
    engine.adopt(Plan({}).resolve(list(LAYERS)))  # and nothing hangs


def test_a_sum_that_cannot_be_started_raises_at_once(engine: Engine, comm: Held) -> None:
    comm.broken = True
    with pytest.raises(ExchangeFailed, match=r"rank 0, step 0, bucket 0, opening: RuntimeError: no route to host"):
        send(engine, buffers())


def test_only_a_plan_of_single_sums_with_nothing_pending_goes_straight_through(engine: Engine, comm: Held) -> None:
    """A compressed layer, what one has left, or what is still to be told of one, takes the whole step away."""

    def whole_step() -> bool:
        futures, step = send(engine, buffers()), buffers()
        straight = [future is not None for future in futures]
        assert straight[0] == straight[1]
        if straight[0]:
            for made in comm.started[-2:]:
                made.arrive()
            return True
        for index, (names, buffer) in enumerate(zip(BUCKETS, step, strict=True)):
            engine.reduce(cut(names, buffer), buffer, last=index == 1, label=f"bucket {index}")
        assert engine._idle.wait(10)
        return False

    resolve = partial(Plan.resolve, layers=list(LAYERS))
    assert whole_step()
    engine.adopt(resolve(Plan({"a": TopK(density=0.1)})))
    for _ in range(EVERY + 1):  # the last of them observed
        assert not whole_step()
    engine.adopt(resolve(Plan({"a": Dense()})))
    assert not whole_step(), "the residual is sent along"
    assert engine.ledger.accounts["a"].residual is None
    assert whole_step()
    engine.watch({"a": (TopK(density=0.1),)})
    assert not whole_step()
    engine.watch({})
    assert not whole_step(), "what was measured is told"
    assert whole_step()
    assert engine.observer.steps == 1 + EVERY + 1 + 1 + 1 + 2 + 1


def test_a_residual_that_a_checkpoint_brings_is_seen(engine: Engine) -> None:
    state = {"a": {"residual": torch.ones(64)}}
    engine.ledger.load([state], [state])
    assert send(engine, buffers()) == [None, None]


def test_steps_do_not_overlap_with_one_that_goes_straight_through(
    engine: Engine, comm: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laconic.runtime.engine.LONGEST", 0.01)
    send(engine, buffers())
    with pytest.raises(ExchangeFailed, match="step 0 has not ended"):
        send(engine, buffers())
    with pytest.raises(ExchangeFailed, match="step 0 has not ended"):
        engine.adopt(Plan({}).resolve(list(LAYERS)))
