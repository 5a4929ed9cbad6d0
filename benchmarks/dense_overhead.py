"""What laconic costs when it compresses nothing: an all-dense plan against plain DDP, step by step in one run.

    python benchmarks/dense_overhead.py [--world 2] [--rounds 30]

Both models train in the same processes and take turns, so that a noisy machine hurts both alike; each round's step
times are compared with each other, and the median of their ratios is what counts. The aim is at most 1.02.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import laconic


def network(width: int, depth: int) -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*blocks, nn.Linear(width, 10))


def step(model: nn.Module, batch: torch.Tensor, target: torch.Tensor) -> float:
    model.zero_grad()
    dist.barrier()
    began = time.perf_counter()
    nn.functional.cross_entropy(model(batch), target).backward()
    return time.perf_counter() - began


def work(rank: int, world: int, rounds: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plain, ours = DDP(network(512, 12)), DDP(network(512, 12))
    laconic.attach(ours, laconic.Dense())
    torch.manual_seed(rank)
    batch, target = torch.randn(128, 512), torch.randint(10, (128,))
    ratios, times = [], []
    for turn in range(rounds + 3):
        pair = [(plain, ours), (ours, plain)][turn % 2]
        took = {id(model): step(model, batch, target) for model in pair}
        if turn >= 3:
            ratios.append(took[id(ours)] / took[id(plain)])
            times.append(took[id(plain)])
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad), "an all-dense plan must be bit-equal to plain DDP"
    if rank == 0:
        tensors = len(list(plain.parameters()))
        print(f"{tensors} tensors, {sum(p.numel() for p in plain.parameters()) / 1e6:.1f}M parameters, {world} ranks")
        print(f"plain DDP {1e3 * statistics.median(times):.1f} ms a step; all-dense plan / plain DDP = "
              f"{statistics.median(ratios):.3f} (median of {rounds}), gradients bit-equal")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--port", type=int, default=29541)
    chosen = parser.parse_args()
    mp.spawn(work, args=(chosen.world, chosen.rounds, chosen.port), nprocs=chosen.world)
