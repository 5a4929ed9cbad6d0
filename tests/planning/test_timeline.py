"""The timeline against Espresso's golden case, against SimPy, and against itself."""

import random
from itertools import pairwise

import pytest
import simpy

from laconic.planning.timeline import INTER, NODE, SIDE, Replay, Talk, finish, play
from tests.planning.cases import random_board

READY = (1.0, 4.0, 5.0)
DENSE, COMPRESSED, ENCODE = (2.0, 4.0, 6.0), (0.5, 1.0, 1.0), (0.6, 0.8, 1.0)


def golden(choice: str) -> list[Talk]:
    return [
        Talk(ENCODE[i], ((INTER, COMPRESSED[i]),)) if bit == "1" else Talk(0.0, ((INTER, DENSE[i]),))
        for i, bit in enumerate(choice)
    ]


@pytest.mark.parametrize(("choice", "seconds"), [("000", 14.0), ("001", 9.0), ("011", 7.8), ("111", 8.4)])
def test_golden_case(choice, seconds):
    assert finish(READY, golden(choice)) == pytest.approx(seconds, abs=1e-12)


def test_golden_bubble_before_tensor_one():
    assert play(READY, golden("000")).bubbles() == [(1, 3.0, 4.0)]


def by_simpy(ready, talks) -> float:
    """The same model written as processes and queues."""
    env = simpy.Environment()
    resources = [simpy.Resource(env) for _ in range(4)]

    def converse(talk):
        for resource, seconds in talk.steps:
            with resources[resource].request() as turn:
                yield turn
                yield env.timeout(seconds)

    def backward():
        before = 0.0
        for when, talk in zip(ready, talks, strict=True):
            yield env.timeout(when - before)
            before = when
            if talk.delay:
                yield env.timeout(talk.delay)
            env.process(converse(talk))

    env.process(backward())
    env.run()
    return env.now + sum(talk.settle for talk in talks)


def random_case(dice):
    board = random_board(dice, dice.randint(1, 30), 3, offload=True)
    choice = tuple(dice.randrange(len(column.talks)) for column in board.columns)
    return board.ready, [talk._replace(settle=dice.choice([0.0, 0.3])) for talk in board.talks(choice)]


def test_simpy_agrees():
    """To rounding: SimPy adds durations up one by one."""
    dice = random.Random(11)
    for _ in range(400):
        ready, talks = random_case(dice)
        assert finish(ready, talks) == pytest.approx(by_simpy(ready, talks), rel=1e-9)


def test_record_and_figure_agree():
    dice = random.Random(12)
    for _ in range(100):
        ready, talks = random_case(dice)
        timeline = play(ready, talks)
        assert timeline.seconds == pytest.approx(finish(ready, talks), rel=1e-12)
        assert len(timeline.spans) == sum(len(talk.steps) for talk in talks)
        for resource in range(4):
            held = [span for span in timeline.spans if span.resource == resource]
            assert all(span.start >= span.asked for span in held)
            assert all(a.end <= b.start and a.asked <= b.asked for a, b in pairwise(held))
            work = sum(s for talk in talks for r, s in talk.steps if r == resource)
            assert timeline.busy(resource) == pytest.approx(work)


def test_a_replay_is_a_simulation():
    dice = random.Random(13)
    for _ in range(60):
        ready, talks = random_case(dice)
        replay = Replay(ready, talks, stride=dice.choice([1, 4, 16]))
        for _ in range(8):
            index = dice.randrange(len(talks))
            other = random_case(dice)[1][0]
            changed = [*talks[:index], other, *talks[index + 1 :]]
            assert replay.with_change(index, other) == pytest.approx(finish(ready, changed), rel=1e-12)
            assert replay.seconds == pytest.approx(finish(ready, talks), rel=1e-12)
            if dice.random() < 0.5:
                replay.change(index, other)
                talks = changed
                assert replay.seconds == pytest.approx(finish(ready, talks), rel=1e-12)


def test_links_of_two_scopes_overlap():
    """Two conversations, inside then across: the second's inside part runs beside the first's across part."""
    talk = Talk(0.0, ((NODE, 2.0), (INTER, 3.0)))
    assert finish([0.0, 0.0], [talk, talk]) == 2 + 3 + 3


def test_decoding_at_the_end_of_the_step_is_added_and_decoding_at_once_is_hidden():
    at_once = [Talk(0.0, ((INTER, 5.0), (SIDE, 1.0)))] * 2
    at_end = [Talk(0.0, ((INTER, 5.0),), settle=1.0)] * 2
    assert finish([0.0, 0.0], at_once) == 11
    assert finish([0.0, 0.0], at_end) == 12
