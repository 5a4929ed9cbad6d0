"""Try again what L-GreCo, GraVAC and AdaComp published, on the lab's LSTM and VGG.

    python benchmarks/reproduce.py --data DIR [--part a] [--seeds 3] [--output FILE] [--page docs/reproduction.md]

Part a: L-GreCo against uniform PowerSGD, top-k and quantisation at the same error. Part b: GraVAC against static top-k.
Part c: AdaComp. Each against dense. DIR holds a text (.txt) for the LSTM and images (.npz) for the VGG; without it the
lab's built-in data are used. What the output holds already is not done again, so it can be stopped and started.
`--only quality` trains; `--only speed` races for step times on links of 50 and 200 Mbit/s (into FILE with .speed before
its end); `--only page` writes the page of what is there. Several `--only quality` with one `--workload` and `--seed`
each, and an output of their own, may run side by side; `--with` reads their rows too.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from laconic.lab.standings import machine
from reproduction import page, speed
from reproduction.cells import PARTS, cells
from reproduction.quality import Rows, train_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=sorted(PARTS), help="default: all")
    parser.add_argument("--workload", action="append", choices=["lstm", "vgg"], help="default: both")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, action="append", help="only these of them")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path, default=Path("build/reproduction.jsonl"))
    parser.add_argument("--with", type=Path, dest="beside", nargs="*", default=[], help="more outputs, for the page")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", choices=["quality", "speed", "page"])
    asked = parser.parse_args()
    files = {"lstm": _found(asked.data, "*.txt"), "vgg": _found(asked.data, "*.npz")}
    names = {workload: Path(file).name if file else None for workload, file in files.items()}
    parts = [part for part in PARTS if asked.part is None or part in asked.part]
    wanted = [
        cell
        for cell in cells(parts, asked.seeds, names)
        if (asked.workload is None or cell.workload in asked.workload)
        and (asked.seed is None or cell.seed in asked.seed)
    ]
    raced = asked.output.with_suffix(".speed" + asked.output.suffix)
    if asked.only in (None, "quality"):
        train_all(wanted, Rows(asked.output), files)
    if asked.only in (None, "speed"):
        speed.race_all(parts, asked.workload or list(files), raced, files)
    if asked.page is not None:
        rows = [row for path in (asked.output, *asked.beside) for row in Rows(path).rows]
        known = [row for cell in wanted if (row := next((r for r in rows if r["cell"] == cell.key()), None))]
        page.write(asked.page, known, speed.times(raced), _conditions())


def _found(folder: Path | None, pattern: str) -> str | None:
    if folder is None:
        return None
    found = sorted(folder.glob(pattern))
    if not found:
        raise SystemExit(f"--data {folder}: it holds no {pattern}")
    return str(found[0])


def _conditions() -> dict[str, str]:
    """Machine, software, commit and command, without the places of files on this machine."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return machine() | {
        "commit": found.stdout.strip() or "unknown",
        "command": f"`python benchmarks/reproduce.py {shlex.join(words)}`",
    }


if __name__ == "__main__":
    main()
