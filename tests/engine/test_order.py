"""One order of collectives on all ranks: with threads, whatever their timing, and from one thread on a side stream."""

import gc
import queue
import random
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from laconic import Plan, TopK
from laconic.comm.loopback import Loopback
from laconic.comm.protocol import Pending
from laconic.exchange import Op
from laconic.runtime.bucket import Bucket
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import Job, Lanes, Stream, Word, _work
from laconic.world import Scope, World
from tests.engine.fleet import Fleet, Gradients, Recording, same_bits, same_ledgers
from tests.engine.model import BUCKETS, LAYERS, MIXED

SMALL = tuple((name,) for names in BUCKETS for name in names)  # many small buckets


def test_random_delays_change_neither_order_nor_result() -> None:
    comms = [Recording(comm, random.Random(comm.world.rank)) for comm in Loopback.ranks(3)]
    with Fleet(LAYERS, MIXED, comms=comms) as hurried, Fleet(LAYERS, MIXED, 3) as calm:
        for step in range(12):
            gradients = calm.gradients(step)
            ours, theirs = hurried.step(gradients, SMALL), calm.step(gradients, SMALL)
            for name in calm.layers:
                assert same_bits(ours[0][name], theirs[0][name])
        depth = 1 + max(entry[0] for entry in comms[0].started)
        assert depth >= 2
        for lane in range(depth):
            assert comms[0].lane(lane)
            assert comms[1].lane(lane) == comms[0].lane(lane)
            assert comms[2].lane(lane) == comms[0].lane(lane)


class Note:
    """A job that notes where it is advanced."""

    def __init__(
        self, name: int, log: list[tuple[int, int, str]], stages: int, done: threading.Event, brief: bool = False
    ) -> None:
        self._name, self._log, self._stages, self._done = name, log, stages, done
        self.brief = brief

    def advance(self, stage: int) -> None:
        self._log.append((stage, self._name, threading.current_thread().name))
        if stage == self._stages - 1:
            self._done.set()


def test_lanes_take_every_stage_first_in_first_out_on_a_thread_of_its_own() -> None:
    lanes, log = Lanes("lane"), []
    lanes.resize(3)
    events = [threading.Event() for _ in range(50)]
    for index, event in enumerate(events):
        lanes.submit(Note(index, log, 3, event))
    assert all(event.wait(10) for event in events)
    lanes.close()
    for stage in range(3):
        seen = [(name, thread) for at, name, thread in log if at == stage]
        assert [name for name, _ in seen] == list(range(50))
        assert {thread for _, thread in seen} == {f"lane stage {stage}"}


def test_brief_jobs_never_overtake_and_need_no_thread_when_nothing_is_before_them() -> None:
    lanes, log = Lanes("lane"), []
    lanes.resize(2)
    alone = threading.Event()
    lanes.submit(Note(0, log, 2, alone, brief=True))
    assert alone.wait(10)
    assert log[0] == (0, 0, threading.current_thread().name)
    dice, events = random.Random(1), [threading.Event() for _ in range(200)]
    for index, event in enumerate(events, 1):
        lanes.submit(Note(index, log, 2, event, brief=dice.random() < 0.5))
    assert all(event.wait(10) for event in events)
    lanes.close()
    for stage in range(2):
        assert [name for at, name, _ in log if at == stage] == list(range(201))


class Telling:
    """A job of two stages that tells when it has ended."""

    brief = False

    def __init__(self, tell: Word) -> None:
        self._tell = tell

    def advance(self, stage: int) -> Word | None:
        return self._tell if stage == 1 else None


class Handing:
    """A queue whose caller is held up after it has handed on, until the other end has told."""

    def __init__(self, told: threading.Event) -> None:
        self._queue: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._told = told
        self.get = self._queue.get

    def put(self, box: list[Job] | None) -> None:
        self._queue.put(box)
        assert box is None or self._told.wait(10)


def test_when_a_job_tells_that_it_has_ended_no_thread_holds_it_however_late_one_is() -> None:
    """Who waits for it may let go of the engine then, and end its groups: gloo's threads must not outlive Python."""
    told, heard = threading.Event(), []

    def tell() -> None:
        heard.append(gone() is None)
        told.set()

    first: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
    lanes: list[Any] = [first, Handing(told)]
    threads = [threading.Thread(target=_work, args=(stage, lanes, [0])) for stage in range(2)]
    job = Telling(tell)
    gone = weakref.ref(job)
    first.put([job])
    del job
    first.put(None)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert heard == [True]


class Gate(Recording):
    """A comm that starts nothing before it is opened."""

    def __init__(self, comm: Loopback) -> None:
        super().__init__(comm)
        self.opened = threading.Event()

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> Pending:
        assert self.opened.wait(10)
        return super().start(op, scope, data, lane, result)


def test_an_engine_can_be_let_go_of_as_soon_as_its_means_are_there() -> None:
    comm, held, heard = Gate(Loopback.ranks(1)[0]), [], []
    opened = comm.opened
    engine = Engine(LAYERS, comm, Lanes("test"))
    engine.adopt(Plan({"*": TopK(density=0.1)}).resolve(list(LAYERS)))
    gone = weakref.ref(engine)

    def mean_is_there(_: object) -> None:
        held.clear()
        gc.collect()
        heard.append(gone() is None)

    gradients = {layer.name: torch.ones(layer.numel) for layer in LAYERS}
    future = engine.reduce(gradients, torch.empty(0)).then(mean_is_there)
    held.append(engine)
    del engine, comm
    opened.set()
    future.wait()
    assert heard == [True]


