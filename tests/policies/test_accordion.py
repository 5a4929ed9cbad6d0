"""Accordion: much compression where norms no longer change, little where they do."""

from dataclasses import replace
from math import inf, nan, sqrt

import pytest
from team import LAYERS, Team

from laconic import Accordion, Dense, InvalidConfig, Layer, PowerSGD, TopK, World
from laconic.stats import Stats, Table

LOW, HIGH = TopK(density=0.2), TopK(density=0.02)
NAMES = ["a.weight", "b.weight", "c.weight"]


def stats(**norms: float) -> Stats:
    return Stats(tables={f"{name}.weight": Table((), (), 9e9, norm**2, 10) for name, norm in norms.items()})


def decide(policy: Accordion, **norms: float) -> dict[str, object]:
    """One decision, adopted."""
    made = policy.propose(stats(**norms), policy.start(LAYERS, World(size=2)) if not policy.pairs else policy.plan)  # type: ignore[attr-defined]
    policy.take_notes(made.notes)
    policy.plan = made.plan  # type: ignore[attr-defined]
    return {name: made.plan[name] for name in NAMES}


def test_a_layer_whose_norm_changed_by_less_than_eta_is_compressed_much() -> None:
    policy = Accordion(low=LOW, high=HIGH, eta=0.5)
    assert set(decide(policy, a=1.0, b=1.0, c=1.0).values()) == {LOW}, "nothing to compare with yet"
    assert decide(policy, a=0.51, b=0.5, c=1.49) == {"a.weight": HIGH, "b.weight": LOW, "c.weight": HIGH}
    assert decide(policy, a=0.25, b=0.4, c=1.49) == {"a.weight": LOW, "b.weight": HIGH, "c.weight": HIGH}


def test_zero_norms_are_defined_and_missing_ones_change_nothing() -> None:
    policy = Accordion(low=LOW, high=HIGH)
    decide(policy, a=0.0, b=0.0, c=2.0)
    assert decide(policy, a=0.0, b=1.0) == {"a.weight": HIGH, "b.weight": LOW, "c.weight": LOW}
    assert decide(policy) == {"a.weight": HIGH, "b.weight": LOW, "c.weight": LOW}
    assert decide(policy, c=2.0)["c.weight"] == HIGH


def test_the_reason_names_the_layers_that_crossed_and_by_how_much() -> None:
    policy = Accordion(low=LOW, high=HIGH)
    decide(policy, a=1.0, b=1.0, c=1.0)
    why = policy.propose(stats(a=0.9, b=9.0, c=9.0), policy.plan).why  # type: ignore[attr-defined]
    assert "1 of 3" in why
    assert "a.weight 0.1" in why


def test_a_fall_of_the_learning_rate_by_eta_makes_every_layer_critical() -> None:
    policy = Accordion(low=LOW, high=HIGH, eta=0.5)
    seen = []
    plan = policy.start(LAYERS, World(size=2))
    for rate in (0.1, 0.1, 0.051, 0.02, 0.02, None, 0.001, 0.0):
        made = policy.propose(replace(stats(a=1.0, b=1.0, c=1.0), learning_rate=rate), plan)
        policy.take_notes(made.notes)
        plan = made.plan
        seen.append({plan[name] for name in NAMES} == {LOW})
        assert ("learning rate fell" in made.why) == (rate in (0.02, 0.0) and seen[-1])
    assert seen == [True, False, False, True, False, False, False, True], "the norms did not change"


def test_its_state_goes_into_a_checkpoint_and_comes_back() -> None:
    policy, again = Accordion(low=LOW, high=HIGH), Accordion(low=LOW, high=HIGH)
    decide(policy, a=1.0, b=1.0, c=1.0)
    decide(policy, a=1.0, b=5.0, c=1.0)
    again.start(LAYERS, World(size=2))
    again.load_state_dict(policy.state_dict())
    after = stats(a=3.0, b=5.5)
    assert policy.propose(after, policy.plan) == again.propose(after, policy.plan)  # type: ignore[attr-defined]


def test_layers_that_only_much_compression_suits_are_dense_in_their_critical_regime() -> None:
    policy = Accordion(low=PowerSGD(rank=16), high=PowerSGD(rank=1))
    plan = policy.start([Layer("small", (32, 32)), Layer("bias", (9000,))], World(size=2))
    assert policy.pairs == {"small": (Dense(), PowerSGD(rank=1))}
    assert dict(plan) == {"small": Dense(), "bias": Dense()}


def test_on_running_ranks_regimes_follow_the_gradients_and_not_the_residuals() -> None:
    """a stays, b dies down, c grows: by the gradients alone, although the residuals under HIGH outgrow them."""
    team = Team(lambda: Accordion(low=LOW, high=HIGH, period=12))
    scales = {"a.weight": lambda s: 1.0, "b.weight": lambda s: 0.3 ** (s // 12), "c.weight": lambda s: 3.0 ** (s // 12)}
    team.run(46, scale=lambda step, name: scales.get(name, scales["a.weight"])(step))
    assert {name: team.plan[name] for name in NAMES} == {"a.weight": HIGH, "b.weight": LOW, "c.weight": LOW}
    residual = team.engines[0].ledger.accounts["a.weight"].residual
    assert residual is not None
    tables = team.engines[0].stats().tables
    assert sqrt(tables["a.weight"].energy) > 1.5 * sqrt(tables["a.weight"].gradient)
    assert [[c.step for c in one.history] for one in team.controllers] == [[25], [25]]
    team.close()


@pytest.mark.parametrize(
    ("key", "options"),
    [("eta", {"eta": 0}), ("eta", {"eta": nan}), ("eta", {"eta": inf}), ("period", {"period": 0}),
     ("low", {"low": Dense()}), ("high", {"high": None})],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(key: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=f"^{key}="):
        Accordion(**{"low": LOW, "high": HIGH, **options})  # type: ignore[arg-type]
