"""A plain DDP script with one line of laconic.

    torchrun --nproc-per-node 2 examples/train.py --compressor "TopK(density=0.01)"

Trains a small classifier of handwritten digits (scikit-learn's own) on CPU workers. Without --compressor it is plain
DDP; the loop below does not know which.
"""

import argparse
import gc

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import laconic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compressor", help="an expression such as 'PowerSGD(rank=4)', or a plan file")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)))
    handle = laconic.attach(model, arguments.compressor) if arguments.compressor else None  # the one line

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(arguments.steps):
        batch = torch.randint(1500, (32 * world,), generator=torch.Generator().manual_seed(step))[rank::world]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()

    if rank == 0:
        with torch.no_grad():
            right = (model.module(images[1500:]).argmax(1) == labels[1500:]).float().mean()
        print(handle if handle else "plain DDP")
        print(f"accuracy on digits that it has not seen: {right:.1%}")
    # gloo's threads let go of the last collective a little after it has ended, and need the interpreter for that: one
    # that finds it gone aborts the process, with plain DDP too. Without the model nothing holds their group, and
    # destroying it waits for them.
    del handle, model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
