"""Numbers at the edge: non-finite, huge, tiny, zero, odd shapes and mixed types."""

from collections.abc import Callable

import pytest
import torch
from ranks import run
from torch import Tensor, nn
from training import EVERY_ROUTE, alike, batch, bits, ddp, loss_of, toy, train

import laconic

SPOILT = [  # by what, in whose, where: a compressed layer, a dense one beside it, a dense one in a bucket without any
    (torch.nan, "one rank's", "2.weight"), (torch.inf, "every", "2.weight"), (-torch.inf, "one rank's", "4.bias"),
    (torch.nan, "one rank's", "6.weight"),
]  # fmt: skip
ROUTES = [
    laconic.TopK(density=0.1), laconic.Quantize(bits=4, stochastic=True), laconic.PowerSGD(rank=2),
    laconic.AdaComp(bin=50), laconic.RandomK(density=0.2), laconic.Cast(), laconic.Natural(), laconic.Sign(scale="two"),
    laconic.Divided(laconic.Quantize(bits=4)), laconic.Hierarchical(laconic.Dense(), laconic.PowerSGD(rank=2)),
]  # fmt: skip


def _poison(rank: int, whose: str, number: float) -> Callable[[Tensor], Tensor]:
    def strike(gradient: Tensor) -> Tensor:
        if whose == "one rank's" and rank != 1:
            return gradient
        gradient = gradient.clone()
        gradient.view(-1)[3] = number
        return gradient

    return strike


def _ledger(handle: laconic.Handle) -> str:
    layers = handle.state_dict()["layers"]
    return bits(layers[name][key] for name in sorted(layers) for key in sorted(layers[name]))


def _scaled_run(
    rank: int, compressor: laconic.Compressor, layer: str | None = None, whose: str = "", number: float = 0.0
) -> tuple[list[str], list[str]]:
    """Train with a GradScaler, perhaps with an extra, spoilt step. The bits of each state, and what went wrong."""
    model, wrong = ddp(toy()), []
    handle = laconic.attach(model, compressor, node_size=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def step(number: int) -> None:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch(rank, number))).backward()
        scaler.step(optimizer)
        scaler.update()

    states = []
    for at in range(5):
        if at == 3 and layer is not None:
            before = bits(model.parameters()), _ledger(handle)
            hook = model.module.get_parameter(layer).register_hook(_poison(rank, whose, number))
            step(99)
            hook.remove()
            if scaler.get_scale() != 32.0:
                wrong.append("the scaler did not see it")
            if (bits(model.parameters()), _ledger(handle)) != before:
                wrong.append("the step left a trace")
            if handle.stats().skipped != 1:
                wrong.append("the step was not counted as skipped")
            scaler.update(64.0)
        step(at)
        states.append(bits(model.parameters()) + _ledger(handle))
    return states, wrong


def spoil_steps(rank: int) -> dict[str, tuple[bool, list[str], str]]:
    told = {}
    for compressor in ROUTES:
        calm, _ = _scaled_run(rank, compressor)
        for number, whose, layer in SPOILT:
            states, wrong = _scaled_run(rank, compressor, layer, whose, number)
            told[f"{compressor}, {number} in {whose} {layer}"] = (states == calm, wrong, states[-1])
    return told


def test_a_non_finite_value_anywhere_is_seen_by_every_scaler_and_leaves_no_trace() -> None:
    told = run(spoil_steps, 2)
    for case in told[0]:
        for rank, one in enumerate(told):
            same, wrong, _ = one[case]
            assert not wrong, f"{case}: rank {rank}: {wrong}"
            assert same, f"{case}: rank {rank} goes on otherwise than a run that never saw it"


