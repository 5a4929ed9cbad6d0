"""Race over several workloads and rates; stop it when you like, start it again and it goes on.

Example: laconic matrix --workloads "lstm;gpt" --rates "50mbit;200mbit" --output results.jsonl --page results.md
"""

import argparse
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from laconic.cli.race import METHODS, add_course, check_writable, course_of
from laconic.lab.matrix import Results, results_page, run_matrix
from laconic.lab.race import Course, Race
from laconic.lab.standings import conditions


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", default="lstm;gpt;vgg;resnet;mlp", help="separated by semicolons")
    parser.add_argument("--rates", default="50mbit;200mbit;1gbit", help="separated by semicolons")
    parser.add_argument("--methods", default=METHODS, help=f'as for a race; default "{METHODS}"')
    add_course(parser)
    parser.add_argument("--output", default="results.jsonl", help="results, and what is done already (results.jsonl)")
    parser.add_argument("--page", metavar="MD", help="also write a page of tables, for example docs/results.md")


def run(arguments: argparse.Namespace) -> int:
    courses = [
        course_of(arguments, workload.strip(), rate.strip(), arguments.methods)
        for workload in arguments.workloads.split(";")
        for rate in arguments.rates.split(";")
    ]
    results = Results(Path(arguments.output))
    page = Path(arguments.page) if arguments.page else None
    check_writable("page", arguments.page)
    turns = sum(course.steps * course.seeds * len(course.methods) for course in courses)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps,"))
    with Progress(*columns, TimeRemainingColumn(), TextColumn("left"), console=Console(stderr=True)) as bar:
        task = bar.add_task("matrix", total=turns)
        before = 0

        def watch(course: Course, race: Race | None) -> None:
            whole = course.steps * course.seeds * len(course.methods)
            steps = sum(entrant.step for entrant in race.entrants) if race else whole
            bar.update(task, completed=before + steps, description=f"{course.workload} at {course.rate}")

        blocks = []
        for course, rows in zip(courses, run_matrix(courses, results, watch), strict=True):
            before += course.steps * course.seeds * len(course.methods)
            bar.update(task, completed=before)
            blocks.append(rows)
            if page is not None:
                told = found_at(course, rows[0]["network"])
                page.write_text(results_page(blocks, told))
    print(f"{results.path}: {sum(map(len, blocks))} results" + (f"; {page}" if page else ""))
    return 0


def found_at(course: Course, network: str) -> dict[str, str]:
    """Machine, software and command, without the places of files on this machine."""
    told = {key: value for key, value in conditions(course, network, 0.0).items() if key in ("machine", "software")}
    words = [Path(word).name if course.data and word == course.data else word for word in sys.argv[1:]]
    return told | {"laconic": version("laconic"), "command": f"`laconic {shlex.join(words)}`"}
