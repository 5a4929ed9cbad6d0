"""What compression costs in memory: peak resident size of a training process, plain DDP against laconic.

    python benchmarks/memory.py [--width 2048] [--depth 8] [--views]

Each way trains in processes of its own. The residual should cost one float32 copy of the compressed layers' gradients
(half of that in bfloat16) and the buffers no more than the buckets under way; the last column says what was measured,
in copies of the gradient. With `--views` DDP keeps gradients in its buckets (gradient_as_bucket_view), one copy less,
and laconic has nowhere to put a step's means before its verdict: the last replies are held.
"""

import argparse
import os
import resource

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import laconic

WAYS = {
    "plain DDP": None,
    "Dense": (laconic.Dense(), {}),
    "Cast": (laconic.Cast(), {}),
    "TopK 1%": (laconic.TopK(density=0.01), {}),
    "TopK 1%, bfloat16 residual": (laconic.TopK(density=0.01), {"residual_dtype": torch.bfloat16}),
    "Quantize 4 bits": (laconic.Quantize(bits=4), {}),
    "Divided quantize": (laconic.Divided(laconic.Quantize(bits=4)), {}),
    "PowerSGD rank 4": (laconic.PowerSGD(rank=4), {}),
}


def work(
    rank: int, way: str, width: int, depth: int, views: bool, port: int, results: dict[str, tuple[float, int, int]]
) -> None:  # fmt: skip
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DDP(
        nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(depth)]),
        gradient_as_bucket_view=views,
        bucket_cap_mb=25,
    )
    handle = None
    if WAYS[way] is not None:
        what, options = WAYS[way]
        handle = laconic.attach(model, what, **options)
    for _ in range(8):
        model(torch.randn(8, width)).square().mean().backward()
        model.zero_grad()
    if rank == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        stats = handle.stats() if handle else None
        results[way] = (peak, stats.residual_bytes if stats else 0, stats.buffer_bytes if stats else 0)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--views", action="store_true", help="gradient_as_bucket_view=True")
    parser.add_argument("--port", type=int, default=29551)
    chosen = parser.parse_args()
    copy = 4 * chosen.width**2 * chosen.depth
    print(
        f"gradient: {copy / 2**20:.0f} MB in layers of {copy / chosen.depth / 2**20:.0f} MB; DDP fills buckets of 25 MB"
    )
    results = mp.Manager().dict()
    for number, way in enumerate(WAYS):
        mp.spawn(work, args=(way, chosen.width, chosen.depth, chosen.views, chosen.port + number, results), nprocs=2)
        peak, residual, buffers = results[way]
        over = (peak - results["plain DDP"][0]) / copy
        print(f"{way:28} peak {peak / 2**20:6.0f} MB   residual {residual / 2**20:5.0f} MB   "
              f"buffers {buffers / 2**20:5.1f} MB   over plain DDP: {over:+.2f} copies")  # fmt: skip


if __name__ == "__main__":
    main()
