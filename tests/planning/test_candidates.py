"""Plans worth a trial: what they are held to, which differ in kind, and what the plan in use is worth among them."""

from dataclasses import replace
from math import isfinite

import pytest
import torch

from laconic import (
    AdaComp,
    Compressor,
    Dense,
    Divided,
    Hierarchical,
    Layer,
    Plan,
    PowerSGD,
    Quantize,
    Ternary,
    TopK,
    World,
)
from laconic.compressors.routes import Route, core_of
from laconic.planning.candidates import (
    DEAREST,
    FINE,
    OFF,
    Candidate,
    believable,
    candidates,
    dearness,
    different,
    paid,
    priced,
    seconds,
)
from laconic.planning.fused import Fused
from laconic.planning.link import Line, what_if
from laconic.planning.pricing import loads
from laconic.planning.surroundings import Cadence, Surroundings
from laconic.stats import StepTrace, Table

LAYERS = [Layer("head", (256, 512)), Layer("body", (1024, 512)), Layer("bias", (512,))]
BITS, RANKS = (Quantize(bits=8), Quantize(bits=4)), (PowerSGD(rank=16), PowerSGD(rank=4))
MENUS = [{layer.name: family for layer in LAYERS[:2]} for family in (BITS, RANKS)]
CADENCE = Cadence((("head",), ("body", "bias")), (0.02, 0.05), 0.001)


def around(world: World, bits_a_second: float = 5e7) -> Surroundings:
    return Surroundings(world, what_if(world, bits_a_second, 1e11))


def tables(energy: float = 1.0) -> dict[str, Table]:
    errors = (1e-4 * energy, 1e-2 * energy, 0.1 * energy, 0.4 * energy)
    return {layer.name: Table((*BITS, *RANKS), errors, energy, energy, 1) for layer in LAYERS[:2]}


@pytest.mark.parametrize("world", [World(size=2), World(size=4, node_size=2)])
@pytest.mark.parametrize("budget", [0.001, 0.05, 0.5])
def test_each_keeps_the_budget_and_is_worth_what_it_is_worth_alone(world: World, budget: float) -> None:
    ranked = candidates(LAYERS, MENUS, tables(), CADENCE, around(world), budget)
    assert any(one.dense for one in ranked)
    assert ranked == sorted(ranked, key=lambda one: one.cost)
    for one in ranked:
        assert one.late <= budget * (1 + 1e-9)
        alone = priced(one.plan, LAYERS, tables(), CADENCE, around(world))
        assert alone is not None
        assert (alone.seconds, alone.error, alone.late) == pytest.approx((one.seconds, one.error, one.late))


def steps_of(plan: Plan, *core_s: float) -> list[StepTrace]:
    return [StepTrace(n, plan.digest, n, n + 0.1, n + 0.1, (), spent) for n, spent in enumerate(core_s)]


@pytest.mark.parametrize("core", [Quantize(bits=4), PowerSGD(rank=4)])
def test_arithmetic_is_as_dear_as_steps_show(core: Compressor) -> None:
    """Twice the processor's time that was expected: everything takes twice, and then as long as expected."""
    plan, world = Plan({"head": core, "body": core, "bias": Dense()}), World(size=2)
    talks = {str(one): (Line(1e-4, 1e-9),) * (1 + len(one.legs(LAYERS[0], world))) for one in (core, Dense())}
    here = replace(around(world), talks=talks)
    whole = dearness(steps_of(plan, 1.0), plan, LAYERS, CADENCE, here)
    assert whole == DEAREST, "no more than that, whatever a step took"
    told = dearness(steps_of(plan, 3e-3), plan, LAYERS, CADENCE, here)
    assert told is not None
    assert 1 / DEAREST < told < DEAREST
    for times in (0.5, 2.0):
        spent = steps_of(plan, times * 3e-3 / told)
        assert dearness(spent, plan, LAYERS, CADENCE, here) == pytest.approx(times)
        assert dearness(spent, plan, LAYERS, CADENCE, here.dearer(times)) == pytest.approx(1.0)
    slower = [seconds(plan, LAYERS, CADENCE, here.dearer(times)) for times in (1.0, 1.5, 3.0)]
    assert slower == sorted(slower)
    assert slower[0] < slower[-1]


def test_only_compressed_steps_of_that_plan_tell_how_dear_arithmetic_is() -> None:
    plan, dense = Plan({"head": Quantize(bits=4)}), Plan({layer.name: Dense() for layer in LAYERS})
    plan, here = plan.resolve(LAYERS), around(World(size=2))
    assert dearness(steps_of(dense, 0.01), plan, LAYERS, CADENCE, here) is None
    assert dearness(steps_of(dense, 0.01), dense, LAYERS, CADENCE, here) is None
    assert dearness(steps_of(plan, 0.0), plan, LAYERS, CADENCE, here) is None
    watched = dearness(steps_of(plan, 1e-4, 1e-4, 0.9), plan, LAYERS, CADENCE, here)
    assert watched == dearness(steps_of(plan, 1e-4), plan, LAYERS, CADENCE, here)
    device = replace(here, device="cuda")
    assert dearness(steps_of(plan, 0.01), plan, LAYERS, CADENCE, device) is None


