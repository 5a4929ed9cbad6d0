"""Buckets are cut smaller where nobody chose their size; what is trained does not depend on it."""

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from training import bits

import laconic
from laconic.planning.buckets import FEWEST

WIDTH, DEPTH, STEPS = 640, 10, 3  # 1.6 MB a layer, 16 MB in all

SETTINGS = {
    "default": {},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
}


def _model(**options: object) -> DDP:
    torch.manual_seed(1)
    return DDP(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))), **options)


def _trained(model: DDP, rank: int) -> str:
    """The parameters after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(STEPS):
        data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return bits(model.parameters())


def _attached(rank: int, what: object, **options: object) -> tuple[int, int, str]:
    """The size of buckets, how many came in the last step, and what was trained."""
    model = _model(**options)
    laconic.attach(model, what)
    _, state = model._comm_hooks[0]
    reduce, seen = state.reduce, []

    def counted(bucket: dist.GradBucket) -> object:
        seen.append(bucket.index())
        return reduce(bucket)

    state.reduce = counted
    trained = _trained(model, rank)
    return model.bucket_bytes_cap, seen[-1] + 1, trained


def cut_and_whole(rank: int) -> dict[str, tuple[tuple[int, int, str], tuple[int, int, str]]]:
    what = laconic.TopK(density=0.01)
    return {
        name: (_attached(rank, what, **options), _attached(rank, what, bucket_cap_mb=25, **options))
        for name, options in SETTINGS.items()
    }


def test_smaller_buckets_train_the_same_model() -> None:
    told = run(cut_and_whole, 2, timeout=120)
    for name, (cut, whole) in told[0].items():
        assert whole[0] == 25 << 20, f"{name}: whoever made the model chose its buckets"
        assert cut[0] < whole[0], name
        assert cut[1] >= FEWEST > whole[1], name
        assert cut[2] == whole[2], f"{name}: a layer's mean depends on its bucket"


def in_company(rank: int) -> dict[str, str]:
    """What is trained where buckets wait for the next one, and where they do not."""
    told = {}
    for name, options in SETTINGS.items():
        for waits in ([], [f"{layer}.weight" for layer in range(2, DEPTH)]):
            plan = laconic.Plan({"*.weight": laconic.Quantize(bits=4)}, waits=waits)
            told[f"{name}, {len(waits)} wait"] = _attached(rank, plan, **options)[2]
    return told


def test_buckets_that_travel_together_train_the_same_model() -> None:
    told = run(in_company, 2, timeout=120)
    assert len({trained for one in told for trained in one.values()}) == 1, told


def sizes(rank: int) -> dict[str, int]:
    dense, small = _model(), DDP(nn.Linear(8, 8))
    laconic.attach(dense, laconic.Dense())
    laconic.attach(small, laconic.TopK(density=0.01))
    late = _model()
    _trained(late, rank)
    late(torch.randn(4, WIDTH)).sum().backward()
    laconic.attach(late, laconic.TopK(density=0.01))
    return {"dense": dense.bucket_bytes_cap, "small": small.bucket_bytes_cap, "late": late.bucket_bytes_cap}


@pytest.mark.parametrize("case", ["dense", "small", "late"])
def test_where_buckets_stay(case: str) -> None:
    """Under a plan that sends all as it is, so that its bits are DDP's; with little to send; with gradients there."""
    for told in run(sizes, 2, timeout=120):
        assert told[case] == 25 << 20


def _halve(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad *= 0.5


def with_hooks(rank: int) -> dict[str, str]:
    """Gradients that a hook of the user's halves as soon as they are there."""
    told = {}
    for name, options in SETTINGS.items():
        model = _model(**options)
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_halve)
        laconic.attach(model, laconic.TopK(density=0.01))
        told[name] = _trained(model, rank)
    return told


def test_what_a_hook_did_to_a_gradient_is_sent_wherever_the_work_is_done() -> None:
    told = run(with_hooks, 2, timeout=120)
    plain = run(cut_and_whole, 2, timeout=120)[0]["default"][0][2]
    assert len({trained for one in told for trained in one.values()}) == 1, told
    assert told[0]["default"] != plain, "the hooks did nothing"


def _seen_by_others(rank: int, kept: str) -> tuple[str, int]:
    """What is trained where gradients stay from step to step, and somebody may hold on to their memory; and how many of
    the compressed layers' gradients have moved to other memory in the last step."""
    model = _model()
    parameters = [p for p in model.parameters() if p.requires_grad]
    flat = torch.zeros(sum(p.numel() for p in parameters))
    views = [
        part.view(p.shape) for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True)
    ]
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view if kept == "a flat buffer" else torch.zeros_like(parameter)
    held = [parameter.grad.view(-1) for parameter in parameters] if kept == "a view of each" else []
    laconic.attach(model, laconic.Quantize(bits=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    moved = 0
    for step in range(4):
        optimizer.zero_grad(set_to_none=False)
        before = [parameter.grad.data_ptr() for parameter in parameters]
        data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))
        model(data).square().mean().backward()
        moved = sum(p.grad.data_ptr() != at for p, at in zip(parameters, before, strict=True))
        seen = held if held else views if kept == "a flat buffer" else []
        for parameter, own in zip(parameters, seen, strict=False):
            assert torch.equal(own.view(-1), parameter.grad.view(-1)), "who looks at a gradient sees the mean"
        optimizer.step()
    return bits(model.parameters()), moved


def in_memory_of(rank: int) -> dict[str, tuple[str, int]]:
    return {kept: _seen_by_others(rank, kept) for kept in ("nothing", "a view of each", "a flat buffer")}


def test_a_leftover_keeps_no_memory_that_somebody_else_looks_at() -> None:
    told = run(in_memory_of, 2, timeout=120)
    for one in told:
        assert len({trained for trained, _ in one.values()}) == 1, one
        assert one["nothing"][1] > 0, "without a witness nothing is copied"
        assert one["a view of each"][1] == one["a flat buffer"][1] == 0
