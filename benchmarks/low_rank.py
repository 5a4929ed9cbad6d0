"""PowerSGD's four products, ours against torch's, for the shapes of real layers: one call each in turns, the best counts.

python benchmarks/low_rank.py [--threads T] [--rounds N]
"""

import argparse
from collections.abc import Callable
from time import perf_counter, sleep

import torch

from laconic.kernels import native

SHAPES = {"lstm": (512, 2048), "vgg": (512, 4608), "gpt": (768, 3072)}
RANKS = (1, 2, 4, 8, 16, 32)


def microseconds(calls: dict[str, Callable[[], object]], rounds: int, rest: float) -> dict[str, float]:
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            sleep(rest)  # torch's threads spin for some milliseconds after their work
            started = perf_counter()
            call()
            best[name] = min(best[name], 1e6 * (perf_counter() - started))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| layer | rank | fold and M Q | M' P | M - P Q' | P Q' | torch's, us | ours, us | ours over torch's |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, (rows, columns) in SHAPES.items():
        for rank in RANKS:
            rng = torch.Generator().manual_seed(rank)
            x, residual = torch.randn(rows, columns, generator=rng), torch.randn(rows, columns, generator=rng)
            q, out = torch.randn(columns, rank, generator=rng), torch.empty(rows, columns)
            p = torch.linalg.qr(torch.randn(rows, rank, generator=rng)).Q.contiguous()
            tiny = 1e-6 * q  # so that x stays about what it is
            native.MOST_RANK = max(RANKS)

            def torchs_sketch() -> None:
                native.fold(x.view(-1), residual.view(-1))
                x @ q

            calls: dict[str, Callable[[], object]] = {
                "sketch, torch": torchs_sketch,
                "sketch, ours": lambda: native.sketch(x, residual, q, torch.empty(rows, rank)),
                "back, torch": lambda: x.T @ p,
                "back, ours": lambda: native.sketch_back(x, p, torch.empty(columns, rank)),
                "subtract, torch": lambda: x.addmm_(p, tiny.T, alpha=-1),
                "subtract, ours": lambda: native.subtract_product(x, p, tiny),
                "product, torch": lambda: torch.mm(p, q.T, out=out),
                "product, ours": lambda: native.product(p, q, out),
            }
            best = microseconds(calls, arguments.rounds, 0.01 if arguments.threads > 1 else 0.0)
            cells = [
                f"{best[f'{what}, torch']:.0f} / {best[f'{what}, ours']:.0f}"
                for what in ("sketch", "back", "subtract", "product")
            ]
            theirs, ours = (sum(v for k, v in best.items() if k.endswith(whose)) for whose in ("torch", "ours"))
            print(f"| {name} | {rank} | {' | '.join(cells)} | {theirs:.0f} | {ours:.0f} | {theirs / ours:.1f}x |")


if __name__ == "__main__":
    main()
