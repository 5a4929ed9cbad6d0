"""What `print(handle)` shows."""

from laconic.plan import Plan
from laconic.policies.policy import Policy
from laconic.policies.static import Static
from laconic.stats import Stats
from laconic.world import World


def amount(nbytes: float) -> str:
    """Bytes with a unit that people read.

    >>> amount(1536), amount(12)
    ('1.5 KB', '12 B')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1024 or unit == "GB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def table(plan: Plan, stats: Stats, world: World, policy: Policy) -> str:
    """The plan with what each layer sent, left and holds, and the totals in words."""
    rows = [("layer", "compressor", "sent/step", "ratio", "error", "residual")]
    steps = max(1, stats.steps)
    for name, layer in stats.layers.items():
        note = f"{plan[name]}" + (f" ({plan.why[name]})" if name in plan.why else "")
        error = f"{layer.error:.3f}" if layer.energy else "-"
        held = amount(layer.residual_bytes) if layer.residual_bytes else "-"
        rows.append((name, note, amount(layer.wire_bytes / steps), f"{layer.ratio:.1f}x", error, held))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *map(str.rjust, row[2:], widths[2:])])
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    kind = repr(policy)
    if isinstance(policy, Static):
        kind = "a plan" if isinstance(policy.what, Plan) else str(policy.what)
    head = f"laconic: {kind} on rank {world.rank} of {world.size}, {stats.steps} steps"
    if stats.skipped:
        head += f" ({stats.skipped} with non-finite gradients)"
    tail = [
        f"sent {amount(stats.wire_bytes / steps)} a step where dense sends {amount(stats.dense_bytes / steps)}: "
        f"{stats.ratio:.1f}x less; relative error {stats.error:.3f}",
        f"per step {1e3 * stats.compress_s / steps:.1f} ms of arithmetic "
        f"and {1e3 * stats.communicate_s / steps:.1f} ms of communication, beside backward; "
        f"{amount(stats.residual_bytes)} of residual, {amount(stats.buffer_bytes)} of buffers",
    ]
    return "\n".join([head, *lines, *tail])
