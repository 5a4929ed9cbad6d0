"""Many races in a row, workloads x rates: results are kept as they come, and a second start goes on from there."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from laconic.errors import InvalidConfig
from laconic.lab.race import Course, Race
from laconic.lab.standings import NETWORKS, busy, standings

Row = dict[str, Any]


def signature(course: Course) -> Row:
    """What a result depends on, beyond the names in its row. The data's place on this machine is nobody's business."""
    return {
        "methods": [method.name for method in course.methods],
        "steps": course.steps,
        "turn": course.turn,
        "warmup": course.warmup,
        "data": Path(course.data).name if course.data else None,
        # Results of before have none of these.
        **({"batch": course.batch} if course.batch is not None else {}),
        **({"optimizer": course.optimizer} if course.optimizer is not None else {}),
    }


def commit() -> str | None:
    """The commit of laconic that is at work, where it runs from a clone and there is a git to ask."""
    ask = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(ask, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    except OSError:
        return None
    return found.stdout.strip() if found.returncode == 0 else None


class Results:
    """The rows of a matrix in a JSONL file. A torn last line, left by a kill, is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        try:
            lines = path.read_text().splitlines() if path.exists() else []
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidConfig("output", str(path), f"choose a file that can be used ({error.strerror})") from None
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                row["course"], row["workload"], row["method"]
            except (ValueError, KeyError, TypeError):
                if number == len(lines):
                    break
                raise InvalidConfig("output", str(path), f"line {number} is no result: choose another file") from None
            self.rows.append(row)
        self._write()

    def of(self, course: Course) -> list[Row]:
        """The rows that a course has already; all of them or none."""
        wanted = (course.workload, str(course.layout), str(course.rate), course.seeds, signature(course))
        found = {
            row["method"]: row
            for row in self.rows
            if (row["workload"], row["hosts"], row["rate"], row["seeds"], row["course"]) == wanted
        }
        return list(found.values()) if len(found) == len(course.methods) else []

    def add(self, rows: Sequence[Row]) -> None:
        """Keep a race's rows, whole or not at all: the file is replaced in one act."""
        self.rows += rows
        self._write()

    def _write(self) -> None:
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        beside.replace(self.path)


def run_matrix(
    courses: Sequence[Course], results: Results, watch: Callable[[Course, Race | None], None]
) -> Iterator[list[Row]]:
    """Race what has no results yet; the rows of every course in order. `watch` hears of each turn."""
    for course in courses:
        done = results.of(course)
        if done:
            watch(course, None)
            yield done
            continue
        race = Race(course)
        race.watch = lambda _, course=course, race=race: watch(course, race)  # type: ignore[misc]
        race.run()
        told = {"course": signature(course), "commit": commit()}
        rows = [asdict(row) | told for row in standings(race)]
        results.add(rows)
        yield rows


def results_page(blocks: Sequence[list[Row]], conditions: dict[str, str]) -> str:
    """The results as a page of Markdown tables, with the machine, the command, and each race's commit."""
    lines = ["# Results", ""]
    lines += [f"- {key}: {value}" for key, value in conditions.items()]
    lines += [
        "",
        "ms/step is the median over turns of a few steps; the methods of a table took turns in one run. *Over the",
        "limit* is the method's step time over that without any communication (noop). *MB/step* is the kernel's count",
        "of what one machine sent. Losses of several seeds: mean and standard deviation. Compare ratios inside one",
        "table; absolute times belong to the machine above.",
    ]
    for rows in blocks:
        first = rows[0]
        lines += ["", f"## {_title(first)}", ""]
        if first.get("commit"):  # results of before have none
            lines += [f"Raced at commit {first['commit']}.", ""]
        if busy(first["load"]):
            lines += [busy(first["load"]), ""]
        if first["network"] == "paced":
            lines += [NETWORKS["paced"], ""]
        lines += ["| method | ms/step | vs dense | over the limit | MB/step | held-out loss | accuracy |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|"]
        lines += [_markdown(row) for row in rows]
    return "\n".join(lines) + "\n"


def _title(row: Row) -> str:
    also = [f"{row['seeds']} seeds"] if row["seeds"] > 1 else []
    also += [row["course"]["optimizer"]] if "optimizer" in row["course"] else []
    return ", ".join([row["workload"], f"{row['hosts']} hosts", row["rate"], *also])


def _markdown(row: Row) -> str:
    def shown(key: str, form: str, scale: float = 1.0) -> str:
        return "-" if row[key] is None else form.format(row[key] * scale)

    name = f"`{row['method']}`" + (f" ({row['status']} at step {row['steps']})" if row["failure"] else "")
    figures = [
        shown("ms_per_step", "{:.0f}"),
        shown("over_dense", "{:.2f}x"),
        "-" if not row["of_limit"] else f"{1 / row['of_limit']:.2f}x",
        shown("wire_bytes_per_step", "{:.3f}", 1e-6),
        shown("loss", "{:.3f}") + (shown("loss_spread", " ± {:.3f}") if row["loss_spread"] else ""),
        shown("accuracy", "{:.1%}"),
    ]
    return f"| {name} | {' | '.join(figures)} |"
