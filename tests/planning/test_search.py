"""Searches against brute force, against each other, and against the bound."""

import random

import pytest

from laconic.errors import InvalidConfig
from laconic.planning.board import Board, Column
from laconic.planning.branch import branch_and_bound
from laconic.planning.judge import Estimate, Exact
from laconic.planning.search import _offload_all_counts, _offload_by_group, better, brute_force, espresso
from laconic.planning.timeline import INTER, Talk
from tests.planning.cases import random_board
from tests.planning.test_timeline import COMPRESSED, DENSE, ENCODE, READY


def golden_board() -> Board:
    columns = tuple(
        Column((None, None), (Talk(0.0, ((INTER, d),)), Talk(e, ((INTER, c),))), (False, False), (-1, -1))
        for d, c, e in zip(DENSE, COMPRESSED, ENCODE, strict=True)
    )
    return Board(("0", "1", "2"), (200, 400, 600), READY, columns)


def small_boards(seed: int, count: int):
    dice = random.Random(seed)
    for _ in range(count):
        tensors = dice.randint(1, 8)
        offload = dice.random() < 0.5
        compressed = 1 if tensors > 5 else dice.randint(1, 2)
        yield random_board(dice, tensors, compressed, offload)


@pytest.mark.parametrize("judge", [Estimate, Exact])
def test_espresso_finds_the_golden_optimum(judge):
    board = golden_board()
    assert espresso(board, judge) == brute_force(board) == (0, 1, 1)
    assert better(board) == (0, 1, 1)


def test_the_first_tensor_of_the_golden_case_is_let_go_because_of_the_bubble():
    assert Estimate(golden_board(), (0, 0, 0)).last_bubble() == Exact(golden_board(), (0, 0, 0)).last_bubble() == 1


def test_better_is_within_one_percent_of_brute_force_and_the_bound_holds():
    for board in small_boards(21, 120):
        best = board.seconds(brute_force(board))
        found = board.seconds(better(board))
        assert best <= found + 1e-9
        assert found <= 1.01 * best
        assert board.bound() <= best + 1e-9


def test_branch_and_bound_alone_finds_what_it_calls_proven():
    for board in small_boards(22, 60):
        choice, proven = branch_and_bound(board, board.dense(), nodes=20_000)
        assert proven
        assert board.seconds(choice) == pytest.approx(board.seconds(brute_force(board)), rel=1e-9)


def test_better_is_never_worse_than_espresso_or_dense():
    dice = random.Random(23)
    for _ in range(6):
        board = random_board(dice, 30, 3, offload=True)
        found = board.seconds(better(board, simulations=300))
        assert found <= board.seconds(espresso(board)) + 1e-9
        assert found <= board.seconds(board.dense()) + 1e-9
        assert board.bound() <= found + 1e-9


def test_espresso_is_never_worse_than_dense():
    for board in small_boards(24, 150):
        assert board.seconds(espresso(board)) <= board.seconds(board.dense())


def test_the_estimate_is_exact_for_one_link_and_one_round():
    dice = random.Random(25)
    for _ in range(100):
        ready = sorted(dice.uniform(0, 10) for _ in range(12))
        talks = [
            tuple(Talk(dice.choice([0, dice.random()]), ((INTER, dice.random()),)) for _ in range(3)) for _ in ready
        ]
        columns = tuple(Column((None,) * 3, row, (False,) * 3, (-1,) * 3) for row in talks)
        board = Board(tuple(map(str, range(12))), tuple(dice.randrange(99) for _ in ready), tuple(ready), columns)
        choice = tuple(dice.randrange(3) for _ in ready)
        judge, exact = Estimate(board, choice), Exact(board, choice)
        assert judge.seconds == pytest.approx(board.seconds(choice), rel=1e-12)
        for tensor in range(12):
            table = columns[tensor].table
            assert judge.best(tensor, table)[0] == pytest.approx(exact.best(tensor, table)[0], rel=1e-9)
        tensor, option = dice.randrange(12), dice.randrange(3)
        judge.take(tensor, option)
        assert judge.seconds == pytest.approx(board.seconds(judge.choice()), rel=1e-12)
        assert espresso(board) == espresso(board, Exact)


def test_enumerating_offload_counts_is_at_least_as_good_as_the_fallback():
    for board in small_boards(26, 60):
        choices = []
        for offload in (_offload_all_counts, _offload_by_group):
            judge = Exact(board, tuple(min(1, len(column.talks) - 1) for column in board.columns))
            groups = [[i] for i, column in enumerate(board.columns) if column.twins[1] >= 0]
            offload(board, judge, groups)
            choices.append(judge.seconds)
        assert choices[0] <= choices[1] + 1e-9


def test_an_option_that_is_beaten_in_every_respect_is_not_worthy():
    talks = (
        Talk(0.0, ((INTER, 4.0),)),
        Talk(1.0, ((INTER, 2.0),)),
        Talk(1.0, ((INTER, 1.0),)),
        Talk(1.0, ((INTER, 1.0),)),
    )
    column = Column((None,) * 4, talks, (False,) * 4, (-1,) * 4)
    assert column.worthy.options == (0, 2)


def test_brute_force_says_when_it_is_too_much():
    with pytest.raises(InvalidConfig, match="brute force stops"):
        brute_force(random_board(random.Random(1), 30, 3, True))


def test_a_search_is_deterministic():
    board = random_board(random.Random(27), 40, 3, offload=True)
    assert better(board, simulations=200) == better(board, simulations=200)
    assert espresso(board) == espresso(board)