class Enqueueing:
    """A device's network: starting and waiting only enqueue, and everything is noted."""

    def __init__(self, rank: int, size: int) -> None:
        self.world, self.lanes, self.futures = World(rank, size), 8, False
        self.log: list[tuple[object, ...]] = []
        self.aside = False

    @contextmanager
    def stream(self) -> Iterator[None]:
        self.aside = True
        yield
        self.aside = False

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> "Enqueued":
        self.log.append(("start", lane, op, scope, data.dtype, data.numel(), self.aside, threading.get_ident()))
        return Enqueued(self, op, data, result)

    def broadcast(self, data: Tensor) -> Tensor:
        return data

    def gather(self, data: Tensor) -> Tensor:
        return data.repeat(self.world.size, 1)

    def close(self) -> None:
        """Nothing is held."""


class Enqueued:
    """As if every rank had sent what this one did."""

    def __init__(self, comm: Enqueueing, op: Op, data: Tensor, result: Tensor | None) -> None:
        self._comm, self._op, self._data, self._result = comm, op, data, result

    def wait(self) -> Tensor:
        self._comm.log.append(("wait", self._op))
        if self._result is None or self._op in (Op.SUM, Op.MAX):
            return self._data
        rows = self._data if self._op is Op.SCATTER else self._data.unsqueeze(0)
        return self._result.copy_(rows.expand_as(self._result))


def test_a_stream_enqueues_everything_from_the_submitting_thread_in_one_order() -> None:
    logs = []
    for rank in range(3):
        comm = Enqueueing(rank, 3)
        stream = Stream(comm.stream)
        with Fleet(LAYERS, MIXED, comms=[comm], rounds=partial(lambda made: made, stream)) as fleet:
            futures, _ = fleet.start(fleet.gradients(rank), BUCKETS)
            assert all(future.done() for future in futures[0]), "submitting has enqueued the whole conversation"
        starts = [entry for entry in comm.log if entry[0] == "start"]
        assert all(entry[6] is True for entry in starts), "on the side stream"
        assert {entry[7] for entry in starts} == {threading.get_ident()}
        assert len(starts) == len(comm.log) - len(starts), "as many waits as starts"
        logs.append([entry[:6] for entry in comm.log])
    # AdaComp's first payload has room for everything, so that even sizes are equal here
    assert logs[1] == logs[0]
    assert logs[2] == logs[0]


def in_threads(fleet: Fleet, gradients: list[Gradients]) -> list[Gradients]:
    """A step with a thread for each rank, as a stream's waits on Loopback do block."""
    results: list[Gradients] = [{} for _ in fleet.engines]

    def run(rank: int) -> None:
        engine, own = fleet.engines[rank], gradients[rank]
        for index, names in enumerate(BUCKETS):
            buffer = torch.cat([own[name].flatten() for name in names])
            cut = dict(zip(names, buffer.split([own[name].numel() for name in names]), strict=True))
            results[rank].update(cut)
            engine.reduce(cut, buffer, last=index == len(BUCKETS) - 1, label=f"bucket {index}")

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(fleet.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return results


def beside() -> AbstractContextManager[None]:
    return nullcontext()


def test_a_stream_gives_the_same_bits_as_lanes() -> None:
    with Fleet(LAYERS, MIXED, 3) as lanes, Fleet(LAYERS, MIXED, 3, rounds=lambda: Stream(beside)) as stream:
        for step in range(4):
            gradients = lanes.gradients(step)
            ours, theirs = in_threads(stream, gradients), lanes.step(gradients, BUCKETS)
            for name in lanes.layers:
                assert all(same_bits(mine[name], theirs[0][name]) for mine in ours)
        assert same_ledgers(stream.ledgers(), lanes.ledgers())


def test_ending_without_asking_the_device_is_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag as a tensor that nobody looks at: the same means and the same books, in good steps and in bad ones."""
    plans = {0: MIXED, 4: Plan({"b.weight": MIXED["b.weight"]}), 8: MIXED}
    bad = {2: "a.weight", 3: "stem.bias", 4: "b.weight"}
    host, device = Fleet(LAYERS, MIXED, 2), Fleet(LAYERS, MIXED, 2)
    asked = Bucket.spoiled.fget
    assert asked is not None
    with host, device:
        for step in range(10):
            gradients = host.gradients(step)
            if step in bad:
                gradients[1][bad[step]].view(-1)[0] = torch.inf
            if step in plans:
                host.adopt(plans[step])
                device.adopt(plans[step])
            ours = host.step(gradients, BUCKETS)
            with monkeypatch.context() as patch:
                patch.setattr(Bucket, "spoiled", property(lambda bucket: torch.as_tensor(asked(bucket))))
                theirs = device.step(gradients, BUCKETS)
            for name in host.layers:
                assert all(same_bits(a[name], b[name]) for a, b in zip(ours, theirs, strict=True)), (step, name)
            for name in host.layers:
                assert torch.equal(host.mean_residual(name), device.mean_residual(name)), (step, name)
            for mine, other in zip(host.engines, device.engines, strict=True):
                for name in host.layers:
                    warm, same = mine.ledger.accounts[name].warm, other.ledger.accounts[name].warm
                    assert warm.keys() == same.keys()
                    assert all(same_bits(value, same[key]) for key, value in warm.items()), (step, name)
