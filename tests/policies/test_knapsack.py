"""The knapsack: exact to its discretisation, never worse than what is known, and said where nothing fits."""

import time

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from laconic.errors import InvalidConfig
from laconic.planning import knapsack
from laconic.planning.knapsack import ROUNDING, UNITS, Infeasible, extended, solve

GOLDEN = ([[3, 2, 0.7], [2.4, 2, 1.6], [5, 2, 1.9]], [[4, 8, 16], [400, 800, 1600], [20, 40, 80]])
TRAP = ([[4, 2, 1], [6, 3, 2.5], [1, 0.5, 0.1]], [[10, 20, 40], [100, 200, 400], [8, 16, 32]])


def oracle(errors: list[list[float]], sizes: list[list[int]], budget: float) -> float | None:
    """The least size by mixed-integer programming; None where there is none."""
    flat_errors, flat_sizes = np.concatenate(errors), np.concatenate(sizes).astype(float)
    one_each = np.zeros((len(errors), len(flat_errors)))
    start = 0
    for row, ladder in enumerate(errors):
        one_each[row, start : start + len(ladder)] = 1
        start += len(ladder)
    limits = [LinearConstraint(one_each, 1, 1), LinearConstraint(flat_errors[None], -np.inf, budget)]
    found = milp(flat_sizes, constraints=limits, integrality=np.ones_like(flat_sizes), bounds=Bounds(0, 1))
    return float(found.fun) if found.success else None


def ladders(rng: np.random.Generator, layers: int) -> tuple[list[list[float]], list[list[int]]]:
    """Errors that fall and sizes that grow along each ladder, over several orders of magnitude."""
    errors, sizes = [], []
    for _ in range(layers):
        rungs, scale = int(rng.integers(1, 8)), 10 ** rng.uniform(-3, 3)
        errors.append((np.sort(rng.uniform(0, 1, rungs))[::-1] * scale).tolist())
        sizes.append(np.sort(rng.integers(1, 100_000, rungs)).tolist())
    return errors, sizes


def test_the_golden_case() -> None:
    assert solve(*GOLDEN, budget=6.0, known=(1, 1, 1)).rungs == (2, 0, 1)


def test_the_plan_that_makes_the_budget_is_found_although_rounding_its_errors_up_exceeds_the_axis() -> None:
    """Naively 248: the uniform plan, of 236, was rounded out of reach."""
    for known in (None, (1, 1, 1)):
        choice = solve(*TRAP, budget=5.5, known=known)
        assert (choice.rungs, choice.size, choice.error) == ((1, 1, 1), 236, 5.5)


@pytest.mark.parametrize("seed", range(25))
def test_the_size_lies_between_the_optimum_and_that_of_a_budget_smaller_by_the_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    errors, sizes = ladders(rng, int(rng.integers(2, 25)))
    uniform = [int(rng.integers(len(row))) for row in errors]
    budget = sum(row[at] for row, at in zip(errors, uniform, strict=True))
    choice = solve(errors, sizes, budget)
    best = oracle(errors, sizes, budget * (1 + 1e-9))
    assert best is not None
    assert choice.size >= best - 1e-6
    tighter = oracle(errors, sizes, budget * (1 - len(errors) / UNITS))
    assert tighter is None or choice.size <= tighter + 1e-6
    assert choice.error <= budget * (1 + ROUNDING)
    assert choice.error == pytest.approx(sum(row[at] for row, at in zip(errors, choice.rungs, strict=True)))
    assert choice.size == sum(row[at] for row, at in zip(sizes, choice.rungs, strict=True))


@pytest.mark.parametrize("seed", range(25))
def test_never_worse_than_the_plan_that_is_known(seed: int) -> None:
    """Also where the errors lie right on the edges of the axis' units."""
    rng = np.random.default_rng(seed)
    errors, sizes = ladders(rng, 40)
    uniform = [int(rng.integers(len(row))) for row in errors]
    budget = sum(row[at] for row, at in zip(errors, uniform, strict=True))
    assert solve(errors, sizes, budget, uniform).size <= sum(row[at] for row, at in zip(sizes, uniform, strict=True))


@pytest.mark.parametrize("seed", range(25))
def test_the_compiled_rows_are_those_of_numpy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    errors, sizes = ladders(rng, 30)
    budget = float(rng.choice([0.3, 1, 3, 100])) * sum(row[-1] for row in errors) + 1e-9
    found = solve(errors, sizes, budget) if budget >= sum(map(min, errors)) else None
    monkeypatch.setattr(knapsack, "_extend", extended)
    if found is None:
        with pytest.raises(Infeasible):
            solve(errors, sizes, budget)
    else:
        assert solve(errors, sizes, budget) == found


def test_infeasible_is_said_with_its_numbers() -> None:
    with pytest.raises(Infeasible, match=r"gentlest rungs leave 3.*budget is 2"):
        solve([[2.0, 1.0], [2.0]], [[1, 2], [1]], 2.0)


def test_a_known_plan_outside_the_budget_is_not_taken() -> None:
    assert solve([[5.0, 1.0]], [[1, 9]], 2.0, known=(0,)).rungs == (1,)


def test_a_budget_of_nothing_buys_what_leaves_nothing() -> None:
    assert solve([[1.0, 0.0, 0.0], [0.0, 0.0]], [[1, 7, 5], [3, 2]], 0.0).rungs == (2, 1)
    with pytest.raises(Infeasible):
        solve([[1.0]], [[1]], 0.0)


def test_no_layers_and_layers_of_one_rung() -> None:
    assert solve([], [], 1.0).rungs == ()
    assert solve([[0.5], [0.25]], [[10], [20]], 1.0).rungs == (0, 0)


@pytest.mark.parametrize("budget", [float("nan"), float("inf"), -1.0])
def test_a_budget_that_is_no_number_is_refused(budget: float) -> None:
    with pytest.raises(InvalidConfig, match="budget"):
        solve([[1.0]], [[1]], budget)


@pytest.mark.parametrize(
    ("errors", "sizes"), [([[float("nan")]], [[1]]), ([[1.0]], [[1, 2]]), ([[]], [[]]), ([[-1.0]], [[1]])]
)
def test_tables_that_make_no_sense_are_refused(errors: list[list[float]], sizes: list[list[int]]) -> None:
    with pytest.raises(InvalidConfig, match=r"errors\[0\]"):
        solve(errors, sizes, 1.0)


def test_sizes_beyond_32_bits_and_tiny_budgets_are_exact() -> None:
    big = 1 << 40
    assert solve([[2e-320, 1e-320]] * 3, [[big, big + 1]] * 3, 5e-320).size == 3 * big + 1


def test_a_model_of_300_layers_is_solved_in_a_blink() -> None:
    """16 rungs, 10,000 units: below 100 ms of the processor's time at its quickest of five."""
    rng = np.random.default_rng(0)
    errors = np.sort(rng.uniform(0, 1, (300, 16)), axis=1)[:, ::-1].tolist()
    sizes = (8 * np.sort(rng.integers(1, 1_000_000, (300, 16)), axis=1)).tolist()
    budget = sum(row[8] for row in errors)
    taken = []
    for _ in range(5):
        began = time.process_time()
        solve(errors, sizes, budget, [8] * 300)
        taken.append(time.process_time() - began)
    assert min(taken) < 0.1, taken
