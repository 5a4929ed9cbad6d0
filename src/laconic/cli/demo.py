"""See it work: train a small LSTM over a slow link on this machine, six ways, in under three minutes."""

import argparse
from pathlib import Path

from rich.console import Console

from laconic.cli.race import check_writable
from laconic.lab import records
from laconic.lab.layout import Layout
from laconic.lab.live import LiveView
from laconic.lab.methods import parse_methods
from laconic.lab.race import Course, Race
from laconic.lab.rates import Schedule
from laconic.lab.report import write_report
from laconic.lab.standings import NETWORKS, Standing, busy, standings, table

METHODS = "noop;dense;fp16;torch-powersgd:4;auto;PowerSGD(rank=4)"


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", default="100mbit", help="speed of the link between the two hosts (default 100mbit)")
    parser.add_argument("--steps", type=int, default=40, help="training steps, fewer if time runs out (default 40)")
    parser.add_argument("--seconds", type=float, default=140.0, help="stop racing after this long (default 140)")
    parser.add_argument("--report", default="report.html", help="where to write the report (default report.html)")


def run(arguments: argparse.Namespace) -> int:
    course = Course(
        workload="lstm",
        layout=Layout(2),
        rate=Schedule.parse(arguments.rate),
        methods=parse_methods(METHODS),
        steps=arguments.steps,
        turn=2,
        warmup=4,
        budget=arguments.seconds,
    )
    check_writable("report", arguments.report)
    console = Console()
    console.print(f"Two hosts on this machine, joined by a link of {course.rate}, train one character LSTM together.")
    console.print("Every step they must agree on 17 MB of gradients. Six ways to do so take turns:")
    for method in course.methods:
        console.print(f"  {method.name:18} {method.summary}", highlight=False)
    with LiveView(console, f"LSTM on 2 hosts at {course.rate}") as view:
        race = Race(course, view)
        race.run()
    rows = standings(race)
    write_report(records.of_race(race, rows), Path(arguments.report))
    console.print(table(rows))
    for line in filter(None, [*verdict(rows), busy(race.load)]):
        console.print(line, highlight=False, markup=False)
    console.print(f"Network: {NETWORKS[race.network_kind]}. Report: {arguments.report}, for any browser.")
    return 0 if any(row.ms_per_step is not None for row in rows) else 1


def verdict(rows: list[Standing]) -> list[str]:
    """Who won, by how much, at what loss and how near the limit, in sentences."""
    running = [row for row in rows if row.ms_per_step is not None and not row.failure and row.method != "noop"]
    lines = [f"{row.method} {row.status}: {row.failure}" for row in rows if row.failure]
    if not running:
        return [*lines, "No method finished, so there is no winner."]
    best = min(running, key=lambda row: row.ms_per_step or 0.0)
    dense = next((row for row in running if row.method == "dense"), None)
    line = f"The fastest was {best.method}: {best.ms_per_step:.0f} ms a step"
    if dense is not None and best is not dense:
        line += f", {best.over_dense:.1f} times the speed of plain DDP ({dense.ms_per_step:.0f} ms)"
    if best.of_limit is not None:
        line += f", {best.of_limit:.0%} of the speed that no communication at all would give"
    lines.append(line + ".")
    if dense is not None and best.loss is not None and dense.loss is not None and best is not dense:
        lines.append(
            f"After {best.steps} steps its held-out loss was {best.loss:.3f}, plain DDP's {dense.loss:.3f}"
            f" (lower is better)."
        )
    return lines
