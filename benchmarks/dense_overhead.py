"""What laconic costs when it compresses nothing: an all-dense plan against plain DDP, step by step in one run.

    python benchmarks/dense_overhead.py [--workload lstm] [--world 2] [--rounds 30]

Both models train in the same processes and take turns, so that a noisy machine hurts both alike. Two ratios are told:
the median over rounds of each round's own, and the fastest quarter of the steps of one against that of the other, which
a neighbour's noise moves least. The aim is at most 1.02.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import laconic
from laconic.lab import workloads
from laconic.lab.workloads import Workload


def step(workload: Workload, model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    model.zero_grad()
    dist.barrier()
    began = time.perf_counter()
    workload.loss(model, *batch).backward()
    return time.perf_counter() - began


def work(rank: int, name: str, world: int, rounds: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload = workloads.find(name)
    plain, ours = DDP(workload.build(0)), DDP(workload.build(0))
    laconic.attach(ours, laconic.Dense())
    batch = next(iter(workload.data(None).batches(workload.batch, rank, 0)))
    ratios: list[float] = []
    times: dict[int, list[float]] = {id(plain): [], id(ours): []}
    for turn in range(rounds + 3):
        pair = [(plain, ours), (ours, plain)][turn % 2]
        took = {id(model): step(workload, model, batch) for model in pair}
        if turn >= 3:
            ratios.append(took[id(ours)] / took[id(plain)])
            for model, seconds in took.items():
                times[model].append(seconds)
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad), "an all-dense plan must be bit-equal to plain DDP"
    if rank == 0:
        tensors = len(list(plain.parameters()))
        size = sum(p.numel() for p in plain.parameters()) / 1e6
        usual, best = times[id(plain)], [statistics.mean(sorted(t)[: -(-rounds // 4)]) for t in times.values()]
        print(f"{name}, {tensors} tensors, {size:.1f}M parameters, {world} ranks: plain DDP "
              f"{1e3 * statistics.median(usual):.1f} ms a step; all-dense plan / plain DDP = "
              f"{statistics.median(ratios):.3f} (median of {rounds}), {best[1] / best[0]:.3f} (fastest quarter), "
              "gradients bit-equal")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="lstm", help=f"one of {', '.join(workloads.WORKLOADS)}")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--port", type=int, default=29541)
    chosen = parser.parse_args()
    mp.spawn(work, args=(chosen.workload, chosen.world, chosen.rounds, chosen.port), nprocs=chosen.world)