def test_on_a_slow_link_the_best_is_not_dense_and_more_budget_is_never_slower() -> None:
    found = [candidates(LAYERS, MENUS, tables(), CADENCE, around(World(size=2)), budget) for budget in (0.0, 0.02, 0.5)]
    assert found[0][0].dense
    assert not found[1][0].dense
    quickest = [min(one.seconds for one in ranked) for ranked in found]
    assert quickest == sorted(quickest, reverse=True)


@pytest.mark.parametrize(("last", "compressed"), [(0.14, True), (1.0, False)])
def test_what_is_hidden_by_a_hair_is_compressed_and_what_is_well_hidden_is_not(last: float, compressed: bool) -> None:
    """A layer that takes 105 ms as it is, until the last one is ready 130 ms after it: not if the link wavers."""
    layers = [Layer("first", (512, 512)), Layer("last", (512, 512))]
    known = {layer.name: Table(BITS, (1e-4, 1e-2), 1.0, 1.0, 1) for layer in layers}
    cadence, menus = Cadence((("first",), ("last",)), (0.01, last), 0.001), [dict.fromkeys(known, BITS)]
    best = candidates(layers, menus, known, cadence, around(World(size=2), 1e8), 0.5)[0].plan
    assert (not best["first"].lossless) == compressed
    assert not best["last"].lossless
    assert ("1.5 times as long" in best.why["first"]) == compressed


@pytest.mark.parametrize(("rate", "in_bits"), [(1e6, True), (1e9, False)])
def test_on_a_slow_link_biases_go_in_eight_bits(rate: float, in_bits: bool) -> None:
    """2 KB in a step of some 70 are worth 1% of it; where nothing waits for the link they are not."""
    best = candidates(LAYERS, MENUS, tables(), CADENCE, around(World(size=2), rate), 0.5)[0]
    assert not best.dense
    assert isinstance(best.plan["bias"], Quantize) == in_bits
    if in_bits:
        assert best.plan["bias"] == Quantize(bits=8)
        assert "slow" in best.plan.why["bias"]
        as_it_is = Plan({**best.plan, "bias": Dense()})
        assert best.seconds < seconds(as_it_is, LAYERS, CADENCE, around(World(size=2), rate))
        without = [{name: cores[1:] for name, cores in MENUS[0].items()}, MENUS[1]]
        assert (
            candidates(LAYERS, without, tables(), CADENCE, around(World(size=2), rate), 0.5)[0].plan["bias"] == Dense()
        )


@pytest.mark.parametrize(("size", "width", "alone"), [(2, 512, False), (2, 1 << 15, True), (3, 512, True)])
def test_between_two_ranks_small_sums_cost_no_collective_of_their_own(size: int, width: int, alone: bool) -> None:
    """As runtime/packing has it: codes and sums of up to 64 KB share one, and the model must not charge for two."""
    layers = [Layer("w", (256, 512)), Layer("bias", (width,))]
    profile = Cadence((("w", "bias"),), (0.02,), 0.001).profile(layers, around(World(size=size)))
    chosen = (Quantize(bits=4), Dense())
    (bucket,) = loads(profile, chosen)
    fused = Fused(profile, [("w", "bias")], [(one,) for one in chosen])
    (same,) = [fused.load(index, total) for index, total in enumerate(fused.sums((0, 0)))]
    assert len(bucket.rounds[0].sends) == len(same.rounds[0].sends) == 1 + alone
    spent = [sum(send.seconds for send in one.rounds[0].sends) for one in (bucket, same)]
    assert spent[0] == pytest.approx(spent[1])


def test_where_routes_differ_one_candidate_takes_none() -> None:
    """On machines of several ranks a route may save bytes and cost the cores more than the model says."""
    ranked = candidates(LAYERS, MENUS, tables(), CADENCE, around(World(size=4, node_size=2)), 0.5)
    compressed = [one for one in ranked if not one.dense]
    assert any(isinstance(option, Route) for option in compressed[0].plan.values())
    assert any(not any(isinstance(option, Route) for option in one.plan.values()) for one in compressed)


def test_a_plan_that_was_never_measured_has_no_price() -> None:
    unknown = Plan({"head": AdaComp(), "body": Dense(), "bias": Dense()})
    assert priced(unknown, LAYERS, tables(), CADENCE, around(World(size=2))) is None


def test_a_route_leaves_what_its_compressor_leaves_and_a_divided_one_twice_that() -> None:
    world = World(size=4, node_size=2)
    for route, times in ((Hierarchical(Dense(), BITS[1]), 1), (Divided(BITS[1]), 2)):
        plan = Plan({"head": Dense(), "body": route, "bias": Dense()})
        found = priced(plan, LAYERS, tables(), CADENCE, around(world))
        assert found is not None
        assert found.error == pytest.approx(times * 1e-2 / 2)  # of the energy of two layers


