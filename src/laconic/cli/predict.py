"""Predict steps and race them: how far the planner is from what happens. Stop it when you like; it goes on from there.

Example: laconic predict --workloads "lstm;gpt;vgg" --rates "50mbit;200mbit;1gbit" --page prediction.md
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from laconic.cli.matrix import found_at
from laconic.cli.race import check_writable
from laconic.lab.layout import Layout
from laconic.lab.matrix import Results, signature
from laconic.lab.methods import parse_methods
from laconic.lab.prediction import Cell, measure, page
from laconic.lab.race import Course
from laconic.lab.rates import Schedule

TURN = 3  # steps that a plan takes before the next one has its turn
FLAT = "Dense;Cast;Quantize(bits=8);Divided(Quantize(bits=4));TopK(density=0.01);PowerSGD(rank=4)"
ROUTED = "Dense;Quantize(bits=8);Divided(Quantize(bits=4));Hierarchical(Dense, Dense)"
ROUTED += ";Hierarchical(Dense, Quantize(bits=8));Hierarchical(Dense, Divided(Quantize(bits=4)))"


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", default="lstm;gpt;vgg", help="separated by semicolons (lstm;gpt;vgg)")
    parser.add_argument("--rates", default="50mbit;200mbit;1gbit", help="separated by semicolons")
    parser.add_argument("--hosts", default="2;2x2", help="layouts, separated by semicolons (default 2;2x2)")
    parser.add_argument("--plans", help=f'default "{FLAT}"; where machines have several ranks, "{ROUTED}"')
    parser.add_argument("--steps", type=int, default=33, help="steps of every plan (default 33)")
    parser.add_argument("--minutes", type=float, help="start no further cell after so long")
    parser.add_argument("--output", default="prediction.jsonl", help="results, and what is done (prediction.jsonl)")
    parser.add_argument("--page", metavar="MD", help="also write a page of tables, such as docs/prediction.md")


def run(arguments: argparse.Namespace) -> int:
    check_writable("page", arguments.page)
    results = Results(Path(arguments.output))
    done = [(row["course"], Cell.from_json(row)) for row in results.rows]
    began, cells, left = time.monotonic(), [], 0
    for course in courses(arguments):
        here = (course.workload, str(course.layout), str(course.rate))
        known = signature(course)
        cell = next((c for sign, c in done if sign == known and (c.workload, c.hosts, c.rate) == here), None)
        if cell is None:
            if arguments.minutes is not None and time.monotonic() - began > 60 * arguments.minutes:
                left += 1
                continue
            cell = measure(course)
            results.add([{**cell.as_json(), "course": known, "method": "all"}])
        cells.append(cell.predictions())
        for row in cells[-1]:
            named = f"{row.workload} {row.hosts} {row.rate}"
            print(
                f"{named:18} {row.method:52} {row.predicted:8.1f} {row.measured:8.1f} ms {row.error:+7.1%}", flush=True
            )
        if arguments.page:
            Path(arguments.page).write_text(page(cells, found_at(course, "root")))
    if left:
        print(f"{left} cells are left: start again to go on")
    return 0


def courses(arguments: argparse.Namespace) -> list[Course]:
    """Layout by layout, so that a run that is cut short has whole tables."""
    made = []
    for hosts in arguments.hosts.split(";"):
        layout = Layout.parse(hosts)
        plans = arguments.plans or (ROUTED if layout.ranks > 1 else FLAT)
        for workload in arguments.workloads.split(";"):
            for rate in arguments.rates.split(";"):
                course = Course(workload.strip(), layout, Schedule.parse(rate), parse_methods(plans))
                made.append(replace(course, steps=arguments.steps, turn=TURN, warmup=TURN, evaluations=0))
    return made
