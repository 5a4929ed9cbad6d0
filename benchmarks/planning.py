"""What planning costs and how good it is: simulation, selection and search, beside brute force and the bound.

    python benchmarks/planning.py            # a minute
    python benchmarks/planning.py 3000       # so many small cases against brute force

Times are computing time (of the thread), the least of several runs, so that what else the machine does counts little.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import thread_time

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.planning.cases import random_board

from laconic import TopK
from laconic.planning.board import Board
from laconic.planning.judge import Estimate, Exact
from laconic.planning.link import what_if
from laconic.planning.models import MODELS
from laconic.planning.paper import PUBLISHED_MS
from laconic.planning.profile import Profile
from laconic.planning.search import better, brute_force, espresso
from laconic.planning.timeline import Replay, finish
from laconic.world import World


def least_ms(call: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        began = thread_time()
        call()
        times.append(thread_time() - began)
    return min(times) * 1e3


def models() -> None:
    print("8 machines of 8 V100, PCIe inside, 25 Gbit/s between, TopK(density=0.01)")
    print("model | tensors | pricing | simulation dense, planned | again after a change", end=" | ")
    print("selection by closed form, in all (published) | better")
    world = World(0, 64, 8)
    for name, make in MODELS.items():
        profile = Profile(name, world, make().trace("v100"), what_if(world, 25e9, 126e9), "v100")
        began = thread_time()
        board = Board.of(profile, [TopK(density=0.01)])
        pricing = (thread_time() - began) * 1e3
        choice = espresso(board)
        selection = least_ms(lambda board=board: espresso(board), 15)
        quick = least_ms(lambda board=board: espresso(board, Estimate), 15)
        dense, planned = (board.talks(c) for c in (board.dense(), choice))
        whole = [least_ms(lambda t=t, b=board: finish(b.ready, t), 30) for t in (dense, planned)]
        replay, dice = Replay(board.ready, planned), random.Random(1)
        changes = [dice.randrange(len(board)) for _ in range(100)]
        again = least_ms(lambda r=replay, d=dense, c=changes: [r.with_change(i, d[i]) for i in c], 3) / 100
        began = thread_time()
        more = board.seconds(better(board))
        search = thread_time() - began
        found, bound = board.seconds(choice), board.bound()
        print(
            f"{name} | {len(board)} | {pricing:.0f} ms | {whole[0]:.2f}, {whole[1]:.2f} ms | {again:.2f} ms |"
            f" {quick:.1f}, {selection:.1f} ms ({PUBLISHED_MS.get(name, '-')}) {found / bound - 1:.1%} over the bound |"
            f" {search:.1f} s {more / bound - 1:.1%}"
        )


def small(cases: int) -> None:
    dice = random.Random(7)
    over: dict[str, list[float]] = {"Espresso, estimate": [], "Espresso, exact": [], "Espresso": [], "better": []}
    for _ in range(cases):
        tensors, offload = dice.randint(1, 8), dice.random() < 0.5
        compressed = 1 if tensors > 5 else dice.randint(1, 2) if tensors > 4 else dice.randint(1, 4)
        board = random_board(dice, tensors, compressed, offload)
        best = board.seconds(brute_force(board))
        found = espresso(board, Estimate), espresso(board, Exact), espresso(board), better(board)
        for name, choice in zip(over, found, strict=True):
            over[name].append(board.seconds(choice) / best - 1)
    print(f"{cases} random models of 1 to 8 tensors against brute force")
    for name, gaps in over.items():
        gaps.sort()
        print(
            f"{name}: mean {sum(gaps) / cases:.2%}, median {gaps[cases // 2]:.2%}, worst {gaps[-1]:.2%} over the best;"
            f" within 1% in {sum(gap <= 0.01 for gap in gaps)}"
        )


if __name__ == "__main__":
    models()
    small(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
