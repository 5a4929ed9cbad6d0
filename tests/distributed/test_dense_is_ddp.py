"""An all-dense plan is plain DDP, bit by bit."""

import pytest
import torch
from ranks import run
from training import bits, ddp, toy, train

import laconic

CASES = {
    "float32": {},
    "one bucket": {"bucket_cap_mb": 25},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "float64": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16},
}


def _bits_of_a_run(rank: int, compressed: bool, dtype: torch.dtype = torch.float32, **options: object) -> list[str]:
    model = ddp(toy(dtype=dtype), **options)
    if compressed:
        laconic.attach(model, laconic.Dense())
    seen: list[str] = []
    train(model, rank, range(6), momentum=0.9, each=lambda _: seen.append(bits(p.grad for p in model.parameters())))
    return [*seen, bits(model.parameters())]


def plain_and_dense(rank: int) -> dict[str, tuple[list[str], list[str]]]:
    return {
        name: (_bits_of_a_run(rank, False, **options), _bits_of_a_run(rank, True, **options))
        for name, options in CASES.items()
    }


@pytest.mark.parametrize("world", [2, 3])
def test_all_dense_plan_gives_the_bits_of_plain_ddp_at_every_step(world: int) -> None:
    for told in run(plain_and_dense, world):
        differing = [name for name, (plain, dense) in told.items() if plain != dense]
        assert not differing
