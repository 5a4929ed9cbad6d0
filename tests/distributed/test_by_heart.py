"""Buckets that are known by heart, under real DDP: used, and what is trained is what it would be without."""

from typing import Any

import pytest
import torch
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from training import bits

import laconic
from laconic import Plan, PowerSGD, Quantize, kernels
from laconic.runtime import by_heart, engine

pytestmark = pytest.mark.skipif(kernels.lines() is None, reason="compiled kernels are not installed")

WIDTH, STEPS = 256, 16
PLANS = (
    Plan({"*.weight": Quantize(bits=2)}),
    Plan({"*.weight": PowerSGD(rank=8, dtype="int4"), "*": Quantize(bits=8)}),
    Plan({"*.weight": PowerSGD(rank=8, dtype="int8")}, waits=["2.weight"]),
)


def _trained(rank: int, plan: Plan, made_up: bool) -> tuple[str, str, int]:
    """The parameters after some steps and residuals, and in how many buckets what is said was known."""
    known = [0]
    with pytest.MonkeyPatch.context() as patch:
        if made_up:
            patch.setattr(engine, "learn", lambda *_: None)
        open_ = by_heart.ByHeart._open

        def counted(bucket: by_heart.ByHeart, *what: Any) -> None:
            known[0] += 1
            open_(bucket, *what)

        patch.setattr(by_heart.ByHeart, "_open", counted)
        torch.manual_seed(1)
        model = DDP(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))), bucket_cap_mb=0.5)
        handle = laconic.attach(model, plan)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for step in range(STEPS):
            optimizer.zero_grad()
            data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))
            model(data).square().mean().backward()
            if step == 8:
                with model.no_sync():
                    model(data).square().mean().backward()
            optimizer.step()
        left = [account.residual for account in handle._engine.ledger.accounts.values()]
        return bits(model.parameters()), bits(r for r in left if r is not None), known[0]


def trained(rank: int) -> list[tuple[tuple[str, str, int], ...]]:
    """For each plan: all by heart, all made up, and by heart on rank 0 only."""
    return [
        (_trained(rank, plan, False), _trained(rank, plan, True), _trained(rank, plan, rank == 1)) for plan in PLANS
    ]


def test_ddp_trains_the_same_by_heart_and_without() -> None:
    for told in run(trained, 2, timeout=120):
        for own, without, either in told:
            assert own[0] == without[0] == either[0]
            assert own[1] == without[1] == either[1]
            assert own[2] >= STEPS - 3, "all steps but the first, and two that tell what was observed"
            assert without[2] == 0
