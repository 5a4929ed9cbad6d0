"""Conservation, agreement, honesty and determinism: for every member, in every world."""

import random

import numpy
import pytest
import torch

from laconic.compressors import FAMILIES, Codec
from laconic.compressors.expression import parse
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from tests.contract.conversation import Ranks, gradients
from tests.contract.members import MEMBERS, WORLDS

SHAPES = ((23, 29), (8, 4, 3, 3), (521,), (2, 2))
STEPS = 8

every_member = pytest.mark.parametrize("member", MEMBERS, ids=str)
every_world = pytest.mark.parametrize(("size", "node_size"), WORLDS)


def parts(member: Compressor) -> set[type]:
    """The families that an expression is made of."""
    found = {type(member)}
    for name in member.__dataclass_fields__:  # type: ignore[attr-defined]
        value = getattr(member, name)
        if isinstance(value, Compressor):
            found |= parts(value)
    return found


def test_every_family_is_held_to_the_contract() -> None:
    outermost = {type(member) for member in MEMBERS}
    assert outermost == set(FAMILIES), "add an example of the new compressor to members.py"


@every_world
@every_member
def test_conservation_agreement_and_honesty(member: Compressor, size: int, node_size: int) -> None:
    for shape in SHAPES:
        layer = Layer("layer", shape)
        ranks = Ranks(member, layer, size, node_size)
        given = torch.zeros(shape, dtype=torch.float64)
        received = torch.zeros(shape, dtype=torch.float64)
        for step in range(STEPS):
            xs = gradients(layer, size, step)
            given += sum(x.double() for x in xs) / size
            outs = ranks.step(xs)
            for out in outs[1:]:
                assert torch.equal(out, outs[0]), "the ranks were given different means"
            received += outs[0].double()
            check_honesty(ranks)
        gap = float((given - received - ranks.mean_residual()).abs().max())
        assert gap <= ranks.tolerance(), f"{shape}: {gap} was lost, where rounding explains {ranks.tolerance()}"


def check_honesty(ranks: Ranks) -> None:
    """The messages are those that the legs announce; only what is sized by data may be smaller."""
    variable = any(issubclass(part, Codec) and part.variable for part in parts(ranks.compressor))
    for comm, said in zip(ranks.comms, ranks.said, strict=True):
        legs = ranks.compressor.legs(ranks.layer, comm.world)
        assert [(m.op, m.scope, m.data.dtype) for m in said] == [(leg.op, leg.scope, leg.dtype) for leg in legs]
        for leg, message in zip(legs, said, strict=True):
            assert message.data.numel() == leg.numel or (variable and message.data.numel() < leg.numel)
            assert message.data.is_contiguous()


@every_member
def test_a_separate_output_gives_the_same_mean(member: Compressor) -> None:
    layer = Layer("layer", (23, 29))
    aliased, apart = Ranks(member, layer, 4, 2), Ranks(member, layer, 4, 2, alias=False)
    for step in range(3):
        xs = gradients(layer, 4, step)
        assert torch.equal(aliased.step(xs)[3], apart.step(xs)[3])


@every_member
def test_the_energy_is_that_of_what_there_was_to_send(member: Compressor) -> None:
    layer = Layer("layer", (23, 29))
    ranks = Ranks(member, layer, 2)
    ranks.step(gradients(layer, 2, 0))
    before = list(ranks.residuals)
    xs = gradients(layer, 2, 1)
    ranks.step(xs)
    for x, residual, energy in zip(xs, before, ranks.energies, strict=True):
        if member.lossless:
            assert residual is None
            continue
        assert residual is not None
        whole = (x.view(-1) + residual).double().square().sum()
        assert energy == pytest.approx(float(whole), rel=1e-12)  # the kernels add up in double precision


