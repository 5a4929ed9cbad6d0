"""The command line: one module a command, each with `describe` (its arguments) and `run`."""

import argparse
import io
import sys
from collections.abc import Sequence

from laconic.cli import demo, explain, kernels, matrix, plan, plan_file, predict, probe, race, report, simulate, trace
from laconic.errors import InvalidConfig, LaconicError

COMMANDS = {
    "check": plan_file,
    "kernels": kernels,
    "demo": demo,
    "race": race,
    "matrix": matrix,
    "report": report,
    "trace": trace,
    "explain": explain,
    "plan": plan,
    "simulate": simulate,
    "probe": probe,
    "predict": predict,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for a failure, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a layer's name may hold what the terminal can not show
    parser = argparse.ArgumentParser(
        prog="laconic", description="Gradient compression for slow networks: decide, measure, prove."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").strip().split("\n")[0]
        module.describe(commands.add_parser(name, help=summary, description=module.__doc__))
    arguments = parser.parse_args(argv)
    try:
        code: int = COMMANDS[arguments.command].run(arguments)
        return code
    except InvalidConfig as error:
        print(f"laconic {arguments.command}: {error}", file=sys.stderr)
        return 2
    except LaconicError as error:
        print(f"laconic {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"laconic {arguments.command}: interrupted", file=sys.stderr)
        return 130
