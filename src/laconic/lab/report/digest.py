"""What the report shows, computed from run records: plain numbers for the page's script to draw."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from laconic.lab.records import Event, Run

_COLUMNS = ("method", "status", "ms_per_step", "over_dense", "of_limit", "wire_bytes_per_step", "loss", "accuracy")


def digest(runs: Sequence[Run]) -> dict[str, Any]:
    """The page's data: conditions, standings, and for each run its curves, split, plan, timeline and changes."""
    race = next((run.first("race") for run in runs if run.of("race")), {})
    limit = next((run.first("result").get("ms_per_step") for run in runs if run.name == "noop"), None)
    page: dict[str, Any] = _finite(
        {
            "title": _title(race, runs),
            "conditions": race.get("conditions") or _conditions(runs),
            "paced": race.get("network") == "paced",
            "standings": [
                {column: result.get(column) for column in (*_COLUMNS, "failure", "seconds_to_target")}
                for result in (run.first("result") for run in runs)
                if result
            ],
            "runs": [_run(run, limit) for run in runs],
        }
    )
    return page


def _title(race: Event, runs: Sequence[Run]) -> str:
    if race:
        return f"{race['workload']} over {race['hosts']} hosts at {race['rate']}"
    return " and ".join(run.name for run in runs[:3])


def _conditions(runs: Sequence[Run]) -> dict[str, str]:
    start = runs[0].first("start")
    known = {"laconic": start.get("version"), "ranks": start.get("world")}
    return {key: str(value) for key, value in known.items() if value is not None}


def _run(run: Run, limit: float | None) -> dict[str, Any]:
    return {
        "name": run.name,
        "summary": run.first("race").get("summary", ""),
        "loss": _curve(run, "loss"),
        "held_out": _curve(run, "evaluation"),
        "traffic": [[event["step"], event["wire_bytes"]] for event in run.of("step")],
        "split": _split(run, limit),
        "layers": _layers(run),
        "timeline": _timeline(run),
        "changes": [
            {"step": event["step"], "why": event.get("why", ""), "layer": name, "old": old, "new": new}
            for event in run.of("plan")
            for name, (old, new) in event.get("changed", {}).items()
        ],
    }


def _curve(run: Run, kind: str) -> list[list[float]]:
    """Points (seconds, bytes, loss). A race tells both axes; elsewhere they come from the clock and the step events."""
    start = run.first("start").get("time", 0.0)
    steps = run.of("step")
    totals = dict(
        zip((event["step"] for event in steps), accumulate(event["wire_bytes"] for event in steps), strict=True)
    )
    points = []
    for event in run.of(kind):
        seconds = event.get("seconds", event.get("time", start) - start)
        sent = event.get("wire_bytes", totals.get(event["step"], 0))
        points.append([seconds, sent, event["loss"]])
    return points


def _split(run: Run, limit: float | None) -> dict[str, Any] | None:
    """Milliseconds of a step by kind. With the race's limit (no communication), what lies above it is exposed."""
    steps = run.of("step")[1:]
    compress = 1e3 * _mean([event.get("compress_s", 0.0) for event in steps])
    communicate = 1e3 * _mean([event.get("communicate_s", 0.0) for event in steps])
    total = run.first("result").get("ms_per_step")
    if total is None and len(steps) > 1:
        total = 1e3 * (steps[-1]["time"] - steps[0]["time"]) / (len(steps) - 1)
    if total is None:
        return None
    if limit is not None:
        above = max(0.0, total - limit)
        compress = min(compress, above)
        return {"total": total, "compute": total - above, "compress": compress, "communicate": above - compress}
    communicate = min(communicate, total - min(compress, total))
    compress = min(compress, total)
    return {
        "total": total,
        "compute": total - compress - communicate,
        "compress": compress,
        "communicate": communicate,
        "overlap_unknown": True,
    }


def _layers(run: Run) -> list[dict[str, Any]]:
    """The plan at the end of the record, layer by layer, largest first."""
    start = run.first("start")
    plan = dict(start.get("plan", {}))
    for event in run.of("plan"):
        plan.update({name: new for name, (_, new) in event.get("changed", {}).items()})
    last: dict[str, Any] = {}
    for event in run.of("layers"):
        last.update(event["layers"])
    shapes = start.get("layers", {})
    rows = []
    for name in {**shapes, **plan}:
        seen, shape = last.get(name, {}), shapes.get(name, {})
        rows.append(
            {
                "name": name,
                "shape": " x ".join(map(str, shape.get("shape", []))),
                "numel": shape.get("numel"),
                "plan": plan.get(name, ""),
                "wire_bytes": seen.get("wire_bytes"),
                "error": seen.get("error"),
                "residual_norm": seen.get("residual_norm"),
            }
        )
    return sorted(rows, key=lambda row: -(row["numel"] or 0))


def _timeline(run: Run) -> list[dict[str, Any]]:
    """Spans by step, in milliseconds from the step's first."""
    steps: dict[int, list[Event]] = {}
    for event in run.of("span"):
        steps.setdefault(event["step"], []).append(event)
    shown = []
    for step, spans in steps.items():
        origin = min(span["start"] for span in spans)
        shown.append(
            {
                "step": step,
                "spans": [
                    [span["lane"], span["name"], 1e3 * (span["start"] - origin), 1e3 * (span["stop"] - origin)]
                    for span in sorted(spans, key=lambda span: float(span["start"]))
                ],
            }
        )
    return shown


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: a loss that ran away becomes a gap."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
