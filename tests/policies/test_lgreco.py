"""L-GreCo: fewer bytes at the same error, on a schedule, and defined whatever the statistics are."""

from dataclasses import replace
from math import inf, nan, sqrt

import pytest
import torch
from team import LAYERS, Team, draw

from laconic import (
    Accordion,
    Chain,
    Compressor,
    Dense,
    InvalidConfig,
    Layer,
    LGreCo,
    Plan,
    PowerSGD,
    Quantize,
    Sign,
    Static,
    TopK,
    World,
)
from laconic.planning.knapsack import UNITS
from laconic.policies.given import WATCHED
from laconic.policies.policy import Proposal
from laconic.policies.warmup import STEPS
from laconic.stats import Stats, Table

WORLD = World(size=2)
COMPRESSED = ["a.weight", "b.weight", "c.weight"]


def tables_of(policy: LGreCo, seed: int = 0, factor: float = 1.0) -> dict[str, Table]:
    """What watched steps would tell."""
    told = {}
    for name, rungs in policy.watch(STEPS - 2, plan=None).items():  # type: ignore[arg-type]
        x = draw(seed, 0)[name] * factor
        errors = [rung.error(x) for rung in rungs]
        told[name] = Table(tuple(rungs), tuple(errors), float(x.square().sum()), float(x.square().sum()), WATCHED)
    return told


def propose(
    policy: LGreCo, tables: dict[str, Table], steps: int | None = None
) -> tuple[Proposal, dict[str, Compressor]]:
    plan = policy.start(LAYERS, WORLD)
    made = policy.propose(Stats(steps=STEPS if steps is None else steps, tables=tables), plan)
    return made, dict(plan)


def sizes(plan: object) -> int:
    return sum(plan[layer.name].wire_bytes(layer, WORLD) for layer in LAYERS)  # type: ignore[index]


def left(plan: object, tables: dict[str, Table], squared: bool = True) -> float:
    errors = [t.errors[t.rungs.index(plan[n])] for n, t in tables.items()]  # type: ignore[index]
    return sum(e if squared else sqrt(e) for e in errors)