class _Pushed(nn.Module):
    """Its gradient is the input, whatever its parameter."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(40, 40, dtype=dtype))

    def forward(self, push: Tensor) -> Tensor:
        return (self.weight * push).sum()


def push_hard(rank: int) -> dict[str, list[float]]:
    """The extremes of the reduced gradient."""
    told = {}
    for name, dtype, compressor, push in [
        ("Dense on float16", torch.float16, laconic.Dense(), 65504.0),
        ("Cast fp16", torch.float32, laconic.Cast(dtype="fp16"), 65504.0),
        ("Cast fp16, beyond its range", torch.float32, laconic.Cast(dtype="fp16"), 1e6),
        ("Cast bf16, subnormal", torch.float32, laconic.Cast(), 1e-40),
        ("Quantize, subnormal", torch.float32, laconic.Quantize(bits=4), 1e-40),
        ("TopK on bfloat16", torch.bfloat16, laconic.TopK(density=1.0), 3e38),
        ("TopK on float64", torch.float64, laconic.TopK(density=1.0), 2.0**100),
    ]:
        model = ddp(_Pushed(dtype))
        laconic.attach(model, laconic.Plan({"weight": compressor}))
        model(torch.full((40, 40), push, dtype=dtype)).backward()
        gradient = model.module.weight.grad.double()
        told[name] = [float(gradient.min()), float(gradient.max())]
    return told


def test_sums_of_the_largest_and_smallest_numbers_stay_finite_at_world_8() -> None:
    told = run(push_hard, 8)
    assert alike(told)
    half = 2.0**-11  # float16 rounds to nearest, once on each rank: so much room the cast leaves for the sum
    expected = {
        "Dense on float16": (65504.0, 0.0), "Cast fp16": (65504.0, 8 * half), "TopK on float64": (2.0**100, 0.0),
        "Cast fp16, beyond its range": (65504.0, 8 * half), "TopK on bfloat16": (3e38, 2.0**-8),
    }  # fmt: skip
    for name, (value, relative) in expected.items():
        for extreme in told[0][name]:
            assert abs(extreme - value) <= (relative + 1e-12) * value, f"{name}: {told[0][name]}"
    for name in ("Cast bf16, subnormal", "Quantize, subnormal"):
        assert all(0 <= extreme <= 2e-40 for extreme in told[0][name]), told[0]


def silence(rank: int) -> dict[str, float]:
    told = {}
    for compressor in EVERY_ROUTE:
        model = ddp(toy())
        laconic.attach(model, compressor, node_size=2)
        largest = 0.0
        for step in range(6):
            model.zero_grad()
            (model(batch(rank, step)[0]).sum() * 0.0).backward()
            largest = max(largest, *(float(p.grad.abs().max()) for p in model.parameters()))
        told[str(compressor)] = largest
    return told


def test_zero_gradients_stay_exactly_zero_by_every_route() -> None:
    for told in run(silence, 2):
        assert {name: largest for name, largest in told.items() if largest != 0.0} == {}


class _Odd(nn.Module):
    """Parameters of every awkward shape."""

    SHAPES = ((), (1,), (2,), (7,), (13, 5), (1, 31), (3, 1, 2), (101,))

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.parts = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in self.SHAPES])

    def forward(self, at: int) -> Tensor:
        rng = torch.Generator().manual_seed(at)
        return sum(((p - torch.randn(p.shape, generator=rng)) ** 2).sum() for p in self.parts)  # type: ignore[return-value]


def reduce_odd_shapes(rank: int) -> dict[str, list[str]]:
    told = {}
    for compressor in EVERY_ROUTE:
        model = ddp(_Odd())
        laconic.attach(model, laconic.Plan({"parts.*": compressor}), node_size=3)
        optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.05), []
        for step in range(4):
            optimizer.zero_grad()
            model(10 * step + rank).backward()
            optimizer.step()
            seen.append(bits(model.parameters()))
        finite = all(bool(p.isfinite().all()) for p in model.parameters())
        told[str(compressor)] = [*seen, "finite" if finite else "not finite"]
    return told


def test_every_route_takes_scalars_primes_and_fewer_elements_than_ranks() -> None:
    told = run(reduce_odd_shapes, 3)
    for name in told[0]:
        assert alike([one[name] for one in told]), name
        assert len(set(told[0][name])) == 5, f"{name}: a step changed nothing"
        assert told[0][name][-1] == "finite", name


class _Mixed(nn.Module):
    """Three dtypes in one model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(24, 48)
        self.second = nn.Linear(48, 48, dtype=torch.bfloat16)
        self.third = nn.Linear(48, 8, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        x = self.second(x.bfloat16()).tanh()
        return self.third(x.double()).float()


def train_mixed(rank: int, what: laconic.Compressor | None) -> tuple[str, list[float], list[str]]:
    model = ddp(_Mixed())
    if what is not None:
        laconic.attach(model, laconic.Plan({"*.weight": what, "*.bias": laconic.Dense()}))
    losses = train(model, rank, [step % 2 for step in range(12)])
    return bits(model.parameters()), losses, [str(p.grad.dtype) for p in model.parameters()]


@pytest.mark.parametrize("what", [None, laconic.TopK(density=0.1), laconic.PowerSGD(rank=2)], ids=str)
def test_mixed_dtypes_train_in_one_model(what: laconic.Compressor | None) -> None:
    if what is None:
        assert run(train_mixed, 2, what=laconic.Dense()) == run(train_mixed, 2, what=None)
        return
    told = run(train_mixed, 2, what=what)
    assert alike([one[0] for one in told])
    assert all(one[1][-1] < one[1][0] for one in told), told
    assert told[0][2] == ["torch.float32"] * 2 + ["torch.bfloat16"] * 2 + ["torch.float64"] * 2
