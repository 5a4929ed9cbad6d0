"""Run records: one JSON object a line, written while training goes on, read by the report and the trace.

Every line has an `event`. laconic writes `start`, `step`, `layers`, `plan` and `span`; a race adds `race` (first),
`loss`, `evaluation` and `result` (last). docs/lab.md lists their fields. Unknown events are kept; a torn last line is
dropped.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from laconic.errors import InvalidConfig
from laconic.lab.entrant import Entrant
from laconic.lab.race import Race
from laconic.lab.standings import Standing, conditions
from laconic.lab.team import contents

Event = dict[str, Any]


@dataclass
class Run:
    """A record in memory: its name and its events in order."""

    name: str
    events: list[Event] = field(default_factory=list)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def first(self, kind: str) -> Event:
        """The first event of a kind, or an empty one."""
        return next(iter(self.of(kind)), {})

    def spans(self) -> list[Event]:
        """Spans on the wall clock. If theirs is another, a step's last span ends when its `step` event is written."""
        ends: dict[int, float] = {}
        for span in self.of("span"):
            ends[span["step"]] = max(span["stop"], ends.get(span["step"], span["stop"]))
        written = {event["step"]: event["time"] for event in self.of("step")}
        moved = []
        for span in self.of("span"):
            shift = written.get(span["step"], ends[span["step"]]) - ends[span["step"]]
            shift = shift if abs(shift) > 60 else 0.0
            moved.append({**span, "start": span["start"] + shift, "stop": span["stop"] + shift})
        return moved


def load(path: str | Path) -> list[Run]:
    """The runs in a record; a file may hold several, each beginning with a `race` or, without one, a `start`."""
    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig("record", str(path), f"give a readable run record ({error})") from None
    runs: list[Run] = []
    for event in _events(str(path), text.splitlines()):
        started = event["event"] == "race" or (event["event"] == "start" and not _opens(runs))
        if started or not runs:
            runs.append(Run(str(event.get("method", path.stem))))
        runs[-1].events.append(event)
    if not runs:
        raise InvalidConfig("record", str(path), "it holds no events; record one with attach(model, record=...)")
    return runs


def _opens(runs: list[Run]) -> bool:
    """Whether the last run is a race's that has not seen its `start` yet."""
    return bool(runs) and bool(runs[-1].of("race")) and not runs[-1].of("start")


def _events(source: str, lines: list[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            if not isinstance(event.get("event"), str):
                raise ValueError
        except (ValueError, AttributeError):
            if number == len(lines):
                return  # whoever wrote it was stopped in the middle of a line
            remedy = f"line {number} is not a run record's: each line is a JSON object with an event"
            raise InvalidConfig("record", source, remedy) from None
        yield event


def of_race(race: Race, rows: Iterable[Standing]) -> list[Run]:
    """A record of each method's first seed: what laconic wrote, and what the race measured."""
    results = {row.method: row for row in rows}
    return [_of_entrant(race, entrant, results[entrant.method.name]) for entrant in race.entrants if entrant.seed == 0]


def _of_entrant(race: Race, entrant: Entrant, row: Standing) -> Run:
    header: Event = {
        "event": "race",
        "method": entrant.method.name,
        "summary": entrant.method.summary,
        "workload": race.course.workload,
        "hosts": str(race.course.layout),
        "rate": str(race.course.rate),
        "network": race.network_kind,
        "parameters": entrant.parameters,
        "conditions": conditions(race.course, race.network_kind, race.load),
    }
    run = Run(entrant.method.name, [header])
    if entrant.record is not None:
        run.events += _events(entrant.method.name, contents(entrant.record).splitlines())
    run.events += [{"event": "span", **span} for span in entrant.spans]
    for event in run.of("span"):
        event |= {"start": event["start"] + entrant.shift, "stop": event["stop"] + entrant.shift}
    run.events += [{"event": "loss", **entry} for entry in entrant.losses]
    run.events += [{"event": "evaluation", **entry} for entry in entrant.evaluations]
    run.events.append({"event": "result", **asdict(row)})
    return run


def save_all(runs: Iterable[Run], path: Path) -> None:
    """Several runs in one file."""
    with path.open("w") as file:
        for run in runs:
            file.writelines(json.dumps(event) + "\n" for event in run.events)
