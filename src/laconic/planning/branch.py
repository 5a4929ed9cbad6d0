"""Branch and bound: the best plan of a small model, proven, or the best found within so many nodes."""

from dataclasses import dataclass

import numpy as np

from laconic.planning.board import Array, Board, Choice
from laconic.planning.judge import TINY


@dataclass
class _Hunt:
    best: Choice
    seconds: float
    nodes: int


def branch_and_bound(board: Board, start: Choice, nodes: int = 4000) -> tuple[Choice, bool]:
    """The best choice found and whether it is proven to be the best; never worse than `start`.

    Tensors are decided from the largest. A node's bound: the jobs of tensor i and all later ones reach a resource no
    earlier than the first of them may, and then the resource has all their work before it; undecided tensors take of
    each resource the least of any option, and delay nothing.
    """
    order = sorted(range(len(board)), key=lambda i: (-board.sizes[i], -i))
    work = np.array([column.table.work.min(0) for column in board.columns])
    reach = np.array([_head(column.table.reach, column.table.work).min(0) for column in board.columns])
    reach[:, 4] = [column.table.reach[:, 4].min() for column in board.columns]
    reach += np.array(board.ready)[:, None]
    settle = sum(float(column.table.settle.min()) for column in board.columns)
    hunt = _Hunt(start, board.seconds(start), nodes)
    _expand(board, order, [0] * len(board), 0, work, reach, settle, hunt)
    return hunt.best, hunt.nodes > 0


def _head(reach: Array, work: Array) -> Array:
    """From ready to the first use; infinite where there is none."""
    return np.where(np.isfinite(reach), reach - work, np.inf)


def _expand(
    board: Board, order: list[int], chosen: list[int], depth: int, work: Array, reach: Array, settle: float, hunt: _Hunt
) -> None:
    hunt.nodes -= 1
    if depth == len(order):
        seconds = board.seconds(tuple(chosen))
        if seconds < hunt.seconds - TINY:
            hunt.best, hunt.seconds = tuple(chosen), seconds
        return
    tensor = order[depth]
    table = board.columns[tensor].table
    count = len(table.options)
    works, arrivals = np.repeat(work[None], count, 0), np.repeat(reach[None], count, 0)
    works[:, tensor] = table.work
    # what an earlier tensor delays is in `reach` already; this one delays the later ones
    late = board.ready[tensor] + (reach[tensor, 4] - board.ready[tensor] - float(table.reach[:, 4].min()))
    arrivals[:, tensor] = late + _head(table.reach, table.work)
    arrivals[:, tensor, 4] = late + table.reach[:, 4]
    arrivals[:, tensor + 1 :] += table.delay[:, None, None]
    first = np.minimum.accumulate(arrivals[:, ::-1, :4], 1)[:, ::-1]
    left = np.cumsum(works[:, ::-1, :4], 1)[:, ::-1]
    terms = np.where(left > 0, first + left, 0.0)
    settles = settle + table.settle - float(table.settle.min())
    bounds = np.maximum(terms.max((1, 2)), arrivals[:, :, 4].max(1)) + settles + board.forward
    for k in np.argsort(bounds, kind="stable").tolist():
        if bounds[k] >= hunt.seconds - TINY or hunt.nodes <= 0:
            return
        chosen[tensor] = k
        _expand(board, order, chosen, depth + 1, works[k], arrivals[k], float(settles[k]), hunt)
