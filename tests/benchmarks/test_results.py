"""The results page's arithmetic: Auto against the limit and against what ran beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from results import courses, summary

from laconic.lab.matrix import Row
from laconic.lab.workloads import WORKLOADS


def row(method: str, ms: float | None) -> Row:
    return {"method": method, "ms_per_step": ms, "workload": "lstm", "hosts": "2", "rate": "50mbit", "seeds": 3}


def test_the_summary_tells_how_far_auto_is_from_the_limit_and_from_the_best_static_plan() -> None:
    rows = [row("noop", 100.0), row("dense", 300.0), row("auto", 120.0), row("Sign()", 180.0), row("TopK()", 126.0)]
    told = summary([rows, [row("dense", 1.0), row("auto", 1.0)]])
    (line,) = [line for line in told if line.startswith("| lstm")]
    assert line == "| lstm, 2 hosts, 50mbit | 3 | 1.20x | 2.50x | - | - | 1.05x `TopK()` |"


def test_a_method_that_failed_has_no_figure() -> None:
    told = summary([[row("noop", 100.0), row("auto", 120.0), row("fp16", None)]])
    (line,) = [line for line in told if line.startswith("| lstm")]
    assert line == "| lstm, 2 hosts, 50mbit | 3 | 1.20x | - | - | - | - |"


def test_every_course_is_raced_once() -> None:
    every = [(c.workload, str(c.layout), str(c.rate), c.methods, c.seeds, c.steps, c.optimizer) for c in courses()]
    assert len(set(every)) == len(every)
    assert {c.workload for c in courses()} == set(WORKLOADS)
