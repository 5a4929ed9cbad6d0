"""Try again what L-GreCo, GraVAC and AdaComp published, on the lab's LSTM and VGG.

    python benchmarks/reproduce.py --data DIR [--part a] [--seeds 3] [--output FILE] [--page docs/reproduction.md]

Part a: L-GreCo against uniform PowerSGD, top-k and quantisation at the same error. Part b: GraVAC against static top-k.
Part c: AdaComp. Each against dense. DIR holds a text (.txt) for the LSTM and images (.npz) for the VGG; without it the
lab's built-in data are used. Cells that the output holds already are not trained again, so it can be stopped and
started. `--only quality` trains; `--only speed` races for step times on links of 50 and 200 Mbit/s; `--only page`
writes the page of what is there.
"""

import argparse
from pathlib import Path

from reproduction.cells import PARTS, cells
from reproduction.quality import Rows, train_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=sorted(PARTS), help="default: all")
    parser.add_argument("--workload", action="append", choices=["lstm", "vgg"], help="default: both")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path, default=Path("build/reproduction.jsonl"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", choices=["quality", "speed", "page"])
    arguments = parser.parse_args()
    files = {"lstm": _found(arguments.data, "*.txt"), "vgg": _found(arguments.data, "*.npz")}
    names = {workload: Path(file).name if file else None for workload, file in files.items()}
    wanted = cells(arguments.part or PARTS, arguments.seeds, names)
    wanted = [cell for cell in wanted if arguments.workload is None or cell.workload in arguments.workload]
    rows = Rows(arguments.output)
    if arguments.only in (None, "quality"):
        train_all(wanted, rows, files)


def _found(folder: Path | None, pattern: str) -> str | None:
    if folder is None:
        return None
    found = sorted(folder.glob(pattern))
    if not found:
        raise SystemExit(f"--data {folder}: it holds no {pattern}")
    return str(found[0])


if __name__ == "__main__":
    main()
