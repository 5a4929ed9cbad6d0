"""A small model, data that every rank draws for itself, and a loop: what the scenes share."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from laconic import (
    AdaComp,
    ByMachine,
    Cast,
    Chain,
    Compressor,
    Dense,
    Divided,
    Hierarchical,
    Natural,
    OnCpu,
    PowerSGD,
    Quantize,
    RandomK,
    Sign,
    Threshold,
    TopK,
)  # fmt: skip

FEATURES, CLASSES, BATCH = 24, 8, 16
TINY_BUCKETS = 0.004  # MB: a few layers in each bucket of the toy below

EVERY_ROUTE: tuple[Compressor, ...] = (
    Dense(), Cast(), Cast(dtype="fp16"),
    Quantize(bits=4), Quantize(bits=1), Quantize(bits=4, stochastic=True), Quantize(bits=8, scaling="l2"),
    TopK(density=0.05), TopK(density=0.05, selection="sampled"), Threshold(density=0.05), RandomK(density=0.2),
    Sign(), Sign(scale="two"), Natural(), PowerSGD(rank=2),
    PowerSGD(rank=2, dtype="int8"), AdaComp(),
    Chain(TopK(density=0.05), Quantize(bits=4)), OnCpu(TopK(density=0.05)),
    Divided(Quantize(bits=4)), Divided(TopK(density=0.05)), Divided(Cast()),
    Hierarchical(Dense(), Quantize(bits=4)), Hierarchical(Dense(), PowerSGD(rank=2)),
    Hierarchical(Quantize(bits=8), Divided(Quantize(bits=4))), Hierarchical(Cast(), RandomK(density=0.2)),
    Hierarchical(Dense(), Dense()), ByMachine(PowerSGD(rank=2, dtype="int8")),
)  # fmt: skip


def toy(seed: int = 1, dtype: torch.dtype = torch.float32, width: int = 48) -> nn.Sequential:
    """Four layers, of which three weights are large enough to be compressed; the same on every rank."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, CLASSES),
    ).to(dtype)  # fmt: skip


def batch(rank: int, step: int, dtype: torch.dtype = torch.float32, size: int = BATCH) -> tuple[Tensor, Tensor]:
    """A rank's own data of a step, with a rule that can be learnt."""
    rng = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(size, FEATURES, generator=rng)
    return inputs.to(dtype), inputs[:, :CLASSES].argmax(1)


def loss_of(model: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
    inputs, labels = data
    return nn.functional.cross_entropy(model(inputs).float(), labels)


def train(
    model: nn.Module, rank: int, steps: Iterable[int], *, lr: float = 0.2, momentum: float = 0.0,
    each: Callable[[int], None] | None = None, optimizer: torch.optim.Optimizer | None = None,
) -> list[float]:  # fmt: skip
    """Plain SGD; the loss of each step. `each(step)` is called after backward, before the parameters change."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    dtype = next(model.parameters()).dtype
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(rank, step, dtype))
        loss.backward()
        if each is not None:
            each(step)
        optimizer.step()
        losses.append(float(loss))
    return losses


def bits(tensors: Iterable[Tensor]) -> str:
    """A digest that two sequences of tensors share only if every bit is equal."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def alike(told: Sequence[object]) -> bool:
    """Every rank says the same."""
    return all(one == told[0] for one in told)


def gradients(model: nn.Module) -> list[Tensor]:
    """As they are now, copied."""
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def ddp(model: nn.Module, **options: object) -> DDP:
    """The model under DDP, in several buckets unless told otherwise."""
    return DDP(model, **{"bucket_cap_mb": TINY_BUCKETS, **options})  # type: ignore[arg-type]
