"""Ranks that hold different things find out before any payload moves, all with the same words."""

import logging
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from ranks import outcomes, run
from torch import nn
from training import alike, batch, bits, ddp, loss_of, toy, train

import laconic
from laconic.integrations import ddp as integration

PLAN = laconic.Plan({"0.weight": laconic.Dense(), "2.weight": laconic.TopK(density=0.1), "4.weight": laconic.Sign()})
OTHER = {
    "another compressor": {"what": laconic.Plan({**PLAN, "4.weight": laconic.Natural()})},
    "another degree": {"what": laconic.Plan({**PLAN, "2.weight": laconic.TopK(density=0.2)})},
    "another layer": {"what": laconic.Plan({"2.weight": laconic.TopK(density=0.1), "4.weight": laconic.Dense()})},
    "a plan for another model": {"what": laconic.Plan({"encoder.weight": laconic.Sign()})},
    "a compressor, not a plan": {"what": laconic.TopK(density=0.1)},
    "seed": {"seed": 1},
    "residual_dtype": {"residual_dtype": torch.bfloat16},
    "commit": {"commit": "bucket"},
    "lanes": {"lanes": 5},
    "node_size": {"node_size": 2},
    "version": {},
}
NAMED = {
    "another compressor": "4.weight", "another degree": "2.weight", "another layer": "4.weight",
    "a plan for another model": "encoder.weight", "a compressor, not a plan": "0.weight", "seed": "seed=1",
    "residual_dtype": "bfloat16", "commit": "commit=bucket", "lanes": "lanes=5", "node_size": "node_size=2",
    "version": "laconic 9.9.9",
}  # fmt: skip


def attach_differently(rank: int, odd: int) -> dict[str, str]:
    """What each disagreement says."""
    said = {}
    for case, other in OTHER.items():
        arguments = {"what": PLAN, **(other if rank == odd else {})}
        original = integration.VERSION
        if case == "version" and rank == odd:
            integration.VERSION = "9.9.9"
        try:
            laconic.attach(ddp(toy()), **arguments)
            said[case] = "nothing"
        except laconic.LaconicError as error:
            said[case] = f"{type(error).__name__}: {error}"
        integration.VERSION = original
    return said


@pytest.mark.parametrize(("world", "odd"), [(2, 0), (2, 1), (4, 2)])
def test_different_plans_options_and_versions_raise_one_error_with_the_same_words_everywhere(
    world: int, odd: int
) -> None:
    told = run(attach_differently, world, odd=odd, timeout=20)
    assert alike(told), told
    for case, words in told[0].items():
        assert words.startswith("Disagreement: "), f"{case}: {words}"
        assert NAMED[case] in words, f"{case}: {words}"
        assert f"rank {odd or 1}" in words, f"{case}: {words}"


class _Named(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, nn.Linear(8, 8))
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.get_submodule(self.name)(x)


def attach_to_other_parameters(rank: int) -> str:
    try:
        laconic.attach(ddp(_Named("left" if rank == 0 else "right")), laconic.Dense())
    except laconic.Disagreement as error:
        return str(error)
    return "nothing"


def test_parameters_of_other_names_are_refused_at_attach() -> None:
    told = run(attach_to_other_parameters, 2, timeout=20)
    assert alike(told)
    assert "left.weight" in told[0]
    assert "right.weight" in told[0]


def attach_to_other_shapes(rank: int) -> None:
    laconic.attach(ddp(toy(width=48 + rank)), laconic.Dense())


def test_parameters_of_other_shapes_are_refused_by_ddp_or_at_attach() -> None:
    for one in outcomes(attach_to_other_shapes, 2, timeout=20):
        assert one.exitcode == 1, str(one)
        assert "shape" in one.trace or "differ" in one.trace, str(one)


class EveryThird(laconic.Policy):
    """Another compressor every three steps; decided on rank 0 only, from what it counted itself."""

    period = 3
    turns = (laconic.TopK(density=0.1), laconic.PowerSGD(rank=2), laconic.Sign(), laconic.Divided(laconic.Cast()))

    def __init__(self) -> None:
        self.proposed = 0

    def start(self, layers: Sequence[laconic.Layer], world: laconic.World) -> laconic.Plan:
        return laconic.Static(self.turns[0]).start(layers, world)

    def rounds(self, layers: Sequence[laconic.Layer], world: laconic.World) -> int:
        return 2

    def propose(self, stats: laconic.Stats, plan: laconic.Plan) -> tuple[laconic.Plan, str]:
        self.proposed += 1
        entries = {n: c if c.lossless else self.turns[self.proposed % len(self.turns)] for n, c in plan.items()}
        return laconic.Plan(entries), f"turn {self.proposed}"


def _changes(handle: laconic.Handle) -> list[tuple[int, str, str]]:
    return [(change.step, change.plan.digest, change.why) for change in handle.history]


def change_plans_while(rank: int, how: str) -> tuple[list[tuple[int, str, str]], list[str]]:
    model = ddp(toy())
    handle = laconic.attach(model, EveryThird())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[str] = []

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss_of(model, batch(rank, number)).backward()
        seen.append(bits(p.grad for p in model.parameters()))
        if not (how == "skipped steps" and number % 4 == 1):
            optimizer.step()

    if how == "uneven join":
        with model.join():
            for number in range(8 + 5 * rank):
                step(number)
        return _changes(handle), [bits(model.parameters())]
    for number in range(16):
        if how == "unequal no_sync":
            with model.no_sync():
                for extra in range(rank + number % 2):
                    loss_of(model, batch(rank, 100 + extra)).backward()
        step(number)
    return _changes(handle), [*seen, bits(model.parameters())]


@pytest.mark.parametrize("how", ["plain loop", "unequal no_sync", "uneven join", "skipped steps"])
def test_a_plan_changes_at_the_same_step_everywhere(how: str) -> None:
    told = run(change_plans_while, 3, how=how)
    assert alike(told), told
    changes = told[0][0]
    steps = 18 if how == "uneven join" else 16  # a plan is proposed after steps 3, 6, ... and adopted one step later
    assert [step for step, _, _ in changes] == list(range(4, steps, 3)), changes
    assert len({digest for _, digest, _ in changes}) >= 3, changes


class Refused(EveryThird):
    """Proposes more rounds than there are lanes."""

    turns = (laconic.TopK(density=0.1), laconic.Divided(laconic.Cast()))

    def rounds(self, layers: Sequence[laconic.Layer], world: laconic.World) -> int:
        return 1


def keep_the_old_plan(rank: int) -> tuple[list[tuple[int, str, str]], str]:
    logging.basicConfig(level=logging.WARNING)
    model = ddp(toy())
    handle = laconic.attach(model, Refused())
    before = handle.plan.digest
    train(model, rank, range(8))
    dist.barrier()
    return _changes(handle), "kept" if handle.plan.digest == before else "changed"


def test_a_plan_that_a_rank_cannot_use_is_adopted_by_none() -> None:
    assert run(keep_the_old_plan, 2) == [([], "kept"), ([], "kept")]
