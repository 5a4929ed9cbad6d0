"""Run records in Chrome's trace event format, which Perfetto and chrome://tracing open."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laconic.errors import InvalidConfig
from laconic.lab.records import Run


def trace_events(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A process a run: a thread for each lane of spans, counters for traffic and loss, marks where the plan changed.

    Times are microseconds since the earliest event of all runs.
    """
    origin = min((moment for run in runs for moment in _moments(run)), default=0.0)
    return [event for number, run in enumerate(runs, 1) for event in _of_run(run, number, origin)]


def _moments(run: Run) -> list[float]:
    return [float(event["time"]) for event in run.events if "time" in event] + [span["start"] for span in run.spans()]


def _of_run(run: Run, pid: int, origin: float) -> list[dict[str, Any]]:
    def at(moment: float) -> float:
        return round(1e6 * (moment - origin), 3)

    made: list[dict[str, Any]] = [_named("process_name", run.name, pid, 0)]
    lanes = {lane: tid for tid, lane in enumerate(dict.fromkeys(event["lane"] for event in run.of("span")), 1)}
    made += [_named("thread_name", lane, pid, tid) for lane, tid in lanes.items()]
    for span in run.spans():
        made.append(
            {
                "ph": "X",
                "name": span["name"],
                "cat": span["lane"],
                "pid": pid,
                "tid": lanes[span["lane"]],
                "ts": at(span["start"]),
                "dur": round(1e6 * (span["stop"] - span["start"]), 3),
                "args": {"step": span["step"]},
            }
        )
    for step in run.of("step"):
        made.append(_counter("bytes on the wire", {"bytes": step["wire_bytes"]}, pid, at(step["time"])))
        spent = {"compress": 1e3 * step.get("compress_s", 0.0), "communicate": 1e3 * step.get("communicate_s", 0.0)}
        made.append(_counter("milliseconds", spent, pid, at(step["time"])))
    made += [_counter("loss", {"loss": e["loss"]}, pid, at(e["time"])) for e in run.of("loss") if "time" in e]
    times = {event["step"]: event["time"] for event in run.of("step")}
    for change in run.of("plan"):
        moment = change.get("time", times.get(change["step"], origin))
        made.append(
            {
                "ph": "i",
                "s": "p",
                "name": f"plan: {change.get('why', 'changed')}",
                "pid": pid,
                "tid": 0,
                "ts": at(moment),
                "args": change.get("changed", {}),
            }
        )
    return made


def _named(kind: str, name: str, pid: int, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _counter(name: str, values: dict[str, float], pid: int, ts: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": ts, "args": values}


def write_trace(runs: Sequence[Run], path: Path) -> None:
    try:
        path.write_text(json.dumps({"traceEvents": trace_events(runs), "displayTimeUnit": "ms"}))
    except OSError as error:
        raise InvalidConfig("output", str(path), f"choose a file that can be written ({error.strerror})") from None
