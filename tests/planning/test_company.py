"""Which buckets had better wait for the next: against every way of joining them."""

import random
from itertools import product

import pytest

from laconic import Dense, Layer, Quantize, World
from laconic.planning.candidates import COMPANY, in_company
from laconic.planning.fused import Fused
from laconic.planning.link import what_if
from laconic.planning.profile import Profile, Trace

MENU = (Dense(), Quantize(bits=2))


def scene(ready: list[float], rate: float, starting: float = 1e-3) -> Fused:
    """A model of one compressed layer and one short dense one in each bucket."""
    named, groups, times = [], [], []
    for bucket, at in enumerate(ready):
        named += [Layer(f"{bucket}.weight", (256, 1024)), Layer(f"{bucket}.bias", (256,))]
        groups.append([layer.name for layer in named[-2:]])
        times += [at, at]
    world = World(size=2)
    profile = Profile("case", world, Trace(tuple(named), tuple(times)), what_if(world, rate, 1e11), "cpu", {})
    options = [MENU if layer.name.endswith("weight") else MENU[:1] for layer in named]
    return Fused(profile, groups, options, starting=starting)


def compressed(fused: Fused) -> tuple[int, ...]:
    return tuple(len(row) - 1 for row in fused.options)


def last_names(fused: Fused) -> list[str]:
    return [fused.layers[members[-1]].name for members in fused.members]


def test_joined_buckets_are_what_they_are_from_scratch() -> None:
    fused = scene([0.01, 0.02, 0.05, 0.06], 1e8)
    names = [[layer.name for layer in fused.layers[2 * b : 2 * b + 2]] for b in range(4)]
    merged = Fused(fused.profile, [names[0] + names[1], names[2], names[3]], fused.options, starting=1e-3)
    choice = compressed(fused)
    assert fused.joined({"0.bias"}).seconds(choice) == pytest.approx(merged.seconds(choice))
    assert fused.joined(()).seconds(choice) == pytest.approx(fused.seconds(choice))


def test_it_is_near_the_best_of_all_ways() -> None:
    dice, worst = random.Random(2), 1.0
    for _ in range(60):
        ready = sorted(dice.uniform(0.0, 0.1) for _ in range(dice.randint(2, 6)))
        fused = scene(ready, 10 ** dice.uniform(7.5, 9.5), dice.choice((0.0, 2e-4, 1e-3)))
        choice, names = compressed(fused), last_names(fused)
        best = min(
            fused.joined({name for name, waits in zip(names, flags, strict=False) if waits}).seconds(choice)
            for flags in product((False, True), repeat=len(names) - 1)
        )
        found = fused.joined(in_company(fused, choice)).seconds(choice)
        assert found <= fused.seconds(choice)
        worst = max(worst, found / best)
    assert worst <= 1.01


def test_buckets_that_are_full_at_once_travel_together_and_the_last_alone_if_it_comes_late() -> None:
    """A collective costs the core 1 ms: to wait 0.1 ms saves it; to be exposed, as the last ones would be, does not."""
    fused = scene([0.010, 0.0101, 0.1], 1e9)
    assert in_company(fused, compressed(fused)) == {"0.bias"}


def test_what_goes_as_it_is_stays_where_it_lies() -> None:
    fused = scene([0.01, 0.0101, 0.1], 1e9)
    assert fused.layers[0].nbytes > COMPANY
    choice = (0, *compressed(fused)[1:])
    assert "0.bias" in in_company(fused, compressed(fused))
    assert "0.bias" not in in_company(fused, choice)
    assert in_company(fused, (0,) * len(fused.layers)) == frozenset()