def test_plans_of_one_kind_are_tried_once() -> None:
    def plan(head: object, body: object) -> Candidate:
        return Candidate(Plan({"head": head, "body": body, "bias": Dense()}), 1.0, 0.0, 0.0)

    low = plan(RANKS[0], RANKS[1])
    harsher = plan(RANKS[1], RANKS[1])  # another degree of the same family
    little = plan(Quantize(bits=4), RANKS[1])  # a fifth of the elements go another way
    other = plan(Quantize(bits=4), Quantize(bits=8))
    assert different([low, harsher, little, other], LAYERS) == [low, other]
    assert different([], LAYERS) == []


def test_a_link_is_as_slow_as_its_messages_say_if_the_step_bears_it_out() -> None:
    plan, place = Plan({layer.name: Dense() for layer in LAYERS}), around(World(size=2))

    def took(times: float) -> float:
        return seconds(plan, LAYERS, CADENCE, place.slower(times))

    def told(slow: float, before: float, step: float) -> float:
        return believable(slow, before, step, plan, LAYERS, CADENCE, place)

    assert told(20.0, 1.0, took(20.0)) == 20.0
    assert told(0.5, 1.0, took(1.0)) == 0.5
    assert told(20.0, 1.0, 0.0) == 20.0, "nothing is known of the step"
    assert told(20.0, 3.0, took(1.0)) == 3.0, "it was so slow before"
    found = told(20.0, 1.0, took(2.0))
    assert took(found) <= OFF * took(2.0) < took(FINE * found)


@pytest.mark.parametrize(
    ("head", "body", "collectives"),
    [(Quantize(bits=4), Quantize(bits=8), 1), (Quantize(bits=4), Divided(Quantize(bits=4)), 3), (Dense(), Dense(), 1)],
    ids=["one kind", "two kinds in the first round", "as they are"],
)
def test_every_collective_of_a_round_costs_the_core_its_start(
    head: Compressor, body: Compressor, collectives: int
) -> None:
    """In one bucket after the backward pass nothing is hidden."""
    world, cost = World(size=3), 0.25
    profile = Cadence((("head", "body"),), (0.05,), 0.001).profile(LAYERS[:2], around(world))

    def step(starting: float) -> float:
        return Fused(profile, (("head", "body"),), [(head,), (body,)], starting=starting).seconds((0, 0))

    assert step(cost) - step(0.0) == pytest.approx(cost * collectives, rel=1e-6)


def test_a_plan_that_is_late_with_a_share_must_be_faster_by_a_quarter_of_it() -> None:
    assert paid(1.0, 0.0) == 1.0
    slack = 1 - 0.9**0.25
    assert paid(1 - slack - 1e-6, 0.1) < 1.0 < paid(1 - slack + 1e-6, 0.1)
    assert slack == pytest.approx(0.1 / 4, rel=0.05)
    assert isfinite(paid(1.0, 1.0))


@pytest.mark.parametrize(
    ("option", "times"),
    [
        (Quantize(bits=4), 0.25),
        (Hierarchical(Dense(), Quantize(bits=4)), 0.25),
        (Divided(Quantize(bits=4)), 2.0),
        (Quantize(bits=4, scaling="l2"), 2.0),
        (PowerSGD(rank=16), 1.0),
        (Ternary(bits=0.5), 0.25),
        (Divided(Ternary(bits=0.5)), 2.0),
        (AdaComp(), 2.0),
    ],
    ids=str,
)
def test_what_may_stay_behind_again_and_again_counts_for_more(option: Compressor, times: float) -> None:
    """Beside low rank; codes that are coded twice, or do not reach to the largest element, promise nothing."""
    known = {"body": Table((core_of(option),), (0.1,), 1.0, 1.0, 1)}
    found = priced(
        Plan({"body": option}),
        LAYERS[1:2],
        known,
        Cadence((("body",),), (0.02,), 0.001),
        around(World(size=4, node_size=2)),
    )
    assert found is not None
    assert found.late == pytest.approx(times * 0.1)


def test_no_element_of_what_bits_leave_is_ever_more_than_half_a_level() -> None:
    """Why it counts for less, with error feedback and however long it goes on; what a selection leaves grows."""
    rng, few, chosen = torch.Generator().manual_seed(5), Quantize(bits=2), TopK(density=0.1)
    fewer = Ternary(bits=0.5, bucket=512)  # its levels reach beyond the largest: what is left is below 31/32 of it
    kept = {core: torch.zeros(512) for core in (few, fewer, chosen)}
    drift = torch.randn(512, generator=rng)
    for _ in range(50):
        gradient = drift + torch.randn(512, generator=rng)
        for core, residual in kept.items():
            x = gradient + residual
            level = float(x.abs().max())
            payload = torch.zeros(core.nbytes(512), dtype=torch.uint8)
            core.encode(x, payload, None, 0)
            residual.copy_(x)
            if core is few:
                assert float(residual.abs().max()) <= level / 2 * (1 + 1e-6)
            if core is fewer:
                assert float(residual.abs().max()) <= level * 31 / 32 * (1 + 1e-6)
    assert float(kept[chosen].abs().max()) > float(kept[few].abs().max())
