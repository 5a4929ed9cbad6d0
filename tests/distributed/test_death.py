"""A rank that dies, stops or fails: the others say where, in time, and end."""

import os
import re
import signal
import threading
from dataclasses import dataclass
from time import monotonic

import pytest
import torch
from ranks import Outcome, outcomes, run, scene
from training import alike, bits, ddp, toy, train

import laconic
from laconic.exchange import Exchange, Memory, Message
from laconic.layer import Layer
from laconic.world import World

TIMEOUT = 10.0  # of the group
GRACE = 5.0  # beyond it, as reliability.md allows
VICTIM = 1
FATAL_STEP = 3


@dataclass(frozen=True)
class Fatal(laconic.TopK):
    """TopK that on one rank, in one step, does something fatal before, during or after its payload."""

    moment: str = "before"
    act: str = "kill"

    def exchange(self, x: torch.Tensor, out: torch.Tensor, memory: Memory, world: World) -> Exchange:
        calls = int(memory.warm["calls"])
        memory.warm["calls"] = torch.tensor(calls + 1)
        now = world.rank == VICTIM and calls == FATAL_STEP
        inner = super().exchange(x, out, memory, world)
        if now and self.moment == "before":
            self._do()
        message: Message = next(inner)
        if now and self.moment == "during":
            threading.Timer(0.0, self._do).start()  # while the collective is under way
        reply = yield message
        if now and self.moment == "after":
            self._do()
        try:
            inner.send(reply)
        except StopIteration:
            return

    def _do(self) -> None:
        if self.act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.act == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            raise ZeroDivisionError("a mistake in a compressor")

    def init(self, layer: Layer, world: World, rng: torch.Generator, warm: object) -> dict[str, torch.Tensor]:
        return {"calls": torch.tensor(0)}


def _doomed(rank: int, moment: str, act: str = "kill") -> None:
    model = ddp(toy())
    plan = laconic.Plan({"2.weight": Fatal(density=0.1, moment=moment, act=act), "4.weight": laconic.PowerSGD(rank=2)})
    laconic.attach(model, plan)
    began = [monotonic()]
    try:
        train(model, rank, range(FATAL_STEP + 3), each=lambda _: began.append(monotonic()))
    finally:
        print(f"reached step {len(began) - 1}; ended {monotonic() - began[-1]:.2f} s after it began", flush=True)


def assert_names_step_and_bucket(one: Outcome) -> None:
    assert one.exitcode == 1, str(one)
    assert isinstance(one.error, laconic.ExchangeFailed) or "ExchangeFailed" in one.trace, str(one)
    found = re.search(rf"rank {one.rank}, step (\d+), bucket \d+", str(one.error))
    assert found, str(one)
    assert int(found[1]) in (FATAL_STEP, FATAL_STEP + 1), str(one)
    taken = re.search(r"ended ([\d.]+) s after", one.output)
    assert taken, str(one)
    assert float(taken[1]) < TIMEOUT + GRACE, str(one)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_sigkill_around_a_payload_ends_the_survivors_in_time_naming_step_and_bucket(moment: str) -> None:
    ended = outcomes(_doomed, 3, moment=moment, timeout=TIMEOUT, deadline=60)
    assert ended[VICTIM].exitcode == -signal.SIGKILL
    for one in ended:
        if one.rank != VICTIM:
            assert_names_step_and_bucket(one)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_exception_in_a_compressor_surfaces_in_backward_there_and_ends_the_others(moment: str) -> None:
    ended = outcomes(_doomed, 3, moment=moment, act="raise", timeout=TIMEOUT, deadline=60)
    for one in ended:
        assert_names_step_and_bucket(one)
    assert "a mistake in a compressor" in str(ended[VICTIM].error)
    assert "backward" in ended[VICTIM].trace


def _train_with(rank: int, compressor: laconic.Compressor) -> str:
    model = ddp(toy())
    laconic.attach(model, laconic.Plan({"2.weight": compressor}))
    train(model, rank, range(FATAL_STEP + 3))
    return bits(model.parameters())


def test_sigstop_below_the_timeout_is_slow_but_right() -> None:
    undisturbed = run(_train_with, 3, compressor=laconic.TopK(density=0.1))
    with scene(_train_with, 3, compressor=Fatal(density=0.1, act="stop"), timeout=TIMEOUT) as ranks:
        ranks.await_stopped(VICTIM)
        threading.Event().wait(TIMEOUT / 3)  # the delay itself is what is tested
        ranks.signal(VICTIM, signal.SIGCONT)
        ended = ranks.end()
    assert [one.exitcode for one in ended] == [0, 0, 0], "\n".join(map(str, ended))
    assert alike([*undisturbed, *(one.value for one in ended)])


def test_sigstop_above_the_timeout_ends_the_survivors_like_a_death() -> None:
    with scene(_doomed, 3, moment="before", act="stop", timeout=TIMEOUT, deadline=60) as ranks:
        ranks.await_stopped(VICTIM)
        ended = ranks.end([0, 2])
        ranks.signal(VICTIM, signal.SIGCONT)
    for one in ended:
        assert_names_step_and_bucket(one)
