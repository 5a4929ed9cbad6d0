"""`laconic kernels` reports every kernel in the shape that its readers expect."""

import json
from pathlib import Path

import pytest

from laconic.cli import main


def test_report_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "kernels.svg"
    assert main(["kernels", "--numel", "4000", "--threads", "1", "--json", "--plot", str(chart)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["numel", "threads", "memcpy_gbps", "kernels"]
    assert (report["numel"], report["threads"]) == (4000, 1)
    for each in report["kernels"]:
        assert list(each) == ["name", "backend", "gbps", "of_memcpy", "over_reference"]
        assert each["gbps"] == pytest.approx(each["of_memcpy"] * report["memcpy_gbps"])
        assert each["over_reference"] > 0
        assert each["name"] in chart.read_text()


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--numel", "0"]) == 2
    assert "numel=0" in capsys.readouterr().err
