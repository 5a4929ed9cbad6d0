"""A run tells about itself: a JSONL file, any object with add_scalar, or a function; from rank 0 only."""

import json
from pathlib import Path
from typing import Any

from ranks import run
from training import ddp, toy, train

import laconic

STEPS = 12


class Scalars:
    """What TensorBoard's writer offers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.told.append((tag, value, step))


def recorded(rank: int, path: str) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    scalars, compressor = Scalars(), laconic.TopK(density=0.1)
    listened, charted = ddp(toy()), ddp(toy())
    handle = laconic.attach(listened, compressor, record=path, metrics=events.append)
    laconic.attach(charted, compressor, metrics=scalars)
    train(listened, rank, range(STEPS))
    train(charted, rank, range(STEPS))
    handle.detach()
    return {"events": len(events), "scalars": scalars.told, "wire": handle.stats().wire_bytes}


def test_a_run_is_recorded_step_by_step_by_rank_0(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first, second = run(recorded, 2, path=str(path))
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [entry["event"] for entry in entries]
    assert kinds[0] == "start"
    assert kinds.count("step") == STEPS
    assert {"layers", "span"} <= set(kinds)
    assert any("TopK" in expression for expression in entries[0]["plan"].values())
    steps = [entry for entry in entries if entry["event"] == "step"]
    assert [entry["step"] for entry in steps] == list(range(STEPS))
    assert sum(entry["wire_bytes"] for entry in steps) == first["wire"]
    assert all(0 < entry["wire_bytes"] < entry["dense_bytes"] for entry in steps)
    assert first["events"] == len(entries), "the function hears what the file holds"
    assert second["events"] == 0, "rank 0 tells for all"
    assert second["scalars"] == []
    wire = [(value, step) for tag, value, step in first["scalars"] if tag == "laconic/wire_bytes"]
    assert [step for _, step in wire] == list(range(STEPS))
    assert all(value > 0 for value, _ in wire)
