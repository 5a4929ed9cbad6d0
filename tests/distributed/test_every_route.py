"""Every compressor and every route under real DDP: one model on all ranks, learning, and nothing lost."""

from statistics import mean

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch import Tensor
from training import EVERY_ROUTE, alike, batch, bits, ddp, loss_of, toy, train

import laconic

STEPS = 16


def learn_by(
    rank: int, routes: tuple[laconic.Compressor, ...], node_size: int
) -> dict[str, tuple[list[str], list[float], int]]:
    told = {}
    for compressor in routes:
        model, seen = ddp(toy()), []
        handle = laconic.attach(model, compressor, node_size=node_size)
        twice_the_same = [step % 2 for step in range(STEPS)]
        losses = train(
            model, rank, twice_the_same, momentum=0.9, each=lambda _, m=model, s=seen: s.append(bits(m.parameters()))
        )
        told[str(compressor)] = ([*seen, bits(model.parameters())], losses, handle.steps)
    return told


HIERARCHICAL = tuple(route for route in EVERY_ROUTE if isinstance(route, laconic.Hierarchical))


@pytest.mark.parametrize(
    ("world", "node_size", "routes"),
    [(2, 1, EVERY_ROUTE), (2, 2, HIERARCHICAL), (4, 1, HIERARCHICAL), (4, 2, EVERY_ROUTE)],
    ids=["world 2", "one machine of 2", "4 machines of 1", "2 machines of 2"],
)
def test_parameters_are_bit_equal_after_every_step_and_the_loss_goes_down(
    world: int, node_size: int, routes: tuple[laconic.Compressor, ...]
) -> None:
    told = run(learn_by, world, routes=routes, node_size=node_size, deadline=110)
    for name in map(str, routes):
        assert alike([one[name][0] for one in told]), f"{name}: the ranks hold different parameters"
        assert len(set(told[0][name][0])) == STEPS + 1, f"{name}: a step changed nothing"
        losses = [mean(at) for at in zip(*(one[name][1] for one in told), strict=True)]
        assert mean(losses[-4:]) < 0.9 * mean(losses[:4]), f"{name}: {losses}"
        assert all(one[name][2] == STEPS for one in told), f"{name}: steps were not counted"


CONSERVING = [
    laconic.TopK(density=0.05), laconic.Quantize(bits=2), laconic.Sign(), laconic.PowerSGD(rank=1),
    laconic.Chain(laconic.TopK(density=0.1), laconic.Quantize(bits=3)), laconic.Divided(laconic.Quantize(bits=3)),
    laconic.AdaComp(bin=50), laconic.Hierarchical(laconic.Dense(), laconic.TopK(density=0.1)),
]  # fmt: skip


def _local(model: torch.nn.Module, rank: int, step: int) -> list[Tensor]:
    """This rank's own gradient, as if there were no other ranks."""
    found = torch.autograd.grad(loss_of(model, batch(rank, step)), list(model.parameters()))
    return [gradient.double() for gradient in found]


def _total(tensors: list[Tensor]) -> list[Tensor]:
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


def account_for_every_gradient(rank: int) -> dict[str, float]:
    """By compressor, the largest share of its rounding allowance that any layer used."""
    worst, world = {}, dist.get_world_size()
    for compressor in CONSERVING:
        model = ddp(toy())
        handle = laconic.attach(model, compressor, node_size=2 if world == 4 else 1)
        names = [name for name, _ in model.module.named_parameters()]
        given = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.module.named_parameters()}
        received = {name: torch.zeros_like(tensor) for name, tensor in given.items()}
        largest = dict.fromkeys(names, 0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            for name, own in zip(names, _local(model.module, rank, step), strict=True):
                largest[name] = max(largest[name], float(own.norm()))
                given[name] += own
            optimizer.zero_grad()
            loss_of(model, batch(rank, step)).backward()
            for name, parameter in model.module.named_parameters():
                received[name] += parameter.grad
            optimizer.step()
        layers = handle.state_dict()["layers"]
        held = [layers.get(n, {}).get("residual", torch.zeros(given[n].numel())).double() for n in names]
        peak = [torch.tensor([max(largest[n], float(h.norm()))]) for n, h in zip(names, held, strict=True)]
        for tensor in peak:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        sums = zip(names, _total([given[n] for n in names]), _total(held), peak, strict=True)
        shares = []
        for name, total, kept, norm in sums:
            lost = total / world - received[name] - kept.view(total.shape) / world
            # Each step rounds an element some (8 + world) times, each time by at most 2^-24 of what is added up: the
            # gradient and a residual, neither above the largest norm that was seen, taken twice for the sum of both.
            allowed = 12 * (8 + world) * 2**-24 * 2 * float(norm)
            shares.append(float(lost.norm()) / allowed)
        worst[str(compressor)] = max(shares)
    return worst


@pytest.mark.parametrize("world", [2, 4])
def test_what_was_given_is_what_was_received_plus_what_is_still_held(world: int) -> None:
    for told in run(account_for_every_gradient, world):
        assert {name: share for name, share in told.items() if not share <= 1} == {}
