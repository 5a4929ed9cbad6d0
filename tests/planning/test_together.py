"""The decision over buckets: never slower than what it starts from, and it stays where nothing is faster."""

from dataclasses import replace

import pytest

from laconic import Cast, Dense, Hierarchical, Quantize, TopK
from laconic.layer import Layer
from laconic.planning.budget import FREE
from laconic.planning.grammar import plain
from laconic.planning.link import Line, what_if
from laconic.planning.models import model_named
from laconic.planning.pricing import step_seconds
from laconic.planning.profile import Profile, Trace
from laconic.planning.together import decide
from laconic.world import World


def profile(world: World, inter: float, intra: float = 4e10, tensors: int = 12) -> Profile:
    layers = tuple(Layer(f"{i}.weight", (256, 64 * (1 + i % 4))) for i in range(tensors))
    ready = tuple(0.002 * (i + 1) for i in range(tensors))
    return Profile("made", world, Trace(layers, ready, after=0.001), what_if(world, inter, intra), "cpu")


@pytest.mark.parametrize("rate", [2e7, 2e8, 1e9, 1e11])
@pytest.mark.parametrize("world", [World(size=2), World(size=8), World(size=8, node_size=4)], ids=str)
def test_it_is_never_slower_than_the_published_decision_dense_or_a_uniform_plan(world: World, rate: float):
    made = profile(world, rate)
    found = decide(made, [TopK(density=0.01)])
    assert found.seconds <= min(found.published, found.dense, found.held) * (1 + FREE)
    for option in (Dense(), Cast(), TopK(density=0.01)):
        uniform = {layer.name: option for layer in made.trace.layers}
        assert found.seconds <= step_seconds(made, uniform) * (1 + FREE)
    assert found.seconds == pytest.approx(step_seconds(made, found.plan), rel=1e-3)


def test_on_a_fast_network_it_says_do_not_compress():
    found = decide(profile(World(size=2), 1e12), [Quantize(bits=4)])
    assert all(plain(option) for option in found.plan.values())


def test_between_slow_machines_it_reduces_inside_first():
    found = decide(profile(World(size=8, node_size=4), 5e7), [Quantize(bits=4)])
    largest = found.plan["3.weight"]
    assert isinstance(largest, Hierarchical)
    assert found.seconds < 0.5 * found.dense


def test_the_plan_in_use_is_priced_even_if_the_grammar_does_not_have_it():
    made = profile(World(size=2), 1e8)
    held = {layer.name: Quantize(bits=3) for layer in made.trace.layers}
    found = decide(made, [TopK(density=0.01)], held=held)
    assert found.held == pytest.approx(step_seconds(made, held), rel=1e-3)
    assert found.seconds <= found.held * (1 + FREE)


def test_where_conversations_were_measured_it_keeps_to_those():
    made = replace(
        profile(World(size=2), 5e7), talks={"Dense": (Line(0, 0),) * 2, "TopK(density=0.01)": (Line(0, 0),) * 2}
    )
    plan = decide(made, [TopK(density=0.01), Quantize(bits=4)]).plan
    assert {str(option) for option in plan.values()} <= set(made.talks)


def test_a_large_model_is_decided_in_seconds():
    world = World(size=8, node_size=4)
    trace = model_named("gpt2").trace("v100")
    made = Profile("gpt2", world, trace, what_if(world, 1e10, 4e11), "v100")
    found = decide(made, [TopK(density=0.01)])
    assert found.seconds <= found.published * (1 + FREE)


def test_small_layers_whose_compression_gains_nothing_are_left_alone():
    world = World(size=2)
    layers = (Layer("bias", (64,)), Layer("weight", (2048, 512)))
    made = Profile("two", world, Trace(layers, (0.001, 0.01)), what_if(world, 5e7, 1e10), "cpu")
    plan = decide(made, [TopK(density=0.01)]).plan
    assert plan["bias"] == Dense()
    assert plan["weight"] != Dense()
