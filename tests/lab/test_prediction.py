"""The table of predicted against measured steps: what it says follows from its rows."""

from dataclasses import replace

import pytest

from laconic import Dense, Plan, TopK
from laconic.lab.methods import Method
from laconic.lab.prediction import Cell, page, spearman
from laconic.layer import Layer
from laconic.planning.link import what_if
from laconic.planning.pricing import step_seconds
from laconic.planning.profile import Profile, Trace
from laconic.world import World


def cell() -> Cell:
    layers = (Layer("head", (64, 64)), Layer("body", (512, 512)))
    world = World(size=2)
    profile = Profile("net", world, Trace(layers, (0.01, 0.02), after=0.005), what_if(world, 1e8, 1e10))
    plans = {"dense": {layer.name: Dense() for layer in layers}, "topk": {"head": Dense(), "body": TopK(density=0.01)}}
    raced = tuple((name, Plan(plan), 900 * step_seconds(profile, plan)) for name, plan in plans.items())
    return Cell("lstm", "2", "100mbit", 0.1, profile, raced, 0.0)


def test_a_cell_is_kept_as_it_was_and_predicted_anew():
    made = cell()
    assert Cell.from_json(made.as_json()) == made
    for row in made.predictions():
        assert row.error == pytest.approx(1 / 0.9 - 1)


def test_what_the_reference_took_beyond_its_prediction_is_added_to_all():
    made = cell()
    for before, after in zip(made.predictions(), replace(made, beyond=7.5).predictions(), strict=True):
        assert after.predicted == pytest.approx(before.predicted + 7.5)


def test_the_page_tells_errors_and_order_against_the_aims():
    text = page([cell().predictions()], {"machine": "a box"})
    assert "| median error | 11.1% | 10% |" in text
    assert "| worst error | 11.1% | 25% |" in text
    assert "rank correlation 1.00" in text
    assert "## lstm, 2 hosts, 100mbit" in text


@pytest.mark.parametrize(
    ("a", "b", "rho"),
    [([1, 2, 3, 4], [10, 20, 30, 40], 1.0), ([1, 2, 3], [3, 2, 1], -1.0), ([1, 1, 2], [5, 5, 6], 1.0), ([1], [2], 1.0)],
)
def test_rank_correlation(a: list[float], b: list[float], rho: float):
    assert spearman(a, b) == pytest.approx(rho)


def test_a_probe_is_a_method_with_expressions_and_no_exchange():
    method = Method.parse("probe:TopK(0.01)+Hierarchical(Dense, Dense)")
    assert method.name == "probe:TopK(density=0.01)+Hierarchical(Dense, Dense)"
    assert len(method.probes) == 2
    assert not method.ours
    assert not method.trains_together
