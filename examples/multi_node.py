"""Several machines with several workers each: reduce inside the machine first, compress between machines.

On each of two machines, with the address of the first:

    torchrun --nnodes 2 --nproc-per-node 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 multi_node.py
    torchrun --nnodes 2 --nproc-per-node 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 multi_node.py

torchrun says how many workers a machine has, and laconic takes it from there. A checkpoint of each rank's residual is
written beside the model's, and a restarted run goes on from it.
"""

import argparse
import gc
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import laconic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint"))
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)))
    between = laconic.Chain(laconic.TopK(density=0.01), laconic.Quantize(bits=4))
    handle = laconic.attach(model, laconic.Hierarchical(laconic.Dense(), between))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    weights = arguments.checkpoint / "model.pt"
    if weights.exists():
        saved = torch.load(weights, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        print(f"rank {rank}: {handle.load(arguments.checkpoint)}")

    generator = torch.Generator().manual_seed(1000 * handle.steps + rank)
    for _ in range(arguments.steps):
        x = torch.randn(64, 128, generator=generator)
        loss = nn.functional.mse_loss(model(x), x[:, :8].prod(1, keepdim=True).tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    handle.save(arguments.checkpoint)  # every rank its own
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, weights)
        print(handle)
        print(f"step {handle.steps}: loss {loss.item():.4f}")
    del handle, model, optimizer, loss  # see train.py: gloo's threads must end before the interpreter does
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
