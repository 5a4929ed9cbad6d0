"""The reproduction's arithmetic: what is equal, when a quality is reached, how long it took; going on after a stop."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from reproduction import page
from reproduction.cells import PARTS, TASKS, cells
from reproduction.outcome import Figure, Outcome
from reproduction.quality import Rows
from reproduction.speed import course, timed

FILES = {"lstm": None, "vgg": None}


def run(losses: list[float], sent: int, seed: int = 0) -> dict[str, object]:
    evaluations = [[10 * (i + 1), loss, 0.5] for i, loss in enumerate(losses)]
    layers = {
        "lstm.weight": {"shape": [8, 8], "bytes": sent / 2, "dense": 100.0},
        "conv": {"shape": [4, 4, 3, 3], "bytes": sent, "dense": 100.0},
        "bias": {"shape": [8], "bytes": 100.0, "dense": 100.0},
    }
    return {"cell": {"seed": seed}, "evaluations": evaluations, "sent": [sent] * 60, "layers": layers}


def test_equal_means_that_the_means_differ_by_less_than_the_larger_spread() -> None:
    wide, narrow = Figure.of([1.0, 2.0, 3.0]), Figure.of([2.9, 2.95, 3.0])
    assert wide == Figure(2.0, 1.0)
    assert wide.equals(narrow)
    assert narrow.equals(wide)
    assert not narrow.equals(Figure(3.1, 0.01))


def test_a_quality_is_reached_where_the_line_between_two_evaluations_crosses_it() -> None:
    outcome = Outcome([run([3.0, 2.0, 1.0], 10)])
    assert outcome.crossings(1.5) == [25.0]
    assert outcome.crossings(3.5) == [10.0]
    assert outcome.crossings(0.5) == [None]


def test_rates_are_told_by_the_kind_of_layer_and_leave_out_what_is_sent_as_it_is() -> None:
    assert Outcome([run([1.0], 10), run([1.0], 30, seed=1)]).rates() == {"recurrent": 10.0, "convolution": 5.0}


def test_a_step_takes_what_steps_of_as_many_bytes_were_timed_at() -> None:
    points = [(10.0, 1.0), (20.0, 3.0), (40.0, 4.0)]
    assert [page._between(points, sent) for sent in (5, 10, 15, 30, 80)] == [1.0, 1.0, 2.0, 3.5, 8.0]


def test_what_is_trained_already_is_known_after_a_stop_in_the_middle_of_a_line(tmp_path: Path) -> None:
    first, second, *_ = cells(PARTS, 1, FILES)
    lines = [json.dumps({"cell": cell.key(), "sent": [1]}) for cell in (first, second)]
    (tmp_path / "rows.jsonl").write_text(lines[0] + "\n" + lines[1][:30])
    rows = Rows(tmp_path / "rows.jsonl")
    assert rows.of(first) == {"cell": first.key(), "sent": [1]}
    assert rows.of(second) is None
    assert (tmp_path / "rows.jsonl").read_text() == lines[0] + "\n"


def test_every_method_can_be_raced_and_every_cell_is_there_once() -> None:
    every = cells(PARTS, 3, FILES)
    assert len(set(every)) == len(every)
    for task in TASKS:
        raced = {method.name for method in course(task, "50mbit", PARTS, FILES).methods}
        trained = {cell.method for cell in every if cell.workload == task.workload}
        assert {timed(one) for one in trained if not one.startswith("GraVAC")} == raced - {"noop"}


@pytest.mark.parametrize("timed_too", [False, True])
def test_the_page_keeps_what_people_wrote_and_says_what_is_known(tmp_path: Path, timed_too: bool) -> None:
    path, rows = tmp_path / "page.md", []
    for cell in cells(PARTS, 3, FILES):
        size = 1000 if cell.method == "Dense" else 100
        rows.append(run([3.0, 2.0 + cell.seed / 10], size, cell.seed) | {"cell": cell.key()})
    path.write_text(f"# By hand\n\n{page.MARK}\nold")
    raced = {"dense": (1000, 500.0), "TopK(density=0.1)": (100, 50.0)}
    row = {key: {"computed_bytes_per_step": sent, "ms_per_step": ms} for key, (sent, ms) in raced.items()}
    times = {("lstm", "50mbit"): row} if timed_too else {}
    page.write(path, rows, times, {"machine": "a test"})
    text = path.read_text()
    assert text.startswith("# By hand\n")
    assert "old" not in text
    assert text.count("10.00x") == 0, "nothing here sends fewer bytes than its uniform setting"
    assert text.count("1.00x") >= 12
    assert "10.0x" in text
    assert ("500" in text) == timed_too
