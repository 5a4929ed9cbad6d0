"""The record of a run: one JSON object a line, for reports and for people; and the same numbers to any metrics sink."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Protocol

from laconic.control.history import Change
from laconic.errors import InvalidConfig
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.runtime.observer import EVERY, StepTally
from laconic.stats import Stats
from laconic.world import World

SPANS = range(5, 8)  # the steps whose timeline is recorded, after the first ones have warmed up


class Scalars(Protocol):
    """What TensorBoard's SummaryWriter offers."""

    def add_scalar(self, tag: str, value: float, step: int) -> object: ...


Sink = Scalars | Callable[[Mapping[str, object]], object]


class Recorder:
    """Writes events as they come; rank 0 only. A line is whole or absent: each is written at once and flushed."""

    def __init__(self, path: str | Path | None, sink: Sink | None, world: World) -> None:
        self._file: IO[str] | None = None
        self._sink = sink if world.rank == 0 else None
        self._world = world
        if path is not None and world.rank == 0:
            try:
                self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115  (open for the whole run)
            except OSError as error:
                raise InvalidConfig("record", str(path), f"name a file that can be written: {error}") from None

    @property
    def wanted(self) -> bool:
        """Whether anybody listens."""
        return self._file is not None or self._sink is not None

    def start(self, version: str, plan: Plan, layers: Mapping[str, Layer]) -> None:
        """The run begins."""
        shapes = {name: {"numel": layer.numel, "shape": list(layer.shape)} for name, layer in layers.items()}
        texts = {name: str(compressor) for name, compressor in plan.items()}
        self._write("start", version=version, world=self._world.size, plan=texts, why=plan.why, layers=shapes)

    def step(self, tally: StepTally, stats: Callable[[], Stats]) -> None:
        """A step has ended."""
        if not self.wanted:
            return
        now = stats()
        done = max(1, now.steps)
        self._write(
            "step", step=tally.step, wire_bytes=tally.wire_bytes, dense_bytes=now.dense_bytes // done,
            compress_s=tally.compress_s, communicate_s=tally.communicate_s, spoiled=tally.spoiled,
        )  # fmt: skip
        if tally.step in SPANS:
            for bucket, what, start, stop in tally.spans:
                self._write("span", step=tally.step, lane=what, name=bucket, start=start, stop=stop)
        if tally.step % EVERY == 1:
            layers = {
                name: {
                    "wire_bytes": layer.wire_bytes // done,
                    "error": layer.error,
                    "residual_norm": layer.residual_norm,
                }
                for name, layer in now.layers.items()
            }
            self._write("layers", step=tally.step, layers=layers)

    def change(self, change: Change) -> None:
        """Another plan was adopted."""
        self._write(
            "plan", step=change.step, changed=change.changed, waits=sorted(change.plan.waits), why=change.why,
            predicted=dict(change.predicted),
        )  # fmt: skip

    def effect(self, change: Change) -> None:
        """What came of a change, beside what was expected."""
        self._write("effect", step=change.step, predicted=dict(change.predicted), measured=change.measured)

    def _write(self, event: str, **content: object) -> None:
        entry = {"event": event, "time": time.time(), **content}
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        if callable(self._sink):
            self._sink(entry)
        elif self._sink is not None and event == "step":
            for key, value in content.items():
                if key != "step" and isinstance(value, (int, float)):
                    self._sink.add_scalar(f"laconic/{key}", float(value), int(str(content["step"])))

    def close(self) -> None:
        """No more events."""
        if self._file is not None:
            self._file.close()
            self._file = None
