"""Plans change at the same step on every rank, or on none; disagreement is one error, alike everywhere."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from laconic import Disagreement, InvalidConfig, Plan, PowerSGD, Quantize, TopK
from laconic.comm.loopback import Loopback
from laconic.control.agreement import agree
from laconic.control.controller import Controller
from laconic.layer import Layer
from laconic.policies import Policy
from laconic.stats import Stats
from laconic.world import World
from tests.engine.fleet import Fleet, same_bits

LAYERS = (Layer("a", (12, 12)), Layer("b", (12, 12)))
PLANS = (Plan({"a": TopK(density=0.1)}), Plan({"a": TopK(density=0.1), "b": Quantize()}), Plan({"b": PowerSGD(rank=1)}))


class Turning(Policy):
    """The next plan of a list, each `period` steps."""

    def __init__(self, plans: Sequence[Plan], period: int) -> None:
        self.plans, self.period, self.asked = list(plans), period, 0

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        return self.plans[0].resolve(layers)

    def propose(self, stats: Stats, plan: Plan) -> tuple[Plan, str]:
        self.asked += 1
        return self.plans[self.asked % len(self.plans)].resolve(LAYERS), f"turn {self.asked}"


class Failing(Turning):
    def propose(self, stats: Stats, plan: Plan) -> tuple[Plan, str]:
        raise InvalidConfig("statistics", "nan", "wait for finite ones")


def run(
    policy: type[Turning], steps: int, lanes: Mapping[int, int] | None = None
) -> tuple[list[Controller], list[int]]:
    """Three ranks under one policy each; the steps at which each rank's plan changed must agree."""
    comms = Loopback.ranks(3)
    for rank, count in (lanes or {}).items():
        comms[rank].lanes = count
    policies = [policy(PLANS, 2) for _ in comms]
    with Fleet(LAYERS, PLANS[0], comms=comms) as fleet:
        controllers = [
            Controller(engine, comm, own) for engine, comm, own in zip(fleet.engines, comms, policies, strict=True)
        ]
        for step in range(steps):
            for controller in controllers:
                controller.tick()
                controller.tick()  # more often does no harm
            digests = {engine.plan.digest for engine in fleet.engines if engine.plan is not None}
            assert len(digests) == 1, "a rank has another plan"
            means = fleet.step(fleet.gradients(step))
            assert all(same_bits(mean[name], means[0][name]) for mean in means for name in fleet.layers)
        return controllers, [own.asked for own in policies]


def test_plans_change_at_the_same_step_everywhere() -> None:
    controllers, asked = run(Turning, 10)
    histories = [[(c.step, c.plan.digest, c.changed, c.why) for c in controller.history] for controller in controllers]
    assert histories[1] == histories[0]
    assert histories[2] == histories[0]
    assert [entry[0] for entry in histories[0]] == [3, 5, 7, 9], "proposed after step k, in use after step k + 1"
    assert [entry[3] for entry in histories[0]] == ["turn 1", "turn 2", "turn 3", "turn 4"]
    assert histories[0][0][2] == {"b": ("Dense", "Quantize(bits=4)")}
    assert asked == [4, 0, 0], "only rank 0 decides"


def test_if_one_rank_refuses_all_keep_the_old_plan(caplog: pytest.LogCaptureFixture) -> None:
    """Rank 1 has one lane and cannot hold PowerSGD's two rounds."""
    controllers, _ = run(Turning, 10, lanes={1: 1})
    steps = [[change.step for change in controller.history] for controller in controllers]
    assert steps == [[3, 7, 9]] * 3, "the plan after the second turn was refused by all, and later ones accepted"
    refusals = [record.getMessage() for record in caplog.records if "the old plan stays" in record.getMessage()]
    assert any("rank 1 refused the plan" in text for text in refusals)
    assert any("attach with lanes=2" in text for text in refusals)


def test_a_policy_that_cannot_decide_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    controllers, _ = run(Failing, 6)
    assert not any(controller.history for controller in controllers)
    assert "the policy could not propose a plan" in caplog.text


def test_a_stopped_controller_proposes_nothing() -> None:
    comms = Loopback.ranks(1)
    policy = Turning(PLANS, 1)
    with Fleet(LAYERS, PLANS[0], comms=comms) as fleet:
        controller = Controller(fleet.engines[0], comms[0], policy)
        controller.stop()
        fleet.step(fleet.gradients(0))
        assert controller.tick() is None
        assert policy.asked == 0


def disagree(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """What every rank is told."""

    def told(comm: Loopback) -> str:
        try:
            agree(comm, facts[comm.world.rank])
        except Disagreement as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(facts)) as pool:
        return list(pool.map(told, Loopback.ranks(len(facts))))


def test_ranks_that_agree_hear_nothing() -> None:
    assert disagree([{"plan": PLANS[1].to_json()}] * 4) == [""] * 4


@pytest.mark.parametrize("size", [2, 4])
def test_another_plan_is_the_same_error_everywhere_naming_the_first_layer(size: int) -> None:
    plans = [Plan({"a": TopK(density=0.1), "b": TopK(density=0.1)})] * size
    plans[-1] = Plan({"a": TopK(density=0.1), "b": TopK(density=0.2)})
    texts = disagree([{"library version": "1", "plan": plan.to_json()} for plan in plans])
    assert len(set(texts)) == 1
    assert "differ in their plan" in texts[0]
    assert '"b": "TopK(density=0.1)"' in texts[0]
    assert f'rank {size - 1} has "b": "TopK(density=0.2)"' in texts[0]


def test_the_root_of_a_difference_is_named_and_not_its_consequence() -> None:
    texts = disagree(
        [
            {"library version": "1", "parameters": "a (3,)\nb (2,)", "plan": "x"},
            {"library version": "1", "parameters": "a (3,)\nb (2,)\nc (1,)", "plan": "y"},
        ]
    )
    assert texts[0] == texts[1]
    assert "differ in their parameters: rank 0 has (nothing), rank 1 has c (1,)" in texts[0]


def test_texts_may_be_empty_or_not_ascii() -> None:
    texts = disagree([{"options": ""}, {"options": "größe"}])
    assert texts[0] == texts[1]
    assert "größe" in texts[0]
