"""What `handle.report()` says: what was chosen for which layers and why, what was expected, and what was measured."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from laconic.control.history import Change
from laconic.integrations.show import amount
from laconic.plan import Plan
from laconic.policies.policy import Policy
from laconic.stats import Stats

NAMED = 4  # layers of one choice
LATELY = 5  # changes


def report(plan: Plan, stats: Stats, policy: Policy, history: Sequence[Change]) -> str:
    """Plain words, for people."""
    lines = [f"{policy!r} after {stats.steps} steps", *_choices(plan, stats), *_totals(stats)]
    lines += ["", "What it decided" + (", lately:" if len(history) > LATELY else ":")]
    lines += [line for change in history[-LATELY:] for line in _told(change)] or ["  nothing: the first plan stays"]
    return "\n".join(lines)


def _choices(plan: Plan, stats: Stats) -> list[str]:
    """Layers that share a choice, the largest share of the gradient first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, compressor in plan.items():
        groups[str(compressor)].append(name)
    dense = {name: layer.dense_bytes for name, layer in stats.layers.items()}
    total = sum(dense.values()) or 1
    lines = []
    for text, names in sorted(groups.items(), key=lambda one: -sum(dense.get(n, 0) for n in one[1])):
        share = sum(dense.get(name, 0) for name in names) / total
        lines.append(f"  {text}: {len(names)} layer{'s' * (len(names) != 1)}, {share:.0%} of the gradient")
        names = sorted(names, key=lambda name: -dense.get(name, 0))
        lines += [f"    {name}: {plan.why[name]}" for name in names[:NAMED] if name in plan.why]
        if len(names) > NAMED:
            lines.append(f"    and {len(names) - NAMED} more")
    if plan.waits:
        lines.append(f"  Buckets that end with these travel with the next one: {', '.join(sorted(plan.waits))}.")
    return lines


def _totals(stats: Stats) -> list[str]:
    steps = max(1, stats.steps)
    told = f"Sends {amount(stats.wire_bytes / steps)} a step on average where dense sends"
    lines = [f"{told} {amount(stats.dense_bytes / steps)}, with a relative error of {stats.error:.3f}."]
    if stats.step_s:
        lines.append(f"A step takes {1e3 * stats.step_s:.1f} ms by this rank's clock.")
    if stats.skipped:
        lines.append(f"{stats.skipped} steps held a non-finite value and left no trace in the residuals.")
    return lines


def _told(change: Change) -> list[str]:
    lines = [f"  step {change.step}: {len(change.changed)} layers. {change.why}"]
    expected, measured = numbers(change.predicted), numbers(change.measured)
    return [*lines, f"    expected {expected}; measured {measured}"]


def numbers(known: Mapping[str, float] | None) -> str:
    """Bytes, error and time, as far as they are known."""
    known = known or {}
    told = []
    if "bytes" in known:
        told.append(f"{amount(known['bytes'])} a step")
    if "error" in known:
        told.append(f"relative error {known['error']:.3f}")
    if "step_s" in known:
        told.append(f"{1e3 * known['step_s']:.1f} ms a step")
    return ", ".join(told) or "not known"
