"""What deciding costs: L-GreCo's statistics, knapsack and plan, and GraVAC's two levels, against training itself.

    python benchmarks/replan.py [--workload gpt] [--repeat 5] [--trained 30]

In one process without communication, so that the share is of compute alone and thus the largest it can be: with a
network a step is longer. Processor time, least of the repeats, since others may use the machine. The aim for L-GreCo at
its default period is 1%. Also: how many times fewer bytes its plan sends than the uniform one at the same squared
error, on this rank's gradients after `--trained` steps.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from laconic import GraVAC, Layer, LGreCo, PowerSGD, Quantize, Static, Stats, Table, TopK, World
from laconic.lab.workloads import find
from laconic.policies.warmup import STEPS
from laconic.runtime.buffers import Arena, Lease
from laconic.runtime.ledger import Ledger
from laconic.runtime.watch import measure


def least(repeat: int, act: Callable[[], object]) -> float:
    """Seconds."""
    taken = []
    for _ in range(repeat):
        began = time.process_time()
        act()
        taken.append(time.process_time() - began)
    return min(taken)


def saved(policy: LGreCo, layers: Sequence[Layer], gradients: Mapping[str, Tensor], ledger: Ledger) -> float:
    """How many times fewer bytes than uniform."""
    plan, tables = policy.start(layers, World(size=2)), {}
    for name, rungs in policy.watch(STEPS - 2, plan).items():
        told = measure(name, gradients[name], ledger, rungs, Lease(Arena()))
        tables[name] = Table(told.rungs, told.values[2:], told.values[1], told.values[0], 1)
    made = policy.propose(Stats(steps=STEPS, tables=tables), plan).plan
    sizes = [
        sum(one[layer.name].wire_bytes(layer, World(size=2)) for layer in layers if layer.name in tables)
        for one in (Static(policy.bases[0]).start(layers, World(size=2)), made)
    ]
    return sizes[0] / sizes[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="gpt")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--trained", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workload = find(arguments.workload)
    model = workload.build(0)
    batches = workload.data(None).batches(workload.batch, 0, 0)
    inputs, targets = next(batches)
    optimizer = workload.optimize(model)
    for _ in range(arguments.trained):
        optimizer.zero_grad()
        workload.loss(model, inputs, targets).backward()
        optimizer.step()
        inputs, targets = next(batches)

    def step() -> None:
        model.zero_grad()
        workload.loss(model, inputs, targets).backward()

    training = least(arguments.repeat, step)
    gradients = {n: p.grad.flatten() for n, p in model.named_parameters() if p.grad is not None}
    layers = [Layer.of(name, parameter) for name, parameter in model.named_parameters()]
    world = World(size=2)
    ledger = Ledger(layers, world, torch.float32, 0)
    for name, account in ledger.accounts.items():
        account.residual = torch.zeros_like(gradients[name])
    lease = Lease(Arena())
    elements = sum(layer.numel for layer in layers)
    print(f"{workload.name}: {len(layers)} layers, {elements / 1e6:.2f}M elements, a step {1e3 * training:.0f} ms")
    for base in (TopK(density=0.01), Quantize(bits=4), PowerSGD(rank=4)):
        for policy in (LGreCo(base, low=0.5, high=2.0), LGreCo(base), LGreCo(base, mixed=True)):
            plan = policy.start(layers, world)
            watched = policy.watch(STEPS - 2, plan)
            times = sum(bool(policy.watch(step, plan)) for step in range(STEPS))
            tables: dict[str, Table] = {}

            def watch() -> None:
                for name, rungs in watched.items():  # noqa: B023
                    told = measure(name, gradients[name], ledger, rungs, lease)
                    tables[name] = Table(told.rungs, told.values[2:], told.values[1], told.values[0], 1)  # noqa: B023

            watching = least(arguments.repeat, watch)
            stats = Stats(steps=STEPS, tables=tables)
            deciding = least(arguments.repeat, lambda: policy.propose(stats, plan))  # noqa: B023
            share = (times * watching + deciding) / (policy.period * training)
            fewer = saved(policy, layers, gradients, ledger)
            print(
                f"{policy}: {fewer:.2f} times fewer bytes; a watched step {1e3 * watching:.1f} ms, "
                f"a decision {1e3 * deciding:.1f} ms, {100 * share:.3f}% of training at a period of {policy.period}"
            )
    search = GraVAC(TopK(density=0.1))
    plan = search.start(layers, world)
    levels = search.watch(0, plan)
    cost = least(
        arguments.repeat,
        lambda: [measure(n, gradients[n], ledger, rungs, lease) for n, rungs in levels.items()],
    )
    share = cost / training / search.every
    print(f"{search}: {1e3 * cost:.1f} ms in one step of {search.every}, {100 * share:.1f}% of training")


if __name__ == "__main__":
    main()
