"""What may change between attach, save and load, and what may not; and that nothing is left running afterwards."""

import gc
import os
import signal
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import torch
from ranks import outcomes, run
from torch import nn
from training import CLASSES, FEATURES, alike, bits, ddp, toy, train

import laconic

PLAN = laconic.Plan({"0.weight": laconic.TopK(density=0.1), "2.weight": laconic.PowerSGD(rank=2)})
SAVED, MORE = 3, 4
PATIENCE = 10.0  # seconds for a thread to end


def _go_on(rank: int, saved: Any, load: Callable[[laconic.Handle], object], **options: object) -> list[str]:
    """The bits of every step after a save."""
    model = ddp(toy(), **options)
    handle = laconic.attach(model, PLAN)
    model.module.load_state_dict(saved)
    load(handle)
    seen: list[str] = []
    train(model, rank, range(SAVED, SAVED + MORE), each=lambda _: seen.append(bits(p.grad for p in model.parameters())))
    return seen


def resume_in_other_ways(rank: int) -> dict[str, list[str]]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(SAVED))
    saved = {name: value.clone() for name, value in model.module.state_dict().items()}
    states: list[Any] = [None, None]
    torch.distributed.all_gather_object(states, handle.state_dict())
    seen: list[str] = []
    train(model, rank, range(SAVED, SAVED + MORE), each=lambda _: seen.append(bits(p.grad for p in model.parameters())))
    return {
        "uninterrupted": seen,
        "another bucket size": _go_on(rank, saved, lambda h: h.load_state_dict(states[rank]), bucket_cap_mb=25),
        "gradients in the buckets": _go_on(
            rank, saved, lambda h: h.load_state_dict(states[rank]), gradient_as_bucket_view=True
        ),
        "the list of all states": _go_on(rank, saved, lambda h: h.load_state_dict(states)),
    }


def test_a_resumed_run_has_the_same_bits_with_other_buckets_and_from_the_list_of_all_states() -> None:
    """At world 2, where a sum has one order whatever the bucket."""
    told = run(resume_in_other_ways, 2)
    assert alike(told)
    assert len(set(told[0]["uninterrupted"])) == MORE
    assert {way: seen == told[0]["uninterrupted"] for way, seen in told[0].items()} == dict.fromkeys(told[0], True)


def _wider() -> nn.Sequential:
    return toy(width=56)


def _shorter() -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, 48), nn.Tanh(), nn.Linear(48, CLASSES))


def load_into_another_model(rank: int) -> dict[str, str]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(2))
    state, said = handle.state_dict(), {}
    for name, build in (("wider", _wider), ("shorter", _shorter)):
        other = laconic.attach(ddp(build()), laconic.Dense())
        before = other.plan
        try:
            said[name] = other.load_state_dict(state)
        except laconic.LaconicError as error:
            said[name] = f"{type(error).__name__}: {error}"
        assert other.plan is before, "nothing was taken over"
    return said


def test_a_changed_model_is_refused_with_the_layers_name() -> None:
    told = run(load_into_another_model, 2)
    assert alike(told)
    assert told[0]["wider"].startswith("StateError: layer '0.weight': the saved residual has 1152 elements"), told[0]
    assert told[0]["shorter"].startswith("StateError: ")
    assert "layer '2.weight'" in told[0]["shorter"], told[0]


def unfreeze(rank: int) -> tuple[str, str, bool]:
    model = toy()
    model[2].weight.requires_grad_(False)
    wrapped = ddp(model)
    handle = laconic.attach(wrapped, laconic.TopK(density=0.1))
    train(wrapped, rank, range(2))
    model[2].weight.requires_grad_(True)
    said = ""
    try:
        train(wrapped, rank, [2])
    except laconic.Unsupported as error:
        said = str(error)
    again = ddp(model)
    other = laconic.attach(again, laconic.TopK(density=0.1))
    kept = handle.state_dict()["layers"]["4.weight"]["residual"]
    other.load_state_dict({**handle.state_dict()})
    same = torch.equal(other.state_dict()["layers"]["4.weight"]["residual"], kept)
    train(again, rank, range(3, 5))
    return said, bits(model.parameters()), same


def test_a_layer_unfrozen_after_attach_is_refused_at_the_next_forward_and_trains_after_a_new_one() -> None:
    told = run(unfreeze, 2)
    assert alike(told)
    assert told[0][0].startswith("2.weight was frozen")
    assert "wrap the model in a new DDP" in told[0][0]
    assert told[0][2]


def _ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "laconic" in thread.name]


def _left() -> list[str]:
    """Which of laconic's threads stay when nobody holds its objects; one may be about to let go of the last step."""
    end = monotonic() + PATIENCE
    while (threads := _ours()) and monotonic() < end:
        gc.collect()
        threads[0].join(0.02)
    return [thread.name for thread in threads]


def come_and_go(rank: int) -> tuple[int, list[str]]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(2))
    during = len(_ours())
    del model, handle
    return during, _left()


def test_threads_go_with_the_model() -> None:
    for during, after in run(come_and_go, 2):
        assert during >= 3, "two rounds and the end"
        assert after == []


def outlive(rank: int) -> list[str]:
    model = ddp(toy())
    handle = laconic.attach(model, PLAN)
    train(model, rank, range(2))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        train(model, rank, range(2, 6))
    except Exception as error:
        said = str(error)
    del model, handle
    assert "rank 0, step" in said
    return _left()


def test_threads_go_when_a_peer_has_died() -> None:
    ended = outcomes(outlive, 2, timeout=10.0)
    assert ended[1].exitcode == -signal.SIGKILL
    assert ended[0].value == [], str(ended[0])
