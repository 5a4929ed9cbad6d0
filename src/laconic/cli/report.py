"""Turn run records into one HTML page that opens anywhere.

A record comes from attach(model, record="run.jsonl") or from `laconic race --record`. Several records are compared.
"""

import argparse
from pathlib import Path

from laconic.lab.records import load
from laconic.lab.report import write_report


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", nargs="+", metavar="run.jsonl", help="one or more run records")
    parser.add_argument("-o", "--output", default="report.html", help="the page to write (default report.html)")


def run(arguments: argparse.Namespace) -> int:
    runs = [run for path in arguments.records for run in load(path)]
    write_report(runs, Path(arguments.output))
    print(f"{arguments.output}: {len(runs)} run{'s' * (len(runs) != 1)}; open it in a browser")
    return 0
