"""Watched steps: sums over all ranks, one step later, inside messages that are sent anyway, and no trace otherwise."""

from collections.abc import Mapping, Sequence

import pytest
import torch
from team import LAYERS, Team, draw

from laconic import Cast, Compressor, Dense, Layer, Plan, Policy, PowerSGD, Quantize, Sign, TopK, World
from laconic.runtime.watch import Tables

RUNGS = (TopK(density=0.2), TopK(density=0.05), Quantize(bits=4), Quantize(bits=2), Sign(), PowerSGD(rank=2))


class Watching(Policy):
    """Watches some layers in some steps, and keeps what it hears."""

    period = 1 << 30

    def __init__(self, plan: Plan, layers: Sequence[str], steps: Sequence[int], fresh: bool = False) -> None:
        self.plan, self.layers, self.steps, self.fresh = plan, layers, steps, fresh
        self.news: list[Mapping[str, object]] = []

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        return self.plan.resolve(layers)

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        return dict.fromkeys(self.layers, RUNGS) if step in self.steps else {}

    def react(self, step: int, news: Mapping[str, object], plan: Plan) -> tuple[Plan, str]:  # type: ignore[override]
        self.news.append(news)
        return plan, ""


DENSE = Plan({layer.name: Dense() for layer in LAYERS})
SPARSE = Plan({"a.weight": TopK(density=0.1), "b.weight": Cast(), "b.bias": Dense(), "c.weight": PowerSGD(rank=1)})


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("plan", "fresh"), [(DENSE, False), (SPARSE, False), (SPARSE, True)], ids=["dense", "compressed", "fresh"]
)
def test_tables_are_the_sums_of_what_each_rank_would_leave(plan: Plan, fresh: bool, size: int) -> None:
    team = Team(lambda: Watching(plan, ["a.weight", "c.weight"], [1, 2], fresh), size)
    expected: dict[str, torch.Tensor] = {}
    for step in range(5):
        gradients = [draw(step, rank) for rank in range(size)]
        if step in (1, 2):
            for name in ("a.weight", "c.weight"):
                for engine, own in zip(team.engines, gradients, strict=True):
                    held = engine.ledger.accounts[name].residual
                    y = own[name] if held is None or fresh else own[name] + held.view(own[name].shape)
                    row = [own[name].square().sum().item(), y.square().sum().item(), *(r.error(y) for r in RUNGS)]
                    expected[name] = expected.get(name, torch.zeros(len(row))) + torch.tensor(row) / 2
        team.step(gradients)
    for engine in team.engines:
        tables = engine.stats().tables
        assert set(tables) == set(expected)
        for name, table in tables.items():
            told = torch.tensor([table.gradient, table.energy, *table.errors])
            assert table.steps == 2
            assert torch.allclose(told, expected[name], rtol=0.02, atol=0), name  # top-k errors are within 1.6%
            assert told[:2].tolist() == pytest.approx(expected[name][:2].tolist(), rel=1e-5)
    for heard in zip(*(policy.news for policy in team.policies), strict=True):
        assert all(one == heard[0] for one in heard), "a rank heard something else"
    steps = [number for number, news in enumerate(team.policies[0].news) if news]
    assert steps == [3, 4], "measured in steps 1 and 2, told in 2 and 3, known after 3 and 4 are counted"
    team.close()


def test_watching_adds_no_collective_and_copies_a_dense_bucket_only_to_tell() -> None:
    team = Team(lambda: Watching(DENSE, ["a.weight"], [1]))
    for step in range(4):
        team.step([draw(step, rank) for rank in range(2)])
        for comm, flat in zip(team.comms, team.flats, strict=True):
            ((_, nbytes, where),) = comm.log
            telling = step == 2
            assert (where == flat.data_ptr()) != telling
            assert nbytes == flat.nbytes + telling * 4 * (1 + 2 + len(RUNGS))
    team.close()


@pytest.mark.parametrize("plan", [DENSE, SPARSE], ids=["dense", "compressed"])
def test_watching_leaves_no_trace_in_the_means_and_residuals(plan: Plan) -> None:
    teams = [Team(lambda: Watching(plan, list(DENSE), [])), Team(lambda: Watching(plan, list(DENSE), range(9)))]
    for step in range(4):
        means = [team.step([draw(step, rank) for rank in range(2)])[0] for team in teams]
        assert torch.equal(*means)
    for name in DENSE:
        left = [team.engines[0].ledger.accounts[name].residual for team in teams]
        assert left[0] is left[1] is None or torch.equal(*left)  # type: ignore[arg-type]
    for team in teams:
        team.close()


@pytest.mark.parametrize("plan", [DENSE, SPARSE], ids=["dense", "compressed"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_tells_nothing_on_any_rank(plan: Plan, poison: float) -> None:
    team = Team(lambda: Watching(plan, ["a.weight"], [0, 1, 2]))
    for step in range(5):
        gradients = [draw(step, rank) for rank in range(2)]
        if step == 1:
            gradients[1]["a.weight"][3, 3] = poison
        team.step(gradients)
    tables = [engine.stats().tables for engine in team.engines]
    assert tables[0] == tables[1]
    assert tables[0]["a.weight"].steps == 2
    team.close()


def test_16_bit_gradients_are_measured_too() -> None:
    layers = (Layer("w", (32, 64), torch.bfloat16), Layer("v", (32, 64), torch.bfloat16))
    team = Team(lambda: Watching(Plan({"w": TopK(density=0.1), "v": Dense()}), ["w", "v"], [0]), 2, layers)
    gradients = [{name: value.bfloat16() for name, value in draw(0, rank, layers).items()} for rank in range(2)]
    for _ in range(3):
        team.step(gradients)
    tables = team.engines[0].stats().tables
    for name in ("w", "v"):
        energy = sum(float(own[name].double().square().sum()) for own in gradients)
        assert tables[name].energy == pytest.approx(energy, rel=1e-5)
        assert tables[name] == team.engines[1].stats().tables[name]
    team.close()


def test_tables_begin_again_when_the_rungs_change_or_a_decision_is_taken() -> None:
    tables = Tables()
    one, two = (TopK(density=0.1),), (TopK(density=0.2),)
    tables.add("w", one, [1.0, 4.0, 2.0])
    tables.add("w", one, [3.0, 8.0, 6.0])
    mean = tables.means()["w"]
    assert (mean.gradient, mean.energy, mean.errors, mean.steps) == (2.0, 6.0, (4.0,), 2)
    tables.add("w", one, [float("nan"), 4.0, 2.0])
    assert tables.means()["w"] == mean
    tables.add("w", two, [1.0, 1.0, 1.0])
    assert tables.means()["w"].steps == 1
    tables.forget()
    assert tables.means() == {}
