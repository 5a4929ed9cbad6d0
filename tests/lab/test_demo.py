"""The demo keeps its promise: under three minutes, a winner by name, a report."""

import time
from pathlib import Path

import pytest

from laconic.cli import main
from laconic.cli.demo import verdict
from laconic.lab.matrix import Row
from laconic.lab.standings import Standing

ROW: Row = {
    "workload": "lstm", "hosts": "2", "rate": "100mbit", "status": "ok", "mean_ms_per_step": None,
    "wire_bytes_per_step": 1e6, "computed_bytes_per_step": None, "accuracy": None, "loss_spread": None,
    "seconds_to_target": None, "prepare_seconds": 1.0, "steps": 40, "seeds": 1,
    "network": "root", "load": 0.0, "failure": None,
}  # fmt: skip


def row(method: str, ms: float | None, loss: float | None, **other: object) -> Standing:
    figures = {"of_limit": 200 / ms if ms else None, "over_dense": 1000 / ms if ms else None}
    return Standing(**{**ROW, **figures, "method": method, "ms_per_step": ms, "loss": loss, **other})


def test_the_verdict_names_winner_margin_loss_and_limit() -> None:
    rows = [row("noop", 200, None), row("dense", 1000, 2.0), row("auto", 250, 2.01)]
    told = " ".join(verdict(rows))
    for part in ("auto: 250 ms", "4.0 times", "1000 ms", "80% of the speed", "2.010", "2.000"):
        assert part in told


def test_the_verdict_is_honest_when_dense_wins_or_nothing_finishes() -> None:
    assert "The fastest was dense" in verdict([row("dense", 100, 2.0), row("auto", 120, 2.0)])[0]
    failed = row("auto", None, None, status="hung", failure="no answer")
    assert verdict([failed]) == ["auto hung: no answer", "No method finished, so there is no winner."]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_demo_takes_under_three_minutes(tmp_path: Path, capsys) -> None:
    report = tmp_path / "report.html"
    start = time.monotonic()
    assert main(["demo", "--report", str(report)]) == 0
    assert time.monotonic() - start < 180
    told = capsys.readouterr().out
    assert "The fastest was" in told
    for method in ("noop", "dense", "fp16", "torch-powersgd:4", "auto"):
        assert method in told
    assert report.stat().st_size > 20_000
