"""Prices: links, kernels, and what an expression's rounds and arithmetic add up to."""

import random

import pytest
import torch

from laconic import Cast, Dense, Divided, Hierarchical, OnCpu, PowerSGD, Quantize, TopK
from laconic.errors import InvalidConfig
from laconic.exchange import Leg, Op, wire_bytes
from laconic.layer import Layer
from laconic.planning.buckets import FEWEST, FIRST, SMALLEST, WHOLE, buckets, cap
from laconic.planning.costs import NOTHING, Arithmetic, Kernel, Work, steps
from laconic.planning.grammar import expressions, options
from laconic.planning.link import REACHED, Line, algorithms, collective_seconds, fit, what_if
from laconic.planning.pricing import price, price_together, simulate
from laconic.planning.profile import Profile, Trace
from laconic.planning.rates import parse_rate, spell
from laconic.planning.timeline import HOST, INTER, NODE, SIDE
from laconic.world import Scope, World
from tests.contract.members import MEMBERS

WORLD = World(0, 8, 4)


def profile_of(layers, ready=None, device="v100") -> Profile:
    ready = ready or tuple(0.001 * (i + 1) for i in range(len(layers)))
    return Profile("made", WORLD, Trace(tuple(layers), ready), what_if(WORLD, 1e9, 1e11), device)


def test_a_fit_finds_the_line_it_was_made_from():
    """Noise of 2% on 60 points moves a coefficient by well under 10%, and is what the error says."""
    dice = random.Random(1)
    sizes = [2 ** dice.uniform(8, 26) for _ in range(60)]
    line = fit(sizes, [(2e-4 + 3e-9 * n) * dice.gauss(1, 0.02) for n in sizes])
    assert line.alpha == pytest.approx(2e-4, rel=0.1)
    assert line.beta == pytest.approx(3e-9, rel=0.1)
    assert 0.01 < line.error < 0.04


@pytest.mark.parametrize("seconds", [[1.0, 0.5], [1e-6, 1.0]])
def test_a_fit_is_never_negative(seconds):
    line = fit([1e3, 1e6], seconds)
    assert line.alpha >= 0
    assert line.beta >= 0


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [([1.0], [1.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0, float("nan")]), ([1, 2], [1, -1])],
)
def test_a_fit_refuses_what_it_cannot_use(sizes, seconds):
    with pytest.raises(InvalidConfig):
        fit(sizes, seconds)


@pytest.mark.parametrize("text", ["fast", "", "-1gbit", "nan", "25 parsecs", "0gbit", "1e9"])
def test_a_rate_that_does_not_parse(text):
    with pytest.raises(InvalidConfig, match="inter"):
        parse_rate(text, "inter")


def test_rates_round_trip():
    assert all(parse_rate(spell(bits)) == pytest.approx(bits, rel=1e-3) for bits in (1e4, 5e7, 2.5e10, 1.2e12))


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("size", [2, 3, 64, 16384])
def test_the_first_algorithm_moves_the_bytes_that_the_wire_count_says(op, size):
    nbytes = size * 1000
    assert algorithms(op, size, 0.0, 1.0)[0].seconds(nbytes) == pytest.approx(wire_bytes(op, nbytes, size), rel=1e-9)


