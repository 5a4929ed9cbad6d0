"""Step times: short interleaved races over shaped links, with the same batch as the cells."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from laconic.lab.layout import Layout
from laconic.lab.matrix import Results, Row, run_matrix
from laconic.lab.methods import Method, parse_methods
from laconic.lab.race import Course, Race
from laconic.lab.rates import Schedule
from reproduction.cells import RATES, TASKS, Task, methods

PERIOD = 30  # L-GreCo's here: its first plan is in use when the clock starts, and no step is watched for the second
WARMUP, STEPS = 32, 44
FAST = "10gbit"  # the link in the warm-up, which only fills residuals


def timed(method: str) -> str:
    """The name that the method races under."""
    text = "dense" if method == "Dense" else re.sub(r"period=\d+", f"period={PERIOD}", method)
    return Method.parse(text).name


def course(task: Task, rate: str, parts: Sequence[str], files: Mapping[str, str | None]) -> Course:
    """One race. GraVAC's factor moves while it trains: its time is that of the static factors it went through."""
    wanted = dict.fromkeys(timed(one) for part in parts for one in methods(part, task) if not one.startswith("GraVAC"))
    schedule = Schedule.parse(f"{FAST} for {WARMUP} steps, then {rate}")
    return Course(
        workload=task.workload, layout=Layout.parse("2"), rate=schedule,
        methods=parse_methods(["noop", *wanted]), steps=STEPS, turn=2, warmup=WARMUP, evaluations=0,
        data=files[task.workload], batch=task.batch, patience=300.0,
    )  # fmt: skip


def race_all(parts: Sequence[str], names: Sequence[str], path: Path, files: Mapping[str, str | None]) -> None:
    """Race what has no results yet."""

    def watch(where: Course, race: Race | None) -> None:
        if race is not None and all(entrant.step == STEPS for entrant in race.entrants):
            print(f"{where.workload} at {where.rate}: done", flush=True)

    wanted = [course(task, rate, parts, files) for task in TASKS if task.workload in names for rate in RATES]
    for _ in run_matrix(wanted, Results(path), watch):
        pass


def times(path: Path) -> dict[tuple[str, str], dict[str, Row]]:
    """What the races found: rows by workload and rate, then by method."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in Results(path).rows if path.exists() else ():
        found.setdefault((row["workload"], row["rate"].rpartition(" ")[2]), {})[row["method"]] = row
    return found
