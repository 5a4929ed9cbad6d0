"""What a race found, one row a method: as JSON for programs, as a table for people."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.table import Table

from laconic.lab.entrant import Entrant
from laconic.lab.race import Course, Race
from laconic.lab.workloads import find

NETWORKS = {
    "root": "network namespaces, links shaped by the kernel",
    "user": "network namespaces (as a user), links shaped by the kernel",
    "paced": "PACED: no real network, loopback held to the modelled rate",
}


@dataclass(frozen=True)
class Standing:
    """One method's result. None is a figure that does not exist, as a loss of a method that does not train together.

    `ms_per_step` is the median over turns. `of_limit` is the limit's step time over this one's: 1 is as fast as no
    communication at all. `over_dense` is how many times faster than plain DDP. `computed_bytes_per_step` is arithmetic,
    to compare with the kernel's count.
    """

    workload: str
    hosts: str
    rate: str
    method: str
    status: str
    ms_per_step: float | None
    mean_ms_per_step: float | None
    of_limit: float | None
    over_dense: float | None
    wire_bytes_per_step: float | None
    computed_bytes_per_step: float | None
    loss: float | None
    accuracy: float | None
    loss_spread: float | None  # standard deviation over seeds
    seconds_to_target: float | None
    prepare_seconds: float
    steps: int
    seeds: int
    network: str
    load: float  # the machine's load average when the race began
    failure: str | None

    def json(self) -> str:
        return json.dumps(asdict(self))


def standings(race: Race) -> list[Standing]:
    """One row a method, in the order of the course, means over seeds."""
    course, entrants = race.course, race.entrants
    pace = {method.name: _mean([e.ms_per_step for e in entrants if e.method == method]) for method in course.methods}
    return [_standing(race, [e for e in entrants if e.method == method], pace) for method in course.methods]


def _standing(race: Race, runs: list[Entrant], pace: dict[str, float | None]) -> Standing:
    course = race.course
    method = runs[0].method
    ms = pace[method.name]
    failed = next((run for run in runs if run.failure), None)
    judged = [run.evaluations[-1] for run in runs if run.evaluations]
    losses = [entry["loss"] for entry in judged]
    return Standing(
        workload=course.workload,
        hosts=str(course.layout),
        rate=str(course.rate),
        method=method.name,
        status=failed.status if failed else "ok",
        ms_per_step=ms,
        mean_ms_per_step=_mean([run.mean_ms_per_step for run in runs]),
        of_limit=_ratio(pace.get("noop"), ms),
        over_dense=_ratio(pace.get("dense"), ms),
        wire_bytes_per_step=_mean([run.sent_per_step for run in runs]),
        computed_bytes_per_step=_computed(course, runs[0]),
        loss=_mean(losses),
        accuracy=_mean([entry["accuracy"] for entry in judged]),
        loss_spread=statistics.stdev(losses) if len(losses) > 1 else None,
        seconds_to_target=_to_target(course, runs),
        prepare_seconds=_mean([run.prepare_seconds for run in runs]) or 0.0,
        steps=min(run.step for run in runs),
        seeds=len(runs),
        network=race.network_kind,
        load=race.load,
        failure=failed.failure if failed else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top and bottom else None


def _computed(course: Course, run: Entrant) -> float | None:
    """A rank's bytes by arithmetic; a machine's are the same for one rank a machine, and for a ring in any case."""
    if run.method.ours:
        return run.timed_computed / run.timed_steps if run.timed_steps else None
    return run.method.dense_bytes(run.parameters, course.layout.world)


def _to_target(course: Course, runs: list[Entrant]) -> float | None:
    """Mean own training time to the target; None unless every seed reached it."""
    times = [run.seconds_to(course.target_loss, course.target_accuracy) for run in runs]
    return None if None in times else _mean(times)


def busy(load: float) -> str:
    """A warning if the machine had other work when the race began, else nothing."""
    cores = os.cpu_count() or 1
    if load < 0.5 * cores:
        return ""
    return f"The machine was busy (load average {load:.1f} on {cores} cores): times are longer than on an idle one."


def conditions(course: Course, network: str, load: float) -> dict[str, str]:
    """Where and how it was measured, for whoever reads the figures."""
    return {
        "task": f"{course.workload}, {course.steps} steps, turns of {course.turn}, seeds {course.seeds}",
        "network": f"{course.layout} hosts at {course.rate}; {NETWORKS.get(network, network)}",
        "load average": f"{load:.1f} when the race began. {busy(load)}".strip(),
        **machine(),
    }


def machine() -> dict[str, str]:
    """What it was measured on and with."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "software": f"Python {platform.python_version()}, torch {torch.__version__}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def table(rows: Sequence[Standing]) -> Table:
    """The standings for people, fastest first, with what failed at the end."""
    judged = find(rows[0].workload).quality
    drawn = Table(header_style="bold")
    drawn.add_column("method", overflow="fold", min_width=16)
    for title in (
        "ms/step",
        "vs dense",
        "of limit",
        "MB/step",
        "loss",
        *(["acc."] if judged == "accuracy" else []),
    ):
        drawn.add_column(title, justify="right", no_wrap=True)
    targeted = any(row.seconds_to_target is not None for row in rows)
    if targeted:
        drawn.add_column("s to target", justify="right")
    for row in sorted(rows, key=lambda row: row.ms_per_step or float("inf")):
        style = "dim" if row.method == "noop" else "red" if row.failure else None
        figures = [
            _shown(row.ms_per_step, "{:.0f}"),
            _shown(row.over_dense, "{:.2f}x"),
            _shown(row.of_limit, "{:.0%}"),
            _shown(row.wire_bytes_per_step, "{:.3f}", 1e-6),
            _shown(row.loss, "{:.3f}"),
        ]
        if judged == "accuracy":
            figures.append(_shown(row.accuracy, "{:.1%}"))
        if targeted:
            figures.append(_shown(row.seconds_to_target, "{:.1f}"))
        name = f"{row.method} ({row.status})" if row.failure else row.method
        drawn.add_row(name, *figures, style=style)
    return drawn


def counted(rows: Sequence[Standing]) -> str:
    """How the kernel's count of bytes compares with arithmetic, over the methods for which both exist."""
    pairs = [
        (row.wire_bytes_per_step, row.computed_bytes_per_step)
        for row in rows
        if row.wire_bytes_per_step and row.computed_bytes_per_step and "x" not in row.hosts
    ]
    if not pairs:
        return "No method has both a link's counted and a link's computed bytes."
    above = [counted / computed - 1 for counted, computed in pairs]
    return (
        f"The kernel counted {min(above):+.1%} to {max(above):+.1%} against the payload by arithmetic (headers, ACKs)."
    )


def _shown(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value * scale)