@every_member
def test_same_seed_same_bytes_and_no_global_randomness(member: Compressor) -> None:
    layer = Layer("layer", (23, 29))
    before = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy())
    first, second = Ranks(member, layer, 3, seed=5), Ranks(member, layer, 3, seed=5)
    for step in range(3):
        xs = gradients(layer, 3, step)
        first.step(xs)
        torch.rand(1000)  # whatever else happens in the process
        second.step(xs)
        for ours, theirs in zip(first.said, second.said, strict=True):
            for mine, other in zip(ours, theirs, strict=True):
                assert torch.equal(mine.data.view(torch.uint8), other.data.view(torch.uint8))
    torch.set_rng_state(before[0])
    Ranks(member, layer, 3).step(gradients(layer, 3, 9))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (numpy.random.get_state()[1] == before[2]).all()


@pytest.mark.parametrize("member", [member for member in MEMBERS if member.random], ids=str)
def test_another_seed_other_bytes_and_another_draw_each_step(member: Compressor) -> None:
    layer = Layer("layer", (23, 29))
    xs = gradients(layer, 2, 0)
    ranks, others = Ranks(member, layer, 2, seed=1), Ranks(member, layer, 2, seed=2)
    first = ranks.step(xs)[0].clone()
    assert not torch.equal(first, others.step(xs)[0])
    ranks.residuals = [None, None]
    assert not torch.equal(first, ranks.step(xs)[0])


@every_member
def test_text_and_json_round_trips(member: Compressor) -> None:
    assert parse(str(member)) == member
    assert hash(parse(str(member))) == hash(member)
    plan = Plan({"layer": member})
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


@every_member
def test_state_round_trips_without_pickle(member: Compressor, tmp_path: object) -> None:
    layer = Layer("layer", (8, 4, 3, 3))
    straight = Ranks(member, layer, 4, 2)
    for step in range(4):
        straight.step(gradients(layer, 4, step))
    path = f"{tmp_path}/state.pt"
    torch.save({"residuals": straight.residuals, "warm": straight.warm}, path)
    state = torch.load(path, weights_only=True)
    resumed = Ranks(member, layer, 4, 2, seed=77)
    resumed.residuals, resumed.warm = state["residuals"], state["warm"]
    for step in range(4, 8):
        xs = gradients(layer, 4, step)
        assert torch.equal(straight.step(xs)[1], resumed.step(xs)[1])
    for ours, theirs in zip(straight.residuals, resumed.residuals, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@every_member
def test_the_ladder_stays_in_the_family_and_gets_harsher(member: Compressor) -> None:
    """Never more bytes from rung to rung, and more left at its end than at its beginning."""
    layer = Layer("layer", (23, 29))
    rungs = member.ladder(layer)
    x = torch.randn(layer.shape, generator=torch.Generator().manual_seed(3))
    assert {type(rung) for rung in rungs} == {type(member)}
    world = Ranks(member, layer, 4, 2).comms[0].world
    sizes = [sum(leg.wire_bytes(world.size) for leg in rung.legs(layer, world)) for rung in rungs]
    assert sizes == sorted(sizes, reverse=True)
    errors = member.errors(x, rungs)
    assert errors.shape == (len(rungs),)
    assert errors.dtype is torch.float64
    for rung, error in zip(rungs, errors.tolist(), strict=True):
        assert error == pytest.approx(rung.error(x), rel=1e-5, abs=1e-9)
    assert errors[-1] > errors[0] or len(set(rungs)) == 1


@pytest.mark.parametrize("member", [m for m in MEMBERS if isinstance(m, Codec) and not m.random], ids=str)
def test_the_error_is_what_a_lone_rank_would_leave(member: Codec) -> None:
    layer = Layer("layer", (23, 29))
    (x,) = gradients(layer, 1, 4)
    ranks, before = Ranks(member, layer), x.clone()
    predicted = member.error(x)
    assert torch.equal(x, before), "error() changed its input"
    ranks.step([x])
    (left,) = ranks.residuals
    assert left is not None
    assert predicted == pytest.approx(float(left.double().square().sum()), rel=1e-12)
