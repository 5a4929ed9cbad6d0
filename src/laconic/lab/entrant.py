"""One method with one seed in a race: how far it is, what it measured, and what became of it."""

import statistics
from dataclasses import dataclass, field
from typing import IO, Any

from laconic.lab.methods import Method

Answers = list[dict[str, Any]]


@dataclass
class Entrant:
    """Measurements of one method. Its clock runs only while it has its turn."""

    method: Method
    seed: int
    steps: int
    status: str = "waiting"  # running, done, crashed, hung
    failure: str | None = None
    parameters: int = 0
    prepare_seconds: float = 0.0
    seconds: float = 0.0
    sent: float = 0.0  # bytes a machine has put on its link, mean over machines
    timed_seconds: float = 0.0
    timed_steps: int = 0
    timed_sent: float = 0.0
    timed_computed: float = 0.0  # the same by laconic's own arithmetic
    turns: list[float] = field(default_factory=list)  # seconds a step, turn by turn, warm-up left out
    losses: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[dict[str, float]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)  # rank 0's timeline of a few steps
    record: IO[bytes] | None = None  # what laconic writes of the run, in a file without a name
    profile: str | None = None  # what a probe found
    shift: float = 0.0  # from the clock of spans to the wall's

    @property
    def step(self) -> int:
        return len(self.losses)

    @property
    def alive(self) -> bool:
        return self.status in ("waiting", "running", "done")

    @property
    def ms_per_step(self) -> float | None:
        """Median over turns, each the mean of its steps: bursts of other work on the machine fall out."""
        return 1e3 * statistics.median(self.turns) if self.turns else None

    @property
    def mean_ms_per_step(self) -> float | None:
        """Mean over all timed steps, rare and costly ones included."""
        return 1e3 * self.timed_seconds / self.timed_steps if self.timed_steps else None

    @property
    def sent_per_step(self) -> float | None:
        return self.timed_sent / self.timed_steps if self.timed_steps else None

    @property
    def loss(self) -> float | None:
        """Mean training loss over the last ten steps."""
        recent = [entry["loss"] for entry in self.losses[-10:]]
        return sum(recent) / len(recent) if recent else None

    @property
    def seconds_left(self) -> float | None:
        pace = self.ms_per_step
        return None if pace is None else (self.steps - self.step) * pace / 1e3

    def took_turn(self, answers: Answers, sent: float, timed: bool) -> None:
        """Account for a turn, from every rank's answer and the bytes that the turn put on the wire."""
        steps = len(answers[0]["seconds"])
        self.spans += answers[0]["spans"]
        self.shift = answers[0]["shift"]
        turn = max(sum(answer["seconds"]) for answer in answers)
        for index in range(steps):
            self.seconds += turn / steps
            self.sent += sent / steps
            loss = sum(answer["losses"][index] for answer in answers) / len(answers)
            self.losses.append(
                {
                    "step": self.step,
                    "loss": loss,
                    "seconds": self.seconds,
                    "wire_bytes": self.sent,
                    "time": answers[0]["ends"][index],
                }
            )
        if timed:
            self.timed_seconds += turn
            self.timed_steps += steps
            self.timed_sent += sent
            self.timed_computed += sum(answer["computed_bytes"] for answer in answers) / len(answers)
            self.turns.append(turn / steps)

    def was_judged(self, loss: float, accuracy: float) -> None:
        """Note a held-out evaluation at the present step."""
        self.evaluations.append(
            {
                "step": self.step,
                "loss": loss,
                "accuracy": accuracy,
                "seconds": self.seconds,
                "wire_bytes": self.sent,
            }
        )

    def seconds_to(self, loss: float | None, accuracy: float | None) -> float | None:
        """Own training time until a held-out evaluation first met the target."""
        for judged in self.evaluations:
            if loss is not None and judged["loss"] <= loss:
                return judged["seconds"]
            if accuracy is not None and judged["accuracy"] >= accuracy:
                return judged["seconds"]
        return None
