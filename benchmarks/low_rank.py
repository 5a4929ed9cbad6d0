"""PowerSGD's four products, ours against torch's, for the shapes of real layers: in turns, the best of each counts.

    python benchmarks/low_rank.py [--threads T] [--rounds N]

torch's side folds with our kernel and then multiplies; ours folds while it multiplies.
"""

import argparse
from collections.abc import Callable
from time import perf_counter, sleep

import torch

from laconic.kernels import native

SHAPES = {"lstm": (512, 2048), "vgg": (512, 4608), "gpt": (768, 3072)}
RANKS = (1, 2, 4, 8, 16, 32)
STAGES = ("sketch", "back", "subtract", "product")


def calls(rows: int, columns: int, rank: int) -> dict[tuple[str, str], Callable[[], object]]:
    """Every stage, by torch and by us."""
    rng = torch.Generator().manual_seed(rank)
    x, residual = torch.randn(rows, columns, generator=rng), torch.randn(rows, columns, generator=rng)
    q, out = torch.randn(columns, rank, generator=rng), torch.empty(rows, columns)
    p = torch.linalg.qr(torch.randn(rows, rank, generator=rng)).Q.contiguous()
    tiny = 1e-6 * q  # so that x stays about what it is

    def fold_and_multiply() -> None:
        native.fold(x.view(-1), residual.view(-1))
        x @ q

    return {
        ("sketch", "torch"): fold_and_multiply,
        ("sketch", "ours"): lambda: native.sketch(x, residual, q, torch.empty(rows, rank)),
        ("back", "torch"): lambda: x.T @ p,
        ("back", "ours"): lambda: native.sketch_back(x, p, torch.empty(columns, rank)),
        ("subtract", "torch"): lambda: x.addmm_(p, tiny.T, alpha=-1),
        ("subtract", "ours"): lambda: native.subtract_product(x, p, tiny),
        ("product", "torch"): lambda: torch.mm(p, q.T, out=out),
        ("product", "ours"): lambda: native.product(p, q, out),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| layer | rank | fold and M Q | M' P | M - P Q' | P Q' | torch's, us | ours, us | torch's over ours |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, shape in SHAPES.items():
        for rank in RANKS:
            todo = calls(*shape, rank)
            best = dict.fromkeys(todo, float("inf"))
            for _ in range(arguments.rounds):
                for which, call in todo.items():
                    sleep(0.02 if arguments.threads > 1 else 0)  # torch's threads spin for some time after their work
                    started = perf_counter()
                    call()
                    best[which] = min(best[which], 1e6 * (perf_counter() - started))
            cells = " | ".join(f"{best[stage, 'torch']:.0f} / {best[stage, 'ours']:.0f}" for stage in STAGES)
            theirs, ours = (sum(best[stage, whose] for stage in STAGES) for whose in ("torch", "ours"))
            print(f"| {name} | {rank} | {cells} | {theirs:.0f} | {ours:.0f} | {theirs / ours:.1f} |")


if __name__ == "__main__":
    main()
