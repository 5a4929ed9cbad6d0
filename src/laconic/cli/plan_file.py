"""Read a plan file, check it, and show it."""

import argparse

from laconic.plan import Plan


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", help="a plan file, as Plan.save writes it")


def run(arguments: argparse.Namespace) -> int:
    plan = Plan.load(arguments.plan)
    print(plan)
    print(f"{len(plan)} entries, digest {plan.digest[:12]}: valid")
    return 0
