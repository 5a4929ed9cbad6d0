"""Auto under real DDP: it measures, decides alike on every rank, trains as it should, and goes on after a resume."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch
from ranks import run
from training import alike, batch, bits, ddp, loss_of, toy

import laconic
from laconic import Auto, Dense, Quantize
from laconic.control.sounding import SIZES
from laconic.planning.link import Line
from laconic.policies import auto, moment

STEPS = 110  # of a run that measures four times


def told(handle: laconic.Handle) -> list[tuple[int, str, str]]:
    return [(change.step, change.plan.digest, change.why) for change in handle.history]


def pretend(monkey: pytest.MonkeyPatch, seconds_a_byte: float) -> None:
    """Planning sees a link of this rate; what is measured in the run says nothing about it."""
    survey = laconic.integrations.ddp.survey

    def slowed(*given: Any) -> Any:
        around = survey(*given)
        return replace(around, links=dict.fromkeys(around.links, (Line(1e-5, seconds_a_byte),)))

    monkey.setattr(laconic.integrations.ddp, "survey", slowed)
    monkey.setattr(auto, "slowdown", lambda *_: 1.0)
    monkey.setattr(auto, "bounded", lambda slow, *_: slow)


def train(rank: int, way: str = "plain", steps: int = 40, folder: str | None = None, stop: int = 0) -> dict[str, Any]:
    """Train on a link that looks slow; with `stop`, save there and go on with everything new."""
    with pytest.MonkeyPatch.context() as monkey:
        pretend(monkey, 1e-4)
        options: dict[str, Any] = {"find_unused_parameters": True} if way == "unused" else {}
        model = ddp(toy(), **options)
        handle = laconic.attach(model, **({"node_size": 2} if way == "machines" else {}))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", enabled=way == "scaler")
        changes, losses = [], []
        for number in range(steps):
            if stop and number == stop:
                handle.save(str(folder))
                changes = told(handle)
                state = {name: value.clone() for name, value in model.module.state_dict().items()}
                model = ddp(toy(), **options)
                model.module.load_state_dict(state)
                handle = laconic.attach(model)
                handle.load(str(folder))
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            optimizer.zero_grad()
            if way == "accumulate":
                with model.no_sync():
                    loss_of(model, batch(rank, 1000 + number)).backward()
            loss = loss_of(model, batch(rank, number))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(float(loss))
        return {
            "alike": (changes + told(handle), bits(model.parameters()), handle.plan.digest),
            "moment": bits(handle.policy.state_dict().values()),
            "first": losses[0], "last": sum(losses[-5:]) / 5, "text": str(handle), "report": handle.report(),
            "compressed": sum(not one.lossless for one in handle.plan.values()), "error": handle.stats().error,
            "routes": " ".join(str(change.plan) for change in handle.history),
        }  # fmt: skip


@pytest.mark.parametrize("way", ["plain", "accumulate", "scaler", "unused"])
def test_it_leaves_dense_on_a_slow_link_alike_on_every_rank_and_learns(way: str) -> None:
    outcomes = run(train, 2, way=way)
    assert alike([one["alike"] for one in outcomes])
    assert alike([one["moment"] for one in outcomes])
    changes = outcomes[0]["alike"][0]
    assert changes[0][0] == auto.MEASURED + 1, changes
    assert outcomes[0]["compressed"] > 0
    assert outcomes[0]["last"] < outcomes[0]["first"]
    assert "saves" in outcomes[0]["report"]
    assert "expected" in outcomes[0]["report"]


def test_machines_of_several_ranks_have_their_routes() -> None:
    outcomes = run(train, 4, way="machines", steps=24)
    assert alike([one["alike"] for one in outcomes])
    assert outcomes[0]["compressed"] > 0


def test_it_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    """The moment is in the checkpoint: no second beginning."""
    outcomes = run(train, 2, folder=str(tmp_path), stop=20)
    assert alike([one["alike"] for one in outcomes])
    steps = [step for step, _, _ in outcomes[0]["alike"][0]]
    assert auto.MEASURED + 1 in steps
    assert 20 + auto.MEASURED + 1 not in steps, steps


def laborious(monkey: pytest.MonkeyPatch) -> None:
    """Encoding takes as long as some steps of the toy, so that no noise of the machine's makes it look quick."""
    encode = Quantize.encode_all

    def slowly(*given: Any) -> Any:
        end = perf_counter() + 0.01
        while perf_counter() < end:
            pass
        return encode(*given)

    monkey.setattr(Quantize, "encode_all", slowly)
    monkey.setattr(Quantize, "lines", lambda *_: None)


def stay_dense(rank: int) -> tuple[str, str]:
    with pytest.MonkeyPatch.context() as monkey:
        pretend(monkey, 1e-13)
        laborious(monkey)
        model = ddp(toy())
        handle = laconic.attach(model, Auto(families=[[Quantize(bits=4)], [Quantize(bits=3)]]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(30):
            optimizer.zero_grad()
            loss_of(model, batch(rank, number)).backward()
            optimizer.step()
        return handle.plan.digest, laconic.Plan({name: Dense() for name in handle.plan}).digest


def test_where_the_link_costs_nothing_it_ends_dense() -> None:
    for plan, dense in run(stay_dense, 2):
        assert plan == dense


def sounded(rank: int, folder: str, stop: int) -> dict[str, Any]:
    """A run that measures as often as it can; with `stop`, everything new after the step beside which it sounds."""
    heard = []
    with pytest.MonkeyPatch.context() as monkey:
        pretend(monkey, 1e-4)
        monkey.setattr(auto, "LOOK_SECONDS", 0.0)
        monkey.setattr(moment, "MEASURE_COST", 100.0)
        monkey.setattr(auto, "bounded", lambda slow, sounding, _: heard.append(sounding) or slow)
        model = ddp(toy())
        handle = laconic.attach(model, Auto(period=auto.LOOK))
        asked = []
        for number in range(STEPS):
            loss_of(model, batch(rank, number)).backward()
            if handle.policy.sounds(number):
                asked.append(number)
                if stop == len(asked):
                    handle.save(folder)
                    model = ddp(toy())
                    handle = laconic.attach(model, Auto(period=auto.LOOK))
                    handle.load(folder)
        return {"asked": asked, "heard": [one for one in heard if one], "plan": handle.plan.digest}


@pytest.mark.parametrize("stop", [0, 2])
def test_the_link_is_sounded_beside_a_step_and_after_a_resume_again(tmp_path: Path, stop: int) -> None:
    """What was traced is not in a checkpoint: the measurement is taken once more, and the sounding with it."""
    outcomes = run(sounded, 2, folder=str(tmp_path), stop=stop)
    assert alike([(one["asked"], one["plan"]) for one in outcomes])
    first, other = outcomes
    assert len(first["asked"]) >= 3
    assert len(first["heard"]) == len([step for step in first["asked"] if step < STEPS - 1]) - (stop > 0)
    assert not other["heard"], "only rank 0 proposes"
    for sounding in first["heard"]:
        assert [nbytes for nbytes, _ in sounding] == list(SIZES)
        assert all(seconds > 0 for _, seconds in sounding)
