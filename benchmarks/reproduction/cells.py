"""What is tried: the workloads, the methods of each part, and the cells that they make."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

RATES = ("50mbit", "200mbit")
GRAVACS_LINK = 50_000_000  # bits a second: GraVAC decides by step times, so the cell's link is held to this


@dataclass(frozen=True)
class Task:
    """A workload as it is trained here, by two ranks, and its cadence: the published ones are for 100,000s of steps."""

    workload: str
    batch: int  # of each rank
    steps: int
    every: int  # steps from evaluation to evaluation
    period: int  # L-GreCo's, which begins with the uniform plan: a dense warm-up would hide what is compared
    window: int  # GraVAC's


TASKS = (
    Task("lstm", batch=4, steps=200, every=20, period=40, window=15),
    Task("vgg", batch=16, steps=240, every=20, period=40, window=15),
)
BASES = ("PowerSGD(rank=4)", "TopK(density=0.01)", "Quantize(bits=4)")
PARTS = ("a", "c", "b")


def within(base: str, task: Task) -> str:
    """L-GreCo within the base's family."""
    return f"LGreCo({base}, warmup=0, period={task.period})"


def mixed(base: str, task: Task) -> str:
    """The same with candidates of all families."""
    return f"LGreCo({base}, warmup=0, period={task.period}, mixed=True)"


def gravacs(task: Task) -> list[str]:
    """With the published floor, and with one that higher factors meet on gradients as noisy as these."""
    return [f"GraVAC(TopK(density=0.1), {floor}window={task.window}, every=1)" for floor in ("", "floor=0.2, ")]


def methods(part: str, task: Task) -> list[str]:
    """What a part compares; dense is in all."""
    match part:
        case "a":
            return ["Dense", *(one for base in BASES for one in (base, within(base, task), mixed(base, task)))]
        case "b":
            return ["Dense", "TopK(density=0.1)", "TopK(density=0.001)", *gravacs(task)]
        case _:
            return ["Dense", "AdaComp()"]


@dataclass(frozen=True)
class Cell:
    """One training run."""

    workload: str
    method: str
    seed: int
    batch: int
    steps: int
    every: int
    data: str | None  # the file's name; its place is nobody's business
    link: int | None = None

    def key(self) -> dict[str, Any]:
        return asdict(self)


def cells(parts: Sequence[str], seeds: int, names: dict[str, str | None]) -> list[Cell]:
    """In the order in which they are trained: whole seeds of a workload, so that what is there can be compared."""
    made = []
    for task in TASKS:
        wanted = dict.fromkeys(one for part in PARTS if part in parts for one in methods(part, task))
        for seed in range(seeds):
            for method in wanted:
                link = GRAVACS_LINK if method.startswith("GraVAC") else None
                made.append(
                    Cell(task.workload, method, seed, task.batch, task.steps, task.every, names[task.workload], link)
                )
    return made
