"""The fastest step within an error budget: against brute force, and the laws it must keep."""

import random
from itertools import product

import pytest

from laconic import Cast, Compressor, Dense, Layer, PowerSGD, Quantize, TopK, World
from laconic.planning import pricing
from laconic.planning.budget import FREE, fastest
from laconic.planning.costs import Kernel
from laconic.planning.fused import Fused
from laconic.planning.lanes import Load
from laconic.planning.link import Line, what_if
from laconic.planning.profile import Profile, Trace

MENU = (Dense(), Cast(), Quantize(bits=4), TopK(density=0.01), PowerSGD(rank=2))


def scene(dice: random.Random, layers: int, commit: str = "step", world: World | None = None) -> Fused:
    """A model of some layers in some buckets, on a link that may or may not matter."""
    shapes = [(dice.choice((64, 256, 512)), dice.choice((64, 128, 1024))) for _ in range(layers)]
    named = tuple(Layer(f"layer{i}", shape) for i, shape in enumerate(shapes))
    ready = sorted(dice.uniform(0, 0.05) for _ in named)
    cuts = sorted(dice.sample(range(1, layers), dice.randint(0, min(2, layers - 1)))) if layers > 1 else []
    groups = [named[a:b] for a, b in zip([0, *cuts], [*cuts, layers], strict=True)]
    ready = [max(ready[i] for i, x in enumerate(named) if x in group) for group in groups for _ in group]
    kernels = {
        (str(option), "cpu"): Kernel(
            Line(2e-6, dice.uniform(1e-10, 4e-9)), Line(2e-6, dice.uniform(1e-10, 2e-9))
        )
        for option in MENU[1:]
    }  # fmt: skip
    world = world or World(size=2)
    links = what_if(world, 10 ** dice.uniform(7.5, 9.5), 1e11)
    profile = Profile("case", world, Trace(named, tuple(ready)), links, "cpu", kernels)
    return Fused(profile, [[x.name for x in group] for group in groups], [MENU] * layers, commit)


def errors_for(dice: random.Random, layers: int) -> list[list[float]]:
    energies = [10 ** dice.uniform(-2, 1) for _ in range(layers)]
    return [[0.0, 1e-5 * e, 0.02 * e, dice.uniform(0.3, 0.9) * e, dice.uniform(0.1, 0.9) * e] for e in energies]


def test_a_bucket_that_is_added_up_costs_what_it_costs_from_scratch() -> None:
    dice = random.Random(3)
    for _ in range(30):
        layers = dice.randint(1, 6)
        fused = scene(dice, layers, world=World(size=4))
        choice = tuple(dice.randrange(1, len(MENU)) for _ in range(layers))
        for bucket, (members, total) in enumerate(zip(fused.members, fused.sums(choice), strict=True)):
            whole = load([(fused.layers[i], MENU[choice[i]]) for i in members], fused)
            made = fused.load(bucket, total)
            assert made.ending == pytest.approx(whole.ending)
            for one, other in zip(made.rounds, whole.rounds, strict=True):
                assert one.work == pytest.approx(other.work)
                assert sorted(s.seconds for s in one.sends) == pytest.approx(sorted(s.seconds for s in other.sends))


def load(members: list[tuple[Layer, Compressor]], fused: Fused) -> Load:
    return pricing.load(fused.profile, members, 0.0)


def test_it_is_near_brute_force_and_within_the_budget() -> None:
    dice = random.Random(5)
    worst = 1.0
    for _ in range(150):
        layers = dice.randint(1, 4)
        fused, errors = scene(dice, layers), errors_for(dice, layers)
        budget = dice.choice((0.0, 0.05, 0.3, 0.6)) * sum(max(row) for row in errors)
        found = fastest(fused, errors, budget, patience=10.0)
        assert found.error <= budget * (1 + 1e-9)
        assert found.seconds == pytest.approx(fused.seconds(found.choice), rel=1e-9)
        best = min(
            fused.seconds(choice)
            for choice in product(range(len(MENU)), repeat=layers)
            if sum(row[k] for row, k in zip(errors, choice, strict=True)) <= budget
        )
        worst = max(worst, found.seconds / best)
    assert worst <= 1.01


def test_what_is_hidden_is_not_compressed() -> None:
    """On a link so fast that nothing waits for it, error would buy nothing."""
    named = (Layer("late", (512, 512)), Layer("early", (512, 512)))
    profile = Profile(
        "hidden", World(size=2), Trace(named, (0.01, 1.0)), what_if(World(size=2), 1e10, 1e11), "cpu",
        {(str(option), "cpu"): Kernel(Line(1e-6, 1e-9), Line(1e-6, 1e-9)) for option in MENU[1:]},
    )  # fmt: skip
    fused = Fused(profile, [["late"], ["early"]], [MENU] * 2, "step")
    found = fastest(fused, [[0.0, 1e-5, 0.02, 0.9, 0.5]] * 2, budget=10.0)
    assert found.choice[0] == 0
    assert found.error <= 1.0


def test_it_is_never_slower_than_dense_or_any_uniform_plan_that_fits() -> None:
    dice = random.Random(9)
    for _ in range(40):
        layers = dice.randint(2, 12)
        fused, errors = scene(dice, layers), errors_for(dice, layers)
        budget = dice.uniform(0, 0.7) * sum(max(row) for row in errors)
        found = fastest(fused, errors, budget)
        for option in range(len(MENU)):
            uniform = (option,) * layers
            if sum(row[option] for row in errors) <= budget:
                assert found.seconds <= fused.seconds(uniform) * (1 + FREE) * (1 + 1e-9)


def test_a_budget_of_nothing_leaves_nothing() -> None:
    dice = random.Random(2)
    fused, errors = scene(dice, 5), errors_for(dice, 5)
    assert fastest(fused, errors, 0.0).error == 0
