"""Say in words what a run decided: when, what changed, why, what was expected and what came of it."""

import argparse
from collections import Counter

from laconic.integrations.report import numbers
from laconic.lab.records import Event, Run, load

SHOWN = 12  # layers of one change


def describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", metavar="run.jsonl", help="a run record, as attach(model, record=...) writes it")
    parser.add_argument("--all", action="store_true", help=f"every layer of a change, not the first {SHOWN}")


def run(arguments: argparse.Namespace) -> int:
    for one in load(arguments.record):
        print("\n".join(explain(one, None if arguments.all else SHOWN)))
    return 0


def explain(run: Run, shown: int | None = SHOWN) -> list[str]:
    """The lines that tell a run's decisions."""
    start, steps = run.first("start"), run.of("step")
    lines = [f"{run.name}: {start.get('world', '?')} ranks, {len(start.get('layers', {}))} layers, {len(steps)} steps"]
    kinds = Counter(start.get("plan", {}).values())
    lines.append("began with " + ", ".join(f"{kind} on {count}" for kind, count in kinds.most_common(4)))
    effects = {event["step"]: event for event in run.of("effect")}
    changes = run.of("plan")
    for event in changes:
        lines += ["", *_change(event, effects.get(event["step"], {}), shown)]
    if not changes:
        lines.append("the plan never changed")
    return lines


def _change(event: Event, effect: Event, shown: int | None) -> list[str]:
    changed: dict[str, list[str]] = event.get("changed", {})
    lines = [f"step {event['step']}: {len(changed)} layer{'s' * (len(changed) != 1)} changed"]
    lines.append(f"  why        {event.get('why') or 'not said'}")
    for title, known in (("expected", event.get("predicted")), ("came out", effect.get("measured"))):
        lines.append(f"  {title:<10} {numbers(known)}")
    width = max((len(name) for name in list(changed)[:shown]), default=0)
    lines += [f"  {name:<{width}}  {old} -> {new}" for name, (old, new) in list(changed.items())[:shown]]
    if shown is not None and len(changed) > shown:
        lines.append(f"  and {len(changed) - shown} more: --all shows them")
    if event.get("waits"):
        lines.append(f"  buckets that end with these travel with the next: {', '.join(event['waits'])}")
    return lines
