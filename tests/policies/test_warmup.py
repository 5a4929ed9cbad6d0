"""The dense start follows the learning rate where it can be seen, and every rank ends it at the same step."""

from collections.abc import Callable

import pytest
from team import Team

from laconic import Dense, LGreCo, TopK
from laconic.policies.warmup import AHEAD, LONGEST, LOOK, STEPS, WarmUp

Schedule = Callable[[int], float | None]


def end_of(schedule: Schedule) -> int:
    """Where the warm-up ends under a schedule of learning rates."""
    warmup, step = WarmUp(), 0
    while step < warmup.ends:
        step += 1
        if warmup.looks(step):
            warmup = warmup.looked(step, schedule(step))
    return warmup.ends


@pytest.mark.parametrize("length", [60, 100, 137, 400, 1000, 2000, 3700])
def test_a_linear_warm_up_is_followed_to_its_end_and_left_soon_after(length: int) -> None:
    ends = end_of(lambda step: min(1.0, step / length))
    assert length < ends <= length + 3 * LOOK + AHEAD, "seen a look late, waited for two looks, then watched"


@pytest.mark.parametrize("stair", [40, 130, 390])
def test_a_rate_that_rises_in_stairs_is_waited_for_one_stair_longer(stair: int) -> None:
    ends = end_of(lambda step: min(5, 1 + step // stair) / 5)
    assert 4 * stair < ends <= 5 * stair + 3 * LOOK + AHEAD


@pytest.mark.parametrize("schedule", [lambda step: None, lambda step: 0.1, lambda step: 0.999**step], ids=str)
def test_where_no_rate_is_seen_to_rise_it_takes_its_default(schedule: Schedule) -> None:
    assert end_of(schedule) == STEPS


def test_a_rate_that_rises_for_ever_is_no_warm_up() -> None:
    assert end_of(float) == LONGEST


def test_running_ranks_end_it_by_rank_0s_rate_at_one_step() -> None:
    """Rank 1 sees another rate, which changes nothing."""
    team: Team = Team(lambda: LGreCo(TopK(density=0.05), period=1000), learning_rate=lambda rank: rate(rank))

    def rate(rank: int) -> float:
        done = team.engines[0].observer.steps
        return min(done, 70) / 70 if rank == 0 else 1.0 / (1 + done)

    team.run(75 + 2 * LOOK + AHEAD)  # the rise is seen last at 75
    assert set(team.plan.values()) == {Dense()}
    team.run(3)
    assert [[change.step for change in one.history] for one in team.controllers] == 2 * [[75 + 2 * LOOK + AHEAD + 1]]
    team.close()


def test_a_warm_up_that_is_given_is_kept_whatever_the_rate_does() -> None:
    team = Team(
        lambda: LGreCo(TopK(density=0.05), warmup=30), learning_rate=lambda rank: team.engines[0].observer.steps
    )
    team.run(33)
    assert [change.step for change in team.controllers[1].history] == [31]
    team.close()


def test_where_it_stands_goes_into_a_checkpoint() -> None:
    team = Team(lambda: LGreCo(TopK(density=0.05)), learning_rate=lambda rank: team.engines[0].observer.steps)
    team.run(52)
    again = LGreCo(TopK(density=0.05))
    again.start(team.layers, team.comms[0].world)
    again.load_state_dict(team.policies[1].state_dict())
    assert [step for step in range(2000) if again.due(step)] == [
        step for step in range(2000) if team.policies[0].due(step)
    ]
    assert not again.due(STEPS)
    team.close()
