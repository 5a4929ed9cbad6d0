"""What laconic costs when it compresses nothing: an all-dense plan against plain DDP, step by step in one run.

    python benchmarks/dense_overhead.py [--workload lstm] [--world 2] [--rounds 30]

The models train in the same processes and take turns, so that a noisy machine hurts all alike. Of each is told, against
plain DDP: the median over rounds of each round's own ratio; the fastest quarter of its steps; and the processor time of
the cheapest quarter, all threads together, which a neighbour's noise moves least. The aim is at most 1.02.

A bare hook, which divides the bucket and starts its all-reduce and does nothing else, is measured beside ours: it is
what any hook in Python costs. (Without a hook DDP divides while it fills the bucket; with one, the division is a pass
of its own over the gradient.) A second plain DDP shows how far the figures of one and the same thing lie apart.
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


def step(workload: Workload, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Seconds of the wall clock and of the processor for forward and backward."""
    model.zero_grad()
    dist.barrier()
    began, spent = time.perf_counter(), time.process_time()
    workload.loss(model, *batch).backward()
    return time.perf_counter() - began, time.process_time() - spent


def bare(world: int, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    buffer = bucket.buffer().mul_(1 / world)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda total: total.value()[0])


def cheapest(figures: list[float]) -> float:
    return statistics.mean(sorted(figures)[: -(-len(figures) // 4)])


def work(rank: int, name: str, world: int, rounds: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload = workloads.find(name)
    models = {way: DDP(workload.build(0)) for way in ("plain DDP", "plain DDP again", "a bare hook", "all-dense plan")}
    models["a bare hook"].register_comm_hook(world, bare)
    laconic.attach(models["all-dense plan"], laconic.Dense())
    batch = next(iter(workload.data(None).batches(workload.batch, rank, 0)))
    wall: dict[str, list[float]] = {way: [] for way in models}
    processor: dict[str, list[float]] = {way: [] for way in models}
    order = list(models)
    for turn in range(rounds + 3):
        order.append(order.pop(0))
        for way in order if turn % 2 else reversed(order):
            seconds, spent = step(workload, models[way], batch)
            if turn >= 3:
                wall[way].append(seconds)
                processor[way].append(spent)
    for mine, theirs in zip(models["all-dense plan"].parameters(), models["plain DDP"].parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad), "an all-dense plan must be bit-equal to plain DDP"
    if rank == 0:
        plain, cost = wall["plain DDP"], processor["plain DDP"]
        tensors = list(models["plain DDP"].parameters())
        size = sum(p.numel() for p in tensors) / 1e6
        print(f"{name}, {len(tensors)} tensors, {size:.1f}M parameters, {world} ranks, {rounds} rounds: "
              f"plain DDP {1e3 * statistics.median(plain):.1f} ms a step; gradients bit-equal")  # fmt: skip
        for way in models:
            median = statistics.median(ours / its for ours, its in zip(wall[way], plain, strict=True))
            print(f"  {way:16} median {median:.3f}   fastest quarter {cheapest(wall[way]) / cheapest(plain):.3f}   "
                  f"processor {cheapest(processor[way]) / cheapest(cost):.3f}")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="lstm", help=f"one of {', '.join(workloads.WORKLOADS)}")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--port", type=int, default=29541)
    chosen = parser.parse_args()
    mp.spawn(work, args=(chosen.workload, chosen.world, chosen.rounds, chosen.port), nprocs=chosen.world)