def test_a_described_ring_runs_at_the_card_and_rings_across_share_it():
    curves = what_if(World(0, 16, 8), 1e9, 1e12)
    nbytes = 1 << 30
    whole = collective_seconds(curves, Op.SUM, Scope.WORLD, nbytes)
    assert whole == pytest.approx(wire_bytes(Op.SUM, nbytes, 16) * 8 / (1e9 * REACHED), rel=1e-2)
    shard = collective_seconds(curves, Op.SUM, Scope.ACROSS, nbytes / 8)
    assert shard == pytest.approx(8 * wire_bytes(Op.SUM, nbytes // 8, 2) * 8 / (1e9 * REACHED), rel=1e-2)


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_every_compressor_has_work_around_each_of_its_rounds(member):
    layer = Layer("w", (64, 96))
    made = steps(member, layer, WORLD)
    assert [step for step in made if isinstance(step, Leg)] == list(member.legs(layer, WORLD))
    assert all(isinstance(step, Work) == (i % 2 == 0) for i, step in enumerate(made))
    talk = price(profile_of([layer]), layer, member)
    assert all(seconds > 0 for _, seconds in talk.steps)


def test_what_the_host_does_is_on_the_host_and_what_is_dense_costs_no_arithmetic():
    layer = Layer("w", (1 << 20,))
    profile = profile_of([layer])
    hosted = price(profile, layer, OnCpu(Divided(Quantize(bits=4))))
    assert hosted.delay == 0
    assert [resource for resource, _ in hosted.steps] == [HOST, INTER, HOST, INTER, HOST]
    plain = price(profile, layer, Hierarchical(Dense(), Dense()))
    assert [resource for resource, _ in plain.steps] == [NODE, INTER, NODE]
    across = price(profile, layer, Hierarchical(Dense(), Quantize(bits=4)))
    assert [resource for resource, _ in across.steps] == [NODE, SIDE, INTER, SIDE, NODE]
    assert steps(Dense(), layer, WORLD)[0] == NOTHING


def test_a_measured_kernel_wins_over_the_model():
    kernel = Kernel(Line(1.0, 0.0), Line(0.25, 0.0))
    arithmetic = Arithmetic("v100", {("Quantize(bits=4)", "v100"): kernel})
    assert arithmetic.seconds(Work(Quantize(bits=4), encode=10, decode=4, each=10)) == 2.0
    assert arithmetic.seconds(Work(Quantize(bits=8), encode=10)) < 1e-3


def test_the_grammar_is_what_its_parts_allow():
    """c one-shot compressors and Cast: 1 + 2(c+1) flat; (c+2) inner times those; all but two again on the host."""
    for given in ([TopK()], [TopK(), Quantize()], [TopK(), Quantize(), PowerSGD()]):
        codecs = 1 + sum(not isinstance(x, PowerSGD) for x in given)
        flat = 1 + 2 * codecs + (len(given) + 1 - codecs)
        device = flat + (codecs + 1) * flat
        made = expressions(given, WORLD)
        assert len(made) == len(set(made)) == device + device - 2
        assert len(expressions(given, World(0, 8, 8), offload=False)) == flat
        assert made[0] == Dense()


def test_an_unsuited_compressor_is_no_option():
    tiny = options(Layer("b", (2,)), expressions([TopK()], WORLD))
    assert not any("TopK" in str(option) for option in tiny)
    half = options(Layer("h", (64, 64), torch.float16), expressions([TopK()], WORLD))
    assert not any("Cast" in str(option) for option in half)


def test_routes_are_not_to_be_given():
    with pytest.raises(InvalidConfig, match="without routes"):
        expressions([Divided(TopK())], WORLD)


def test_buckets_are_ddps():
    """The first closes at 1 MiB and the others at 25, each with the tensor that reaches it."""
    layers = [Layer(str(i), (100_000,)) for i in range(300)]
    groups = buckets(layers, WHOLE)
    assert [i for group in groups for i in group] == list(range(300))
    sizes = [sum(layers[i].nbytes for i in group) for group in groups]
    assert FIRST <= sizes[0] < FIRST + layers[0].nbytes
    assert all(WHOLE <= size < WHOLE + layers[0].nbytes for size in sizes[1:-1])


def test_buckets_are_cut_smaller_where_that_makes_more_of_them():
    for numel in (10, 100_000, 3_000_000, 100_000_000):
        nbytes = 4 * numel
        limit = cap(nbytes)
        assert SMALLEST <= limit <= WHOLE
        assert limit == WHOLE or nbytes > limit
    assert len(buckets([Layer(str(i), (30_000,)) for i in range(100)])) >= FEWEST


def test_a_fused_round_is_one_collective_of_all_its_bytes():
    layers = [Layer(str(i), (1000,)) for i in range(5)]
    profile = profile_of(layers)
    fused = price_together(profile, [(layer, Dense()) for layer in layers])
    assert fused.steps == ((INTER, collective_seconds(profile.links, Op.SUM, Scope.WORLD, 5 * 4000)),)
    mixed = price_together(profile, [(layers[0], Dense()), (layers[1], Cast()), (layers[2], Cast())])
    sums = [collective_seconds(profile.links, Op.SUM, Scope.WORLD, n) for n in (4000, 4000)]
    assert [seconds for resource, seconds in mixed.steps if resource == INTER] == sums


def test_fusing_saves_latency_and_nothing_else_when_all_is_ready_at_once():
    layers = [Layer(str(i), (1000,)) for i in range(50)]
    profile = profile_of(layers, ready=(0.0,) * 50)
    apart, fused = (simulate(profile, {}, fusion).seconds for fusion in ("tensor", "bucket"))
    curve = profile.links[Op.SUM, Scope.WORLD]
    assert fused == pytest.approx(min(line.seconds(200_000) for line in curve))
    assert apart == pytest.approx(50 * min(line.seconds(4000) for line in curve))


@pytest.mark.parametrize(("key", "value"), [("fusion", "fast"), ("commit", "never")])
def test_unknown_modes_are_named(key, value):
    with pytest.raises(InvalidConfig, match=key):
        simulate(profile_of([Layer("w", (8,))]), {}, **{key: value})
