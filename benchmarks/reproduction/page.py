"""The page: tables of what was trained and timed, after whatever people wrote above the mark."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from laconic.lab.matrix import Row
from reproduction.cells import BASES, RATES, TASKS, Task, gravacs, mixed, within
from reproduction.outcome import Figure, Outcome
from reproduction.speed import timed

MARK = "<!-- What follows is written by benchmarks/reproduce.py. -->"
Times = Mapping[tuple[str, str], Mapping[str, Row]]


def write(path: Path, rows: Sequence[Row], times: Times, conditions: Mapping[str, str]) -> None:
    """Replace what follows the mark."""
    above = path.read_text().split(MARK)[0] if path.exists() else "# Reproduction\n\n"
    lines = [MARK, "", *(f"- {key}: {value}" for key, value in conditions.items())]
    for task in TASKS:
        runs: dict[str, list[Row]] = {}
        for row in rows:
            if row["cell"]["workload"] == task.workload:
                runs.setdefault(row["cell"]["method"], []).append(row)
        known = {method: Outcome(own) for method, own in runs.items()}
        if "Dense" in known:
            lines += ["", f"## {task.workload}", "", _task(task, known), *_a(task, known, times)]
            lines += [*_b(task, known, times), *_c(known)]
    path.write_text(above + "\n".join(lines) + "\n")


def _task(task: Task, known: Mapping[str, Outcome]) -> str:
    dense = known["Dense"]
    seeds = sorted({len(one.rows) for one in known.values()})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"Two ranks of {task.batch} examples, {task.steps} steps, {count} seeds. Dense: loss {_shown(dense.loss)}, "
        f"accuracy {_shown(dense.accuracy, 100)}%, {dense.bytes_per_step() / 1e6:.2f} MB a step."
    )


def _a(task: Task, known: Mapping[str, Outcome], times: Times) -> list[str]:
    bases = [base for base in BASES if base in known]
    if not bases:
        return []
    lines = [
        "", "### L-GreCo at the error of a uniform setting", "",
        "| method | MB/step | fewer bytes | in compressed layers | loss | accuracy % | against uniform | "
        + "against dense | " + " | ".join(f"ms at {rate}" for rate in RATES) + " |",
        "|---|---:|---:|---:|---:|---:|---|---|" + "---:|" * len(RATES),
    ]  # fmt: skip
    lines.append(_line("Dense", task, known, times))
    for base in bases:
        for method in (base, within(base, task), mixed(base, task)):
            if method in known:
                lines.append(_line(method, task, known, times, base))
    return lines


def _line(method: str, task: Task, known: Mapping[str, Outcome], times: Times, base: str | None = None) -> str:
    own, dense = known[method], known["Dense"]
    after = task.period + 1
    sent = own.bytes_per_step(after)
    uniform = known[base] if base is not None and base != method else None
    figures = [
        f"`{method}`",
        f"{sent / 1e6:.3f}",
        f"{uniform.bytes_per_step(after) / sent:.2f}x" if uniform else "",
        f"{sum(uniform.compressed().values()) / sum(own.compressed().values()):.2f}x" if uniform else "",
        _shown(own.loss),
        _shown(own.accuracy, 100),
        _compared(own.loss, uniform.loss) if uniform else "",
        _compared(own.loss, dense.loss) if method != "Dense" else "",
    ]
    for rate in RATES:
        row = times.get((task.workload, rate), {}).get(timed(method))
        figures.append(f"{row['ms_per_step']:.0f}" if row and row["ms_per_step"] else "")
    return f"| {' | '.join(figures)} |"


def _b(task: Task, known: Mapping[str, Outcome], times: Times) -> list[str]:
    """Time to the lowest loss that every run of dense, of top-k 10x and of GraVAC with its own floor reached."""
    ours = gravacs(task)
    compared = [one for one in ("Dense", "TopK(density=0.1)", "TopK(density=0.001)", *ours) if one in known]
    if ours[0] not in compared or "TopK(density=0.1)" not in compared:
        return []
    target = max(known[one].least for one in ("Dense", "TopK(density=0.1)", ours[0]))
    lines = [
        "", "### GraVAC against static top-k", "", f"Time is that to a held-out loss of {target:.3f}.", "",
        "| method | volume against dense | loss | accuracy % | against dense | steps | "
        + " | ".join(f"s at {rate}, against top-k 10x" for rate in RATES) + " |",
        "|---|---:|---:|---:|---|---:|" + "---:|" * len(RATES),
    ]  # fmt: skip
    seconds = {one: [_seconds(task, known[one], target, rate, times) for rate in RATES] for one in compared}
    for one in compared:
        own = known[one]
        steps = own.crossings(target)
        reached = "not reached" if None in steps else f"{fmean(step for step in steps if step is not None):.0f}"
        shown = []
        for mine, static in zip(seconds[one], seconds["TopK(density=0.1)"], strict=True):
            shown.append("" if mine is None else f"{mine:.1f}" + (f", {static / mine:.2f}x" if static else ""))
        volume = known["Dense"].bytes_per_step() / own.bytes_per_step()
        figures = [f"`{one}`", f"{volume:.1f}x", _shown(own.loss), _shown(own.accuracy, 100)]
        figures += [_compared(own.loss, known["Dense"].loss) if one != "Dense" else "", reached, *shown]
        lines.append(f"| {' | '.join(figures)} |")
    return lines


def _seconds(task: Task, own: Outcome, target: float, rate: str, times: Times) -> float | None:
    """Mean over seeds of the time to the target: each step takes what a step of so many bytes was timed at."""
    raced = times.get((task.workload, rate), {})
    points = sorted(
        (row["computed_bytes_per_step"], row["ms_per_step"] / 1e3)
        for method, row in raced.items()
        if (method == "dense" or method.startswith("TopK")) and row["ms_per_step"] and row["computed_bytes_per_step"]
    )
    crossings = own.crossings(target)
    if len(points) < 2 or None in crossings:
        return None
    totals = []
    for row, end in zip(own.rows, crossings, strict=True):
        assert end is not None
        totals.append(sum(_between(points, sent) for sent in row["sent"][: round(end)]))
    return fmean(totals)


def _between(points: Sequence[tuple[float, float]], sent: float) -> float:
    """Seconds of a step that sends so much, on straight lines between what was timed."""
    if sent <= points[0][0]:
        return points[0][1]
    for (low, fast), (high, slow) in pairwise(points):
        if sent <= high:
            return fast + (slow - fast) * (sent - low) / (high - low)
    return points[-1][1] * sent / points[-1][0]


def _c(known: Mapping[str, Outcome]) -> list[str]:
    own = known.get("AdaComp()")
    if own is None:
        return []
    rates = ", ".join(f"{kind} {rate:.0f}x" for kind, rate in sorted(own.rates().items()))
    return [
        "", "### AdaComp", "",
        f"Bytes against dense by kind of layer: {rates}. Loss {_shown(own.loss)}, "
        f"accuracy {_shown(own.accuracy, 100)}%, against dense: {_compared(own.loss, known['Dense'].loss)}.",
    ]  # fmt: skip


def _shown(figure: Figure, scale: float = 1.0) -> str:
    digits = 1 if scale > 1 else 3
    if not figure.seeds > 1:
        return f"{scale * figure.mean:.{digits}f} (one seed)"
    return f"{scale * figure.mean:.{digits}f} ± {scale * figure.spread:.{digits}f}"


def _compared(own: Figure, other: Figure) -> str:
    if min(own.seeds, other.seeds) < 2:
        return "one seed: not judged"
    if own.equals(other):
        return "equal"
    return f"{'better' if own.mean < other.mean else 'worse'} by {abs(own.mean - other.mean):.3f}"
