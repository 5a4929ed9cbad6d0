"""Auto beside the limit, plain DDP, fp16, PyTorch's PowerSGD and static plans: every table of docs/results-tables.md.

    python benchmarks/results.py [--output build/results.jsonl] [--page docs/results-tables.md] [--known]

Two to three hours on two cores. Stop it when you like: what is done is in the output, and the next start goes on there.
With `--known` nothing is raced, and the page holds what is there. Other pages of tables are of other machines.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from laconic.cli.matrix import found_at
from laconic.lab.layout import Layout
from laconic.lab.matrix import Results, Row, results_page, run_matrix
from laconic.lab.methods import parse_methods
from laconic.lab.race import Course, Race
from laconic.lab.rates import Schedule

WORKLOADS = ("lstm", "gpt", "vgg")
SHAPED = ("200mbit", "1gbit", "50mbit")
RIVALS = "noop;torch-powersgd:4;auto"
BESIDE_DENSE = "noop;dense;auto"
LOW_RANK = "PowerSGD(rank=16, dtype='int3')"
STATIC = ";".join(
    [
        "noop",
        "auto",
        LOW_RANK,
        "PowerSGD(rank=16, dtype='bf16')",
        "PowerSGD(rank=16, dtype='int4')",
        "PowerSGD(rank=24, dtype='int3')",
        "PowerSGD(rank=8)",
    ]
    + [f"Quantize(bits={bits})" for bits in (8, 4, 3, 2)]
    + ["Chain(TopK(density=0.1, selection='sampled'), Quantize(bits=4))", "TopK(density=0.01)", "Sign()", "AdaComp()"]
)
SWEPT = {"lstm": ("50mbit", "1gbit", "200mbit"), "gpt": ("200mbit", "50mbit", "1gbit"),
         "vgg": ("200mbit", "50mbit", "1gbit")}  # fmt: skip
OTHER = {  # optimizers that a workload does not use by itself: SGD has momentum
    "lstm": "adam:0.002", "gpt": "sgd:0.1", "vgg": "adam:0.0005", "resnet": "sgd:0.02", "mlp": "adam:0.0005",
}  # fmt: skip


def course(workload: str, rate: str, methods: str, *, hosts: str = "2", steps: int = 50, **more: object) -> Course:
    return Course(
        workload, Layout.parse(hosts), Schedule.parse(rate), parse_methods(methods),
        steps=steps, turn=5, warmup=30, evaluations=1, **more,
    )  # fmt: skip


def courses() -> Iterator[Course]:
    """All that is raced, in the order of the page."""
    for rate in SHAPED:
        for workload in WORKLOADS:
            yield course(workload, rate, f"{RIVALS};{LOW_RANK}" if rate == "50mbit" else RIVALS, seeds=3)
    for workload in WORKLOADS:
        yield course(workload, "unshaped", BESIDE_DENSE, seeds=3)
    for workload, other in OTHER.items():  # what dense learns does not depend on the link
        for optimizer in (other,) if workload in WORKLOADS else (None, other):
            yield course(workload, "unshaped", "dense", seeds=3, optimizer=optimizer)
            yield course(workload, "50mbit", "auto", seeds=3, optimizer=optimizer)
    for rate in SHAPED[:2]:
        for workload in WORKLOADS:
            yield course(workload, rate, RIVALS, hosts="2x2", seeds=3)
    for turn in range(3):
        for workload, rates in SWEPT.items():
            yield course(workload, rates[turn], STATIC)
    for workload in WORKLOADS:
        yield course(workload, SHAPED[2], RIVALS, hosts="2x2", seeds=3)
    for rate in SHAPED:
        for workload in WORKLOADS:
            yield course(workload, rate, "noop;dense;fp16;auto", steps=40)
    for workload in WORKLOADS:
        yield course(workload, "unshaped", BESIDE_DENSE, hosts="2x2", seeds=3)


def summary(blocks: Sequence[Sequence[Row]]) -> list[str]:
    """A line for each race with Auto and the limit: how far above it Auto is, and what the others take beside it."""
    others = {"plain DDP": "dense", "fp16": "fp16", "PyTorch's PowerSGD 4": "torch-powersgd:4"}
    lines = ["## Auto, race by race", "", f"| | seeds | over the limit | {' | '.join(others)} | best static plan |"]
    lines.append("|---|---:|---:" + "|---:" * (len(others) + 1) + "|")
    for rows in blocks:
        took = {row["method"]: row["ms_per_step"] for row in rows if row["ms_per_step"]}
        if not {"noop", "auto"} <= took.keys():
            continue
        named = {"noop", "auto", *others.values()}
        static = min((one for one in took if one not in named), key=lambda one: took[one], default=None)
        first = rows[0]
        figures = [f"{took[name] / took['auto']:.2f}x" if name in took else "-" for name in others.values()]
        figures.append(f"{took[static] / took['auto']:.2f}x `{static}`" if static else "-")
        place = f"{first['workload']}, {first['hosts']} hosts, {first['rate']}"
        over = f"{took['auto'] / took['noop']:.2f}x"
        lines.append(f"| {place} | {first['seeds']} | {over} | {' | '.join(figures)} |")
    lines += [
        "",
        "*Over the limit* is Auto's step over one without communication. The columns after it are what others take",
    ]
    return [*lines, "over what Auto takes, in the same race: above 1, Auto is faster.", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="build/results.jsonl")
    parser.add_argument("--page", default="docs/results-tables.md")
    parser.add_argument("--known", action="store_true")
    arguments = parser.parse_args()
    results = Results(Path(arguments.output))
    wanted = [course for course in courses() if results.of(course) or not arguments.known]

    def watch(course: Course, race: Race | None) -> None:
        steps = sum(entrant.step for entrant in race.entrants) if race else 0
        told = f"{steps} of {course.steps * course.seeds * len(course.methods)} steps" if race else "done before"
        print(f"{course.workload} at {course.rate}, {course.layout} hosts: {told}", flush=True)

    blocks = []
    for course, rows in zip(wanted, run_matrix(wanted, results, watch), strict=True):
        blocks.append(rows)
        conditions = found_at(course, rows[0]["network"]) | {"command": "`python benchmarks/results.py`"}
        page = results_page(blocks, conditions).splitlines()
        first = next(index for index, line in enumerate(page) if line.startswith("## "))
        Path(arguments.page).write_text("\n".join([*page[:first], *summary(blocks), *page[first:]]) + "\n")


if __name__ == "__main__":
    main()
