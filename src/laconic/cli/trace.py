"""Turn run records into a trace that opens in Perfetto and chrome://tracing."""

import argparse
from pathlib import Path

from laconic.lab.records import load
from laconic.lab.trace import write_trace


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", nargs="+", metavar="run.jsonl", help="one or more run records")
    parser.add_argument("-o", "--output", default="trace.json", help="the trace to write (default trace.json)")


def run(arguments: argparse.Namespace) -> int:
    runs = [run for path in arguments.records for run in load(path)]
    write_trace(runs, Path(arguments.output))
    print(f"{arguments.output}: open it in ui.perfetto.dev or chrome://tracing")
    return 0
