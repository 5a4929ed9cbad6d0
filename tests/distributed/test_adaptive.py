"""Adaptive policies under real DDP: all ranks change at the same step to the same plan, and go on after a resume."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run
from training import alike, batch, bits, ddp, loss_of, toy, train

import laconic
from laconic import Accordion, Espresso, GraVAC, LGreCo, PowerSGD, Quantize, TopK
from laconic.planning.link import what_if

POLICIES = {
    "L-GreCo, low rank": lambda: LGreCo(PowerSGD(rank=2), warmup=14, period=20),
    "L-GreCo, mixed": lambda: LGreCo([Quantize(bits=4), TopK(density=0.05), PowerSGD(rank=2)], warmup=14, period=20),
    "L-GreCo on Accordion": lambda: LGreCo(
        Accordion(low=TopK(density=0.2), high=TopK(density=0.02)), warmup=14, period=14
    ),
    "GraVAC": lambda: GraVAC(TopK(density=0.2), floor=0.3, window=6, largest=50, every=1),
    "Accordion": lambda: Accordion(low=Quantize(bits=8), high=Quantize(bits=2), period=12),
}


def told(handle: laconic.Handle) -> list[tuple[int, str, str]]:
    return [(change.step, change.plan.digest, change.why) for change in handle.history]


def adapt(rank: int, which: str, folder: str | None = None, stop: int = 0, steps: int = 48) -> dict[str, Any]:
    """Train; with `stop`, save there and go on in a model, handle and policy that are new."""
    model = ddp(toy())
    handle = laconic.attach(model, POLICIES[which]())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    changes = []
    for number in range(steps):
        if stop and number == stop:
            handle.save(str(folder))
            changes = told(handle)
            state = {name: value.clone() for name, value in model.module.state_dict().items()}
            model = ddp(toy())
            model.module.load_state_dict(state)
            handle = laconic.attach(model, POLICIES[which]())
            handle.load(str(folder))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss = loss_of(model, batch(rank, number))
        loss.backward()
        optimizer.step()
    return {
        "changes": changes + told(handle), "parameters": bits(model.parameters()), "plan": handle.plan.digest,
        "policy": bits(handle.policy.state_dict().values()), "ratio": handle.stats().ratio > 1, "text": str(handle),
    }  # fmt: skip


@pytest.mark.parametrize("which", POLICIES)
def test_every_rank_takes_the_same_decisions_at_the_same_steps(which: str) -> None:
    outcomes = run(adapt, 3, which=which)
    texts = [outcome.pop("text") for outcome in outcomes]
    assert alike(outcomes), outcomes
    assert outcomes[0]["changes"], "nothing was ever decided"
    assert outcomes[0]["ratio"], texts[0]


@pytest.mark.parametrize(
    ("which", "stop"), [("GraVAC", 16), ("L-GreCo on Accordion", 11), ("L-GreCo on Accordion", 15)]
)
def test_a_policy_goes_on_where_it_was_saved(which: str, stop: int, tmp_path: Path) -> None:
    """To the bit in a world of two, in the midst of watched steps and of a plan's way to all ranks.

    GraVAC's clock is another after a resume, so there only ranks agree.
    """
    straight = run(adapt, 2, which=which)[0]
    outcomes = run(adapt, 2, which=which, folder=str(tmp_path), stop=stop)
    for outcome in outcomes:
        outcome.pop("text")
    assert alike(outcomes)
    if which != "GraVAC":
        assert outcomes[0]["changes"] == straight["changes"]
        assert outcomes[0]["parameters"] == straight["parameters"]
    else:
        before = [change for change in straight["changes"] if change[0] <= 12]
        assert [change for change in outcomes[0]["changes"] if change[0] <= 12] == before


def choose(rank: int) -> dict[str, Any]:
    """Espresso as attached, but with links of 1 Mbit/s in place of those that the survey found."""
    model = ddp(toy())
    handle = laconic.attach(model, Espresso(Quantize(bits=4)))
    policy = handle.policy
    assert isinstance(policy, Espresso)
    assert policy._around is not None, "attach surveys for a policy that asks for it"
    policy._around = replace(policy._around, links=what_if(policy._around.world, 1e6, 1e11))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(9):
        optimizer.zero_grad()
        loss_of(model, batch(rank, number)).backward()
        optimizer.step()
    return {"changes": told(handle), "parameters": bits(model.parameters()), "ratio": handle.stats().ratio > 1}


def test_espresso_surveys_starts_dense_and_compresses_where_the_link_is_slow() -> None:
    outcomes = run(choose, 2)
    assert alike(outcomes), outcomes
    ((step, _, why),) = outcomes[0]["changes"]
    assert step == 5
    assert "expected" in why
    assert outcomes[0]["ratio"]


def adapt_unevenly(rank: int, which: str) -> dict[str, Any]:
    """Ranks that run out of inputs at different steps."""
    model = ddp(toy())
    handle = laconic.attach(model, POLICIES[which]())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for number in range(30 + 8 * rank):
            loss_of(model, batch(rank, number)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {"changes": told(handle), "parameters": bits(model.parameters()), "steps": handle.steps}


@pytest.mark.parametrize("which", ["L-GreCo, mixed", "GraVAC"])
def test_uneven_inputs_change_nothing_about_it(which: str) -> None:
    outcomes = run(adapt_unevenly, 2, which=which)
    assert alike(outcomes), outcomes
    assert outcomes[0]["steps"] == 38
    assert outcomes[0]["changes"]


def share(rank: int) -> bool:
    """One policy object for two models of other layers."""
    policy = LGreCo(TopK(density=0.05), warmup=12, period=12)
    models = [ddp(toy(width=width)) for width in (48, 64)]
    handles = [laconic.attach(model, policy) for model in models]
    for number in range(16):
        for model in models:
            loss_of(model, batch(rank, number)).backward()
    return all(handle.history for handle in handles) and handles[0].policy is not handles[1].policy


def test_one_policy_may_be_given_to_two_models() -> None:
    assert run(share, 2) == [True, True]


def follow(rank: int, given: bool) -> list[float | None]:
    """What a policy may know of the learning rate before the first step, after it, after it changed, and of another."""
    model = ddp(toy())
    stranger = torch.optim.SGD(toy().parameters(), lr=7.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = laconic.attach(model, TopK(density=0.1), optimizer=optimizer if given else None)
    seen = [handle.stats().learning_rate]
    stranger.step()
    seen.append(handle.stats().learning_rate)
    train(model, rank, [0], optimizer=optimizer)
    seen.append(handle.stats().learning_rate)
    optimizer.param_groups[0]["lr"] = 0.05
    seen.append(handle.stats().learning_rate)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.25))
    gc.collect()
    seen.append(handle.stats().learning_rate)
    train(model, rank, [1], optimizer=optimizer)
    seen.append(handle.stats().learning_rate)
    return seen


def test_the_learning_rate_is_seen_once_the_models_optimizer_steps() -> None:
    assert run(follow, 2, given=False) == 2 * [[None, None, 0.1, 0.05, None, 0.25]]


def test_the_learning_rate_is_that_of_the_optimizer_that_is_given() -> None:
    assert run(follow, 2, given=True) == 2 * [[0.1, 0.1, 0.1, 0.05, 0.05, 0.05]]
