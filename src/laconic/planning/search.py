"""Which option for which tensor: Espresso's published decision, a search that is never worse, and brute force.

Espresso (arXiv 2205.14465) decides for the device first: tensors by size, the option with the least time with the
others fixed, and tensors that are sent before a bubble of the link are let go, since compressing them only widens it.
Then it offloads to the host, in groups of equal size and option, the earliest of the backward pass first.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from laconic.errors import InvalidConfig
from laconic.planning.board import Board, Choice
from laconic.planning.branch import branch_and_bound
from laconic.planning.judge import TINY, Estimate, Exact, Judge

ENUMERATED = 64  # combinations of offload counts that are all tried; beyond, one group at a time
NEAR = 1.025  # of the bound: near enough for the closed form's decision to stand
AGAIN = 80  # simulations that decide again where it is not, in models that are not small
SIMULATIONS = 3000  # that `better` may spend
CLOSE = 1.0005  # of the bound: nothing worth having is left
SMALL = 16  # tensors: such models are searched in pairs, and by branch and bound


def espresso(board: Board, judged_by: Callable[[Board, Choice], Judge] | None = None) -> Choice:
    """The published two-stage decision; never worse than dense.

    With `Exact` every comparison is a simulation, as published; with `Estimate` it is the closed form, which takes a
    few milliseconds for hundreds of tensors. By default the closed form decides, and where that ends too far above the
    bound, simulations decide again and the better decision stands: in models that are not small a limited number, and
    of tensors of one shape only the first tries every option.
    """
    if judged_by is not None:
        judge = judged_by(board, board.dense())
        _compress(board, judge)
        _offload(board, judge)
        return min(judge.choice(), board.dense(), key=board.seconds)
    choice = espresso(board, Estimate)
    if board.seconds(choice) <= board.bound() * NEAR:
        return choice
    if len(board) <= SMALL:
        return min(choice, espresso(board, Exact), key=board.seconds)
    exact = Exact(board, board.dense(), AGAIN)
    _compress(board, exact, alike=True)
    _offload(board, exact)
    return min(choice, exact.choice(), key=board.seconds)


def by_size(board: Board) -> list[int]:
    """Largest first, of equals the last of the backward pass first."""
    return sorted(range(len(board)), key=lambda i: (-board.sizes[i], -i))


def _compress(board: Board, judge: Judge, alike: bool = False) -> None:
    """Tensor by tensor; with `alike`, a tensor takes what one of its shape took before, if that helps, or nothing."""
    bubble, changed = judge.last_bubble(), False
    taken: dict[int, int] = {}
    for tensor in by_size(board):
        if changed:
            bubble, changed = max(bubble, judge.last_bubble()), False
        if tensor < bubble:
            continue
        column, held = board.columns[tensor], judge.seconds
        known = taken.get(id(column)) if alike else None
        time, option = judge.best(tensor, column.worthy_on_device if known is None else column.rows([known]))
        if time < held:
            judge.take(tensor, option)
            changed = known is None
            taken[id(column)] = option


def _offload(board: Board, judge: Judge) -> None:
    groups: dict[tuple[int, int], list[int]] = {}
    for tensor, option in enumerate(judge.choice()):
        if option and board.columns[tensor].twins[option] >= 0:
            groups.setdefault((board.sizes[tensor], option), []).append(tensor)
    members = list(groups.values())
    if prod(len(group) + 1 for group in members) <= ENUMERATED:
        _offload_all_counts(board, judge, members)
    else:
        _offload_by_group(board, judge, members)


def _move(board: Board, judge: Judge, tensor: int, home: int, away: bool) -> None:
    judge.take(tensor, board.columns[tensor].twins[home] if away else home)


def _offload_all_counts(board: Board, judge: Judge, groups: Sequence[Sequence[int]]) -> None:
    """Every vector of counts, in an order in which neighbours differ by few moves."""
    homes = judge.choice()
    best, found = judge.seconds, tuple(0 for _ in groups)
    counts = [0] * len(groups)

    def go(to: Sequence[int]) -> None:
        for g, group in enumerate(groups):
            while counts[g] < to[g]:
                _move(board, judge, group[counts[g]], homes[group[counts[g]]], True)
                counts[g] += 1
            while counts[g] > to[g]:
                counts[g] -= 1
                _move(board, judge, group[counts[g]], homes[group[counts[g]]], False)

    for vector in product(*(range(len(group) + 1) for group in groups)):
        go(vector)
        if judge.seconds < best - TINY:
            best, found = judge.seconds, vector
    go(found)


def _offload_by_group(board: Board, judge: Judge, groups: Sequence[Sequence[int]]) -> None:
    """The fallback, where sizes are many and their product explodes: one group at a time, the one that delays the
    backward pass most first; in a group tensors move while that helps.
    """
    homes = judge.choice()

    def delays(group: Sequence[int]) -> float:
        return sum(board.columns[tensor].talks[homes[tensor]].delay for tensor in group)

    for group in sorted(groups, key=delays, reverse=True):
        for tensor in group:
            time, option = judge.best(tensor, board.columns[tensor].rows([board.columns[tensor].twins[homes[tensor]]]))
            if option == homes[tensor] or time >= judge.seconds - TINY:
                break
            judge.take(tensor, option)


def better(board: Board, start: Choice | None = None, simulations: int = SIMULATIONS) -> Choice:
    """Local search from several plans; never worse than Espresso's, than any uniform plan, and than `start`.

    Starts are Espresso's choice, dense, and every expression used wherever it may be. Each is improved tensor by tensor
    under the closed form, host and device alike; the best by simulation is then improved by simulation, one tensor at a
    time; where the model is small, also two, and then by branch and bound. Its effort is limited by counts and not by a
    clock, so it is deterministic.
    """
    starts = [espresso(board), espresso(board, Estimate), board.dense(), *uniform(board)]
    if start is not None:
        starts.append(start)
    seen: dict[Choice, float] = {}
    for choice in dict.fromkeys(starts):
        estimate = Estimate(board, choice)
        _descend(board, estimate, passes=3)
        for candidate in (choice, estimate.choice()):
            if candidate not in seen:
                seen[candidate] = board.seconds(candidate)
    ranked = sorted(seen, key=lambda choice: seen[choice])
    best, left = ranked[0], simulations
    if seen[best] <= board.bound() * CLOSE:
        return best
    small = len(board) <= SMALL
    for choice in ranked[: 6 if small else 2]:
        exact = Exact(board, choice, left)
        _descend(board, exact, passes=50)
        if small:
            _pairs(board, exact)
        left = exact.left
        if exact.seconds < board.seconds(best):
            best = exact.choice()
        if left <= 0:
            break
    return branch_and_bound(board, best)[0] if small else best


def uniform(board: Board) -> list[Choice]:
    """For every expression the plan that uses it wherever it may be used."""
    every = dict.fromkeys(option for column in board.columns for option in column.options if option is not None)
    places = [{option: k for k, option in enumerate(column.options)} for column in board.columns]
    return [tuple(place.get(option, 0) for place in places) for option in every]


def _descend(board: Board, judge: Judge, passes: int) -> None:
    """Tensor by tensor, largest first, until a pass changes nothing."""
    order = by_size(board)
    for _ in range(passes):
        changed = False
        for tensor in order:
            held = judge.seconds
            time, option = judge.best(tensor, board.columns[tensor].worthy)
            if time < held - TINY:
                judge.take(tensor, option)
                changed = True
        if not changed:
            return


def _pairs(board: Board, judge: Exact) -> None:
    """Two tensors at once, until no pair helps."""
    improved = True
    while improved:
        improved = False
        for first in range(len(board)):
            for option in board.columns[first].worthy.options:
                held, before = judge.choice()[first], judge.seconds
                if option == held:
                    continue
                if judge.left <= 0:
                    return
                judge.take(first, option)
                least, change = before, None
                for second in range(len(board)):
                    if second != first:
                        time, other = judge.best(second, board.columns[second].worthy)
                        if time < least - TINY:
                            least, change = time, (second, other)
                if change is None:
                    judge.take(first, held)
                else:
                    judge.take(*change)
                    improved = True


def brute_force(board: Board, most: int = 2_000_000) -> Choice:
    """The best of all plans; only for the smallest cases."""
    plans = prod(len(column.talks) for column in board.columns)
    if plans > most:
        raise InvalidConfig("plans", plans, f"brute force stops at {most}; use `better`")
    return min(product(*(range(len(column.talks)) for column in board.columns)), key=board.seconds)
