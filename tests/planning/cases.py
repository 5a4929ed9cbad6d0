"""Random cases: a dense option and compressed ones of one or several rounds, on the device and on the host."""

import random

from laconic.planning.board import Board, Column
from laconic.planning.timeline import HOST, INTER, NODE, SIDE, Talk


def random_talk(dice: random.Random, dense: float) -> Talk:
    """A compressed option of a tensor whose dense message takes so long."""
    sent = dense * dice.choice([0.02, 0.1, 0.3, 0.6])
    encode, decode = (dense * dice.uniform(0.01, 0.5) for _ in range(2))
    match dice.choice(["flat", "divided", "hierarchical"]):
        case "flat":
            return Talk(encode, ((INTER, sent), (SIDE, decode)))
        case "divided":
            return Talk(encode, ((INTER, sent / 2), (SIDE, decode), (INTER, sent / 4), (SIDE, decode / 2)))
        case _:
            inside = dense * dice.uniform(0.01, 0.2)
            return Talk(
                0.0, ((NODE, inside), (SIDE, encode), (INTER, sent), (SIDE, decode), (NODE, inside))
            )  # fmt: skip


def on_host(talk: Talk, dice: random.Random) -> Talk:
    """The same with its arithmetic on the host, which is slower or faster."""
    factor = dice.uniform(0.5, 4)
    steps = tuple((HOST, s * factor) if r == SIDE else (r, s) for r, s in talk.steps)
    return Talk(0.0, ((HOST, talk.delay * factor), *steps) if talk.delay else steps)


def random_board(dice: random.Random, tensors: int, compressed: int, offload: bool) -> Board:
    """`compressed` options beside the dense one for each tensor, doubled if there is a host."""
    ready, now, columns, sizes = [], 0.0, [], []
    for _ in range(tensors):
        now += dice.expovariate(1.0)
        ready.append(now)
        size = dice.choice([1, 2, 4, 8]) if dice.random() < 0.5 else dice.uniform(0.1, 8)
        sizes.append(round(size * 1000))
        mine = [random_talk(dice, size) for _ in range(compressed)]
        talks = [Talk(0.0, ((INTER, size),)), *mine]
        twins = [-1] * len(talks)
        if offload:
            twins = [-1, *range(1 + compressed, 1 + 2 * compressed), *([-1] * compressed)]
            talks += [on_host(talk, dice) for talk in mine]
        hosted = [False] * (1 + compressed) + [True] * (len(talks) - 1 - compressed)
        columns.append(Column((None,) * len(talks), tuple(talks), tuple(hosted), tuple(twins)))
    return Board(tuple(map(str, range(tensors))), tuple(sizes), tuple(ready), tuple(columns))
