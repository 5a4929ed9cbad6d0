"""The controller: notes reach every rank or none, reactions need no word, promises are measured, all of it recorded."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from team import LAYERS, Team

from laconic import Compressor, Dense, Divided, GraVAC, Layer, Plan, Policy, Proposal, Static, Stats, Table, TopK, World
from laconic.cli import main
from laconic.control.record import Recorder
from laconic.control.sounding import SIZES
from laconic.integrations.report import report


class Noting(Policy):
    """Proposes a density that its notes count up, on rank 0 only; where told, one that nobody can use."""

    period = 4

    def __init__(self, refused: bool = False) -> None:
        self.count, self.refused, self.asked = 0, refused, 0

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        return Static(TopK(density=0.2)).start(layers, world)

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        self.asked += 1
        one: Compressor = TopK(density=0.2 / (self.count + 2))
        if self.refused:
            one = Divided(TopK(density=0.1))  # two rounds
        entries = {name: old if old.lossless else one for name, old in plan.items()}
        why = {"b.bias": "a reason"}
        return Proposal(Plan(entries, why), f"count {self.count}", {"count": self.count + 1}, {"error": 0.5})

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        self.count = notes["count"]


def test_notes_and_reasons_of_rank_0_reach_every_rank_with_the_plan() -> None:
    team = Team(Noting, size=3)
    team.run(14)
    assert [policy.count for policy in team.policies] == [3, 3, 3]
    assert [policy.asked for policy in team.policies] == [3, 0, 0]
    assert {policy.count for policy in team.policies} == {len(team.controllers[1].history)}
    assert [change.step for change in team.controllers[2].history] == [5, 9, 13]
    assert team.plan.why == {"b.bias": "a reason"}
    team.close()


def test_a_plan_that_is_refused_leaves_plan_and_notes_as_they_were() -> None:
    team = Team(lambda: Noting(refused=True))
    for comm in team.comms:
        comm.lanes = 1
    team.run(10)
    assert [policy.count for policy in team.policies] == [0, 0]
    assert not team.controllers[0].history
    team.close()


def test_every_change_is_measured_by_the_next_decision() -> None:
    team = Team(Noting)
    team.run(14)
    team.controllers[0].stop()
    for change in team.controllers[0].history:
        expected = sum(change.plan[layer.name].wire_bytes(layer, World(size=2)) for layer in LAYERS)
        assert change.predicted == {"bytes": expected, "error": 0.5}
        assert expected <= change.measured["bytes"] <= expected + 100  # and riders
    for change in team.controllers[0].history[:-1]:  # the last had one step, and the first of a plan is not timed
        assert change.measured["step_s"] > 0
    team.close()


class Reacting(Policy):
    """Dense as soon as it hears anything."""

    period = 1 << 30

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        return Static(TopK(density=0.1)).start(layers, world)

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        return {"a.weight": ()} if step == 3 else {}

    def react(self, step: int, news: Mapping[str, Table], plan: Plan) -> tuple[Plan, str]:
        return (Plan(dict.fromkeys(plan, Dense())), f"heard {set(news)}") if news else (plan, "")


def test_a_reaction_takes_effect_with_the_step_after_the_one_that_told() -> None:
    team = Team(Reacting)
    team.run(7)
    for controller in team.controllers:
        assert [(change.step, change.why) for change in controller.history] == [(5, "heard {'a.weight'}")]
    assert set(team.plan.values()) == {Dense()}
    team.close()


class Sounding(Noting):
    """Wants the link timed beside the step before each decision, and keeps what it is told."""

    def sounds(self, step: int) -> bool:
        return step % self.period == self.period - 1

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        made = super().propose(stats, plan)
        return made._replace(notes={**made.notes, "sounding": stats.sounding})

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        super().take_notes(notes)
        self.told = notes["sounding"]


def test_a_sounding_is_there_for_the_decision_after_it_alike_on_every_rank_and_then_gone() -> None:
    team = Team(Sounding, size=3)
    team.run(6)
    (told, *others) = [policy.told for policy in team.policies]
    assert [nbytes for nbytes, _ in told] == list(SIZES[: len(told)])
    assert len(told) > 1
    assert all(seconds > 0 for _, seconds in told)
    assert others == [told, told]
    assert not team.controllers[0].stats().sounding
    team.close()


def test_after_a_stop_nothing_is_watched_or_proposed() -> None:
    team = Team(lambda: GraVAC(TopK(density=0.1), window=2, every=1))
    team.run(3)
    for controller in team.controllers:
        controller.stop()
    for engine in team.engines:
        engine.observer.tables.forget()
    before = team.plan
    team.run(4)
    assert team.plan is before
    assert len(team.engines[0].stats().tables) <= 3, "only what was under way"
    team.run(3)
    assert all(table.steps <= 1 for table in team.engines[0].stats().tables.values())
    team.close()


def test_explain_tells_a_record_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    team = Team(Noting)
    recorder = Recorder(path, None, World(size=2))
    recorder.start("0", team.plan, {layer.name: layer for layer in LAYERS})
    team.controllers[0]._recorder = recorder
    team.run(14)
    recorder.close()
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["start", "plan", "effect", "plan", "effect", "plan"]
    assert main(["explain", str(path)]) == 0
    told = capsys.readouterr().out
    for words in (
        "step 5: 3 layers changed",
        "count 1",
        "relative error 0.500",
        "TopK(density=0.2) -> TopK(density=0.1)",
    ):
        assert words in told
    assert told.count("not known") == 1, "the last change has not been measured"
    assert main(["explain", str(tmp_path / "none.jsonl")]) == 2


class Joining(Noting):
    """Leaves the compressors as they are and says whose bucket waits."""

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        return super().propose(stats, plan)._replace(plan=Plan(plan, waits=["a.weight", "b.bias"]))


def test_a_plan_that_differs_in_who_waits_is_another_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, team = tmp_path / "run.jsonl", Team(Joining)
    recorder = Recorder(path, None, World(size=2))
    recorder.start("0", team.plan, {layer.name: layer for layer in LAYERS})
    team.controllers[0]._recorder = recorder
    before = team.plan
    team.run(14)
    recorder.close()
    assert team.plan == Plan(before, waits=["a.weight", "b.bias"]) != before
    assert len(team.controllers[0].history) == 1, "the same once more is no change"
    assert main(["explain", str(path)]) == 0
    told = capsys.readouterr().out
    assert "step 5: 0 layers changed" in told
    assert "buckets that end with these travel with the next: a.weight, b.bias" in told
    final = report(team.plan, team.controllers[0].stats(), team.policies[0], team.controllers[0].history)
    assert "travel with the next one: a.weight, b.bias." in final
    team.close()