BASES = (PowerSGD(rank=2), TopK(density=0.05), Quantize(bits=4))


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("base", BASES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_fewer_bytes_within_the_error_of_the_uniform_setting(base: Compressor, seed: int, squared: bool) -> None:
    policy = LGreCo(base, squared=squared)
    policy.start(LAYERS, WORLD)
    tables = tables_of(policy, seed)
    made, _ = propose(policy, tables)
    uniform = Static(base).start(LAYERS, WORLD)
    assert sizes(made.plan) <= sizes(uniform)
    assert left(made.plan, tables, squared) <= left(uniform, tables, squared) * (1 + 1e-9)
    assert made.plan["b.bias"] == Dense()
    energy = sum(table.energy for table in tables.values())
    assert made.predicted["error"] == pytest.approx(sqrt(left(made.plan, tables) / energy))
    assert "within 1 x" in made.why


def test_layers_of_unequal_need_get_unequal_degrees() -> None:
    made, _ = propose(policy := LGreCo(TopK(density=0.05)), {})
    made, _ = propose(policy, tables_of(policy))
    assert sizes(made.plan) < sizes(Static(TopK(density=0.05)).start(LAYERS, WORLD))
    assert len({made.plan[name] for name in COMPRESSED}) > 1


@pytest.mark.parametrize(
    ("base", "low", "high", "degrees"),
    [
        (PowerSGD(rank=4), 0.5, 2.0, [8, 7, 6, 5, 4, 3, 2]),
        (PowerSGD(rank=1), 0.5, 2.0, [2, 1]),
        (Quantize(bits=4), 0.5, 2.0, [8, 7, 6, 5, 4, 3, 2]),
        (Quantize(bits=2), 0.25, 4.0, [8, 7, 6, 5, 4, 3, 2, 1]),
        (TopK(density=0.1), 0.5, 1.0, [0.1, 0.0841, 0.0707, 0.0595, 0.05]),
    ],
    ids=str,
)
def test_candidates_are_every_degree_within_the_range(
    base: Compressor, low: float, high: float, degrees: list[float]
) -> None:
    policy = LGreCo(base, low=low, high=high)
    policy.start([Layer("w", (256, 256))], WORLD)
    (rungs,) = policy.watch(990, plan=None).values()  # type: ignore[arg-type]
    assert [
        getattr(r, "rank", None) or getattr(r, "bits", None) or getattr(r, "density", None) for r in rungs
    ] == degrees


def test_dense_during_the_warm_up_then_a_plan_every_period_from_the_last_ten_steps_that_can_be_known() -> None:
    policy = LGreCo(TopK(density=0.1), warmup=50, period=100)
    plan = policy.start(LAYERS, WORLD)
    assert set(plan.values()) == {Dense()}
    assert [step for step in range(260) if policy.due(step)] == [50, 150, 250]
    watched = [step for step in range(160) if policy.watch(step, plan)]
    assert watched == [*range(39, 49), *range(139, 149)], "measured in step s, told in s + 1, so known at s + 2"
    assert set(policy.watch(39, plan)) == set(COMPRESSED)


@pytest.mark.parametrize("period", [1, 2, 3, 11])
def test_short_periods_watch_what_they_can(period: int) -> None:
    policy = LGreCo(TopK(density=0.1), warmup=0, period=period)
    plan = policy.start(LAYERS, WORLD)
    assert plan == Static(TopK(density=0.1)).start(LAYERS, WORLD), "without a warm-up the uniform plan is the first"
    assert any(policy.watch(step, plan) for step in range(period))


def test_statistics_that_are_missing_leave_the_plan_and_end_a_warm_up_with_the_uniform_one() -> None:
    policy = LGreCo(TopK(density=0.05))
    policy.start(LAYERS, WORLD)
    tables = tables_of(policy)
    del tables["b.weight"]  # as after steps that were not finite: nothing is added up
    made, before = propose(policy, tables, steps=5000)
    assert dict(made.plan) == before
    assert "b.weight" in made.why
    made, _ = propose(policy, tables)
    assert made.plan == Static(TopK(density=0.05)).start(LAYERS, WORLD)


def test_layers_that_are_all_zero_take_the_cheapest_rung() -> None:
    policy = LGreCo(TopK(density=0.05))
    policy.start(LAYERS, WORLD)
    made, _ = propose(policy, tables_of(policy, factor=0.0))
    assert {made.plan[name] for name in COMPRESSED} == {TopK(density=0.0125)}


def test_a_budget_that_no_candidate_meets_is_said() -> None:
    policy = LGreCo(TopK(density=0.05), alpha=0.01)
    policy.start(LAYERS, WORLD)
    tables = tables_of(policy)
    made, _ = propose(policy, tables)
    assert "infeasible" in made.why
    assert made.plan == Static(TopK(density=0.05)).start(LAYERS, WORLD)
    made, before = propose(policy, tables, steps=5000)
    assert dict(made.plan) == before


def test_a_ladder_of_one_rung_is_the_uniform_plan() -> None:
    policy = LGreCo(Sign())
    policy.start(LAYERS, WORLD)
    made, _ = propose(policy, tables_of(policy))
    assert made.plan == Static(Sign()).start(LAYERS, WORLD)


def test_a_ladder_may_mix_families() -> None:
    mixed = [Quantize(bits=4), Sign(), TopK(density=0.02), TopK(density=0.3), PowerSGD(rank=4), Quantize(bits=8)]
    policy = LGreCo(mixed)
    policy.start(LAYERS, WORLD)
    tables = tables_of(policy)
    assert {type(rung) for rung in tables["a.weight"].rungs} == {Quantize, Sign, TopK, PowerSGD}
    made, _ = propose(policy, tables)
    assert sizes(made.plan) <= sizes(Static(mixed[0]).start(LAYERS, WORLD))
    assert left(made.plan, tables) <= sum(t.errors[t.rungs.index(mixed[0])] for t in tables.values()) * (1 + 1e-9)


@pytest.mark.parametrize("base", BASES, ids=str)
def test_mixed_candidates_of_all_families_are_never_worse_than_the_bases_own(base: Compressor) -> None:
    own, mixed = LGreCo(base, low=0.25, high=4.0), LGreCo(base, low=0.25, high=4.0, mixed=True)
    found = []
    for policy in (own, mixed):
        policy.start(LAYERS, WORLD)
        tables = tables_of(policy)
        made, _ = propose(policy, tables)
        assert left(made.plan, tables) <= left(Static(base).start(LAYERS, WORLD), tables) * (1 + 1e-9)
        found.append(sizes(made.plan))
    assert found[1] <= found[0] * (1 + len(COMPRESSED) / UNITS), "more to choose from, on the same axis"
    assert {Chain, PowerSGD, Quantize} <= {type(rung) for rung in tables["a.weight"].rungs}
    assert mixed.rounds(LAYERS, WORLD) == 2


def test_a_plan_stays_while_another_would_save_less_than_the_hysteresis() -> None:
    """One rung gentler than the best in one layer: more bytes by a share that is known, and less error."""
    base = LGreCo(TopK(density=0.05))
    base.start(LAYERS, WORLD)
    tables = tables_of(base)
    best, _ = propose(base, tables)
    rungs = tables["a.weight"].rungs
    gentler = rungs[rungs.index(best.plan["a.weight"]) - 1]
    used = Plan({**best.plan, "a.weight": gentler})
    bytes_of = [sum(plan[n].wire_bytes(layer, WORLD) for layer in LAYERS if (n := layer.name) in tables)
                for plan in (best.plan, used)]  # fmt: skip
    share = bytes_of[1] / bytes_of[0] - 1
    assert 0 < share < 0.5
    for hysteresis, taken in [(0.0, best.plan), (0.99 * share, best.plan), (1.01 * share, used)]:
        policy = LGreCo(TopK(density=0.05), hysteresis=hysteresis)
        policy.start(LAYERS, WORLD)
        assert policy.propose(Stats(steps=2 * STEPS, tables=tables), used).plan == taken


def test_windows_count_less_with_each_that_follows() -> None:
    """The second window's plan is that of the first's tables with half the weight; a checkpoint keeps them."""
    policy, again, plain = (LGreCo(TopK(density=0.05), memory=m, hysteresis=0.0) for m in (0.5, 0.5, 0.0))
    for one in (policy, again, plain):
        plan = one.start(LAYERS, WORLD)
    first, second = tables_of(policy, seed=0), tables_of(policy, seed=1, factor=3.0)
    policy.take_notes(policy.propose(Stats(steps=STEPS, tables=first), plan).notes)
    again.load_state_dict(policy.state_dict())
    blended = {
        name: replace(
            table,
            errors=tuple((0.5 * a + b) / 1.5 for a, b in zip(first[name].errors, table.errors, strict=True)),
            energy=(0.5 * first[name].energy + table.energy) / 1.5,
        )
        for name, table in second.items()
    }
    expected = plain.propose(Stats(steps=STEPS, tables=blended), plan)
    made = policy.propose(Stats(steps=STEPS, tables=second), plan)
    assert made.plan == expected.plan
    assert made.predicted == pytest.approx(expected.predicted)
    assert again.propose(Stats(steps=STEPS, tables=second), plan) == made
    assert "past" not in expected.notes


def test_a_plan_that_leaves_more_than_the_budget_and_the_hysteresis_does_not_stay() -> None:
    policy = LGreCo(TopK(density=0.05), hysteresis=0.02)
    policy.start(LAYERS, WORLD)
    tables = tables_of(policy)
    harsh = Static(TopK(density=0.025)).start(LAYERS, WORLD)
    assert left(harsh, tables) > 1.02 * left(Static(TopK(density=0.05)).start(LAYERS, WORLD), tables)
    made = policy.propose(Stats(steps=2 * STEPS, tables=tables), harsh).plan
    assert made != harsh
    assert left(made, tables) <= left(Static(TopK(density=0.05)).start(LAYERS, WORLD), tables) * (1 + 1e-9)


def test_on_accordion_the_budget_is_that_of_its_choice() -> None:
    policy = LGreCo(Accordion(low=TopK(density=0.1), high=TopK(density=0.02)))
    policy.start(LAYERS, WORLD)
    tables = tables_of(policy)
    first, _ = propose(policy, tables)
    little = Static(TopK(density=0.1)).start(LAYERS, WORLD)
    assert left(first.plan, tables) <= left(little, tables) * (1 + 1e-9)
    policy.take_notes(first.notes)
    second = policy.propose(
        Stats(steps=2000, tables=tables), first.plan
    )  # norms have not changed: all leave the regime
    much = Static(TopK(density=0.02)).start(LAYERS, WORLD)
    assert second.notes["accordion"]["high"] == COMPRESSED
    assert left(second.plan, tables) <= left(much, tables) * (1 + 1e-9)
    assert sizes(second.plan) <= sizes(much) < sizes(first.plan)
    assert "Accordion" in second.why
    again = LGreCo(Accordion(low=TopK(density=0.1), high=TopK(density=0.02)))
    again.start(LAYERS, WORLD)
    again.load_state_dict(policy.state_dict())
    assert again.propose(Stats(steps=2000, tables=tables), first.plan) == second


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("period", {"period": 0}), ("period", {"period": 1.5}), ("warmup", {"warmup": -1}), ("alpha", {"alpha": 0}),
        ("alpha", {"alpha": nan}), ("alpha", {"alpha": inf}), ("low", {"low": 0}), ("low", {"low": 2}),
        ("high", {"high": 0.5}), ("high", {"high": nan}), ("base", {"base": Dense()}), ("base", {"base": []}),
        ("hysteresis", {"hysteresis": -0.1}), ("hysteresis", {"hysteresis": nan}), ("memory", {"memory": 2}),
        ("base", {"base": "TopK"}), ("base", {"base": [TopK(), Dense()]}),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(key: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=f"^{key}="):
        LGreCo(**{"base": TopK(), **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("base", BASES, ids=str)
def test_on_running_ranks_all_change_at_one_step_to_fewer_bytes_and_keep_every_residual(base: Compressor) -> None:
    team = Team(lambda: LGreCo(base, warmup=14, period=20), size=2)
    sent, given = torch.zeros(1), torch.zeros(1)
    for step in range(40):
        gradients = [draw(step, rank) for rank in range(2)]
        given = given + torch.cat([sum(own[layer.name] for own in gradients).flatten() for layer in LAYERS]) / 2  # type: ignore[union-attr]
        sent = sent + team.step(gradients)[0]
    histories = [[(c.step, c.plan.digest, c.why) for c in controller.history] for controller in team.controllers]
    assert histories[0] == histories[1]
    assert [step for step, _, _ in histories[0]][:1] == [15]
    held = torch.cat([
        sum(e.ledger.accounts[layer.name].residual if e.ledger.accounts[layer.name].residual is not None
            else torch.zeros(layer.numel) for e in team.engines) for layer in LAYERS
    ]) / 2  # fmt: skip
    assert torch.allclose(sent + held, given, atol=40 * 2.0**-20 * float(given.abs().max()))
    first = team.controllers[0].history[0]
    assert first.predicted["bytes"] <= sizes(Static(base).start(LAYERS, WORLD))
    told = sum(2 + len(rungs) for rungs in team.policies[0].watch(12, team.plan).values())
    riders = 8 * told + 100  # two energies and an error for each rung, in watched steps; and what every step carries
    assert first.predicted["bytes"] <= first.measured["bytes"] <= first.predicted["bytes"] + riders
    assert first.measured["step_s"] > 0
    assert first.measured["error"] > 0
    if isinstance(base, Quantize):  # of the others the residual grows from what it was in the dense warm-up: nothing
        assert first.measured["error"] == pytest.approx(first.predicted["error"], rel=0.25)
    team.close()
