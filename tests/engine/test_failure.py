"""A rank whose compressor raises: every rank gets an error that says where, and nothing hangs."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from laconic import ExchangeFailed, Plan, Quantize, TopK
from laconic.comm import loopback
from laconic.exchange import Exchange, Memory
from laconic.layer import Layer
from laconic.world import World
from tests.engine.fleet import Fleet, same_ledgers

LAYERS = (Layer("a", (8, 8)), Layer("b", (8, 8)))
BUCKETS = (("a",), ("b",))


@dataclass(frozen=True)
class Raising(Quantize):
    """Raises on rank 1, before its first message or after its last reply."""

    when: str = "opening"

    def exchange(self, x: Tensor, out: Tensor, memory: Memory, world: World) -> Exchange:
        if world.rank == 1 and self.when == "opening":
            raise RuntimeError("out of luck")
        yield from super().exchange(x, out, memory, world)
        if world.rank == 1 and self.when == "ending":
            raise RuntimeError("out of luck")


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "TIMEOUT", 0.3)


def outcome(future: "torch.futures.Future[Tensor]") -> str:
    try:
        future.wait()
    except Exception as error:
        return str(error)
    return ""


def test_an_error_while_opening_names_step_bucket_and_phase_on_every_rank() -> None:
    plan = Plan({"a": TopK(density=0.1), "b": TopK(density=0.1)})
    with Fleet(LAYERS, plan, 2) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        fleet.adopt(Plan({"a": Raising(), "b": TopK(density=0.1)}))
        before = fleet.ledgers()
        futures, _ = fleet.start(fleet.gradients(1), BUCKETS)
        texts = [[outcome(future) for future in waiting] for waiting in futures]
        assert "rank 1, step 1, bucket 0, opening: RuntimeError: out of luck" in texts[1][0]
        assert "rank 0, step 1, bucket 0, waiting for round 0: TimeoutError" in texts[0][0]
        assert all(text for rank in texts for text in rank), "no bucket of a failed step resolves"
        assert same_ledgers(fleet.ledgers(), before), "and none of it is written down"


def test_after_a_failure_every_later_call_says_so_at_once() -> None:
    with Fleet(LAYERS, Plan({"a": Raising()}), 2) as fleet:
        futures, _ = fleet.start(fleet.gradients(0), BUCKETS)
        for waiting in futures:
            for future in waiting:
                assert outcome(future)
        again, _ = fleet.start(fleet.gradients(1), BUCKETS)
        assert "out of luck" in outcome(again[1][0])
        fleet.adopt(Plan({}))  # and nothing hangs
        with pytest.raises(Exception, match="out of luck"):
            again[1][1].wait()


def test_a_rank_that_failed_starts_nothing_more() -> None:
    """Its next message would meet another bucket's on the other ranks."""
    with Fleet(LAYERS, Plan({"a": Raising(), "b": Quantize()}), 2) as fleet:
        futures, _ = fleet.start(fleet.gradients(0), BUCKETS)
        assert all(outcome(future) for waiting in futures for future in waiting)
        assert "TimeoutError" in outcome(futures[0][0]), "rank 0 must not take rank 1's bucket 1 for its bucket 0"


def test_an_error_while_ending_names_the_phase() -> None:
    with Fleet(LAYERS, Plan({"a": Raising(when="ending")}), 2) as fleet:
        futures, _ = fleet.start(fleet.gradients(0), [("b", "a")])
        assert outcome(futures[0][0]) == ""
        assert "rank 1, step 0, bucket 0, ending: RuntimeError: out of luck" in outcome(futures[1][0])


def test_the_error_is_laconics_own_with_its_cause() -> None:
    with Fleet(LAYERS, Plan({"a": Raising()}), 2) as fleet:
        futures, _ = fleet.start(fleet.gradients(0), BUCKETS)
        outcome(futures[1][0])
        broken = fleet.engines[1]._fault.error
        assert isinstance(broken, ExchangeFailed)
        assert isinstance(broken.__cause__, RuntimeError)
        assert outcome(futures[0][0])


def test_an_unknown_layer_does_not_block_the_engine() -> None:
    with Fleet(LAYERS, Plan({}), 1) as fleet:
        with pytest.raises(KeyError):
            fleet.engines[0].reduce({"c": torch.zeros(3)}, torch.zeros(3))
        fleet.adopt(Plan({}))
        fleet.step(fleet.gradients(0))
