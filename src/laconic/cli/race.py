"""Race ways of exchanging gradients over a slow network on this machine.

Example: laconic race --workload lstm --hosts 2 --rate 200mbit --methods "dense;fp16;torch-powersgd:4;noop;auto"
"""

import argparse
from pathlib import Path

from rich.console import Console

from laconic.errors import InvalidConfig
from laconic.lab import records, workloads
from laconic.lab.layout import Layout
from laconic.lab.live import LiveView
from laconic.lab.methods import parse_methods
from laconic.lab.network import KINDS
from laconic.lab.race import Course, Race
from laconic.lab.rates import Schedule
from laconic.lab.report import write_report
from laconic.lab.standings import NETWORKS, Standing, busy, counted, standings, table

METHODS = "noop;dense;fp16;torch-powersgd:4;auto"


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", default="lstm", help=f"one of {', '.join(workloads.WORKLOADS)} (default lstm)")
    parser.add_argument("--rate", default="200mbit", help='link speed, or "1gbit for 100 steps, then 50mbit"')
    parser.add_argument(
        "--methods",
        default=METHODS,
        help="separated by semicolons: dense, fp16, torch-powersgd:RANK, noop (no communication, the limit), "
        f'auto, or a compressor or policy such as TopK(density=0.01); default "{METHODS}"',
    )
    add_course(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line and nothing else")
    parser.add_argument("--report", metavar="HTML", help="write a report that opens in any browser")
    parser.add_argument("--record", metavar="JSONL", help="write the run records, for `laconic report` and `trace`")


def add_course(parser: argparse.ArgumentParser) -> None:
    """The options that a race and a matrix share."""
    parser.add_argument("--hosts", default="2", help="2 for two hosts of one rank, 2x4 for two machines of four ranks")
    parser.add_argument("--steps", type=int, default=60, help="training steps of every method (default 60)")
    parser.add_argument("--seeds", type=int, default=1, help="repeat with this many seeds (default 1)")
    parser.add_argument("--turn", type=int, default=5, help="steps a method takes before the next has its turn")
    parser.add_argument("--warmup", type=int, default=5, help="first steps, trained but not timed (default 5)")
    parser.add_argument("--evaluations", type=int, default=4, help="how often to judge on held-out data (default 4)")
    parser.add_argument("--data", help="a text file, or an .npz of images, instead of the built-in data")
    parser.add_argument("--batch", type=int, help="of each rank, instead of the workload's own")
    parser.add_argument("--optimizer", help="and its learning rate, such as sgd:0.1, instead of the workload's own")
    parser.add_argument("--target-loss", type=float, help="also tell the time to this held-out loss")
    parser.add_argument("--target-accuracy", type=float, help="also tell the time to this held-out accuracy")
    parser.add_argument("--network", default="auto", help=f"{', '.join(KINDS)}: how to build it (default auto)")
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="delay of a link, where netem exists")
    parser.add_argument("--loss", type=float, default=0.0, help="fraction of packets lost, where netem exists")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which a silent method has hung")


def course_of(arguments: argparse.Namespace, workload: str, rate: str, methods: str) -> Course:
    return Course(
        workload=workload,
        layout=Layout.parse(arguments.hosts),
        rate=Schedule.parse(rate),
        methods=parse_methods(methods),
        steps=arguments.steps,
        seeds=arguments.seeds,
        turn=arguments.turn,
        warmup=arguments.warmup,
        evaluations=arguments.evaluations,
        data=arguments.data,
        batch=arguments.batch,
        optimizer=arguments.optimizer,
        target_loss=arguments.target_loss,
        target_accuracy=arguments.target_accuracy,
        network=arguments.network,
        delay=arguments.delay / 1e3,
        loss=arguments.loss,
        patience=arguments.patience,
    )


def run(arguments: argparse.Namespace) -> int:
    course = course_of(arguments, arguments.workload, arguments.rate, arguments.methods)
    for key, path in (("record", arguments.record), ("report", arguments.report)):
        check_writable(key, path)
    console = Console(stderr=arguments.json)
    title = f"{course.workload} on {course.layout} hosts at {course.rate}"
    with LiveView(console, title) as view:
        race = Race(course, view)
        race.run()
    rows = standings(race)
    runs = records.of_race(race, rows)
    if arguments.record:
        records.save_all(runs, Path(arguments.record))
    if arguments.report:
        write_report(runs, Path(arguments.report))
    if arguments.json:
        print("\n".join(row.json() for row in rows))
    else:
        console.print(f"{title}, {NETWORKS[race.network_kind]}")
        console.print(table(rows))
        if race.network_kind != "paced":
            console.print(counted(rows), highlight=False)
        if busy(race.load):
            console.print(busy(race.load), highlight=False, style="yellow")
        tell_failures(console, rows)
    return 0 if any(row.ms_per_step is not None for row in rows) else 1


def check_writable(key: str, path: str | None) -> None:
    """Find out before a race, not after it, that its result cannot be kept."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise InvalidConfig(key, path, "choose a file in a folder that exists")


def tell_failures(console: Console, rows: list[Standing]) -> None:
    for row in rows:
        if row.failure:
            console.print(f"{row.method} {row.status}: {row.failure}", style="red", markup=False)
