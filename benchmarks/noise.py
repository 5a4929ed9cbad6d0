"""How far apart runs end that differ by next to nothing: dense training with a little noise on every gradient.

    python benchmarks/noise.py [--workload vgg] [--noise 0,1e-6,1e-4] [--seeds 12] [--first 0] [--steps 50]

Two ranks are played in one process, with the models, batches and seeds of a race. Noise is normal, and as large as the
gradient of a layer times the figure that is given; float32 rounds off 1e-7. Where runs with such noise end as far apart
as runs with compression, the workload tells nothing about compression.
"""

import argparse
import statistics

import torch
from torch import Tensor

from laconic.lab import workloads
from laconic.lab.workloads import Workload

RANKS = 2


def end(workload: Workload, seed: int, noise: float, steps: int) -> float:
    """The held-out loss after training."""
    model, draw = workload.build(seed), torch.Generator().manual_seed(seed + 1)
    optimizer, data = workload.optimize(model), workload.data(None)
    batches = [data.batches(workload.batch, rank, seed) for rank in range(RANKS)]
    parameters = list(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        for own in batches:
            (workload.loss(model, *next(own)) / RANKS).backward()
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad += disturbance(parameter.grad, noise, draw)
        if workload.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, workload.clip)
        optimizer.step()
    loss, _ = workload.evaluate(model, data)
    return loss


def disturbance(gradient: Tensor, noise: float, draw: torch.Generator) -> Tensor:
    size = noise * float(gradient.norm()) / gradient.numel() ** 0.5
    return size * torch.randn(gradient.shape, generator=draw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="vgg", help=f"one of {', '.join(workloads.WORKLOADS)}")
    parser.add_argument("--noise", default="0,1e-6,1e-4", help="relative to the gradient's norm, separated by commas")
    parser.add_argument("--seeds", default=12, type=int)
    parser.add_argument("--first", default=0, type=int, help="seed")
    parser.add_argument("--steps", default=50, type=int)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    workload = workloads.find(chosen.workload)
    for noise in map(float, chosen.noise.split(",")):
        seeds = range(chosen.first, chosen.first + chosen.seeds)
        losses = [end(workload, seed, noise, chosen.steps) for seed in seeds]
        mean, spread = statistics.fmean(losses), statistics.stdev(losses) if len(losses) > 1 else 0.0
        each = " ".join(f"{loss:.2f}" for loss in losses)
        print(f"{workload.name}, noise {noise:g}, seeds {seeds[0]} to {seeds[-1]}: {mean:.3f} ± {spread:.3f} ({each})")


if __name__ == "__main__":
    main()
