"""GraVAC: the factor rises while the gain allows it, falls back within a step, settles and un-settles."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import nan

import pytest
import torch
from team import LAYERS, Team, draw

from laconic import (
    AdaComp,
    Chain,
    Compressor,
    Dense,
    Divided,
    GraVAC,
    InvalidConfig,
    Layer,
    Plan,
    PowerSGD,
    Quantize,
    RandomK,
    Sign,
    Stats,
    Threshold,
    TopK,
    World,
)
from laconic.compressors.thinner import factor, thinner
from laconic.exchange import Op
from laconic.stats import Table

COMPRESSED = ["a.weight", "b.weight", "c.weight"]
each_step = partial(GraVAC, every=1)  # as published; less often by default


class Bench:
    """A policy on one rank, told what each factor would keep and how long a step takes."""

    def __init__(self, policy: GraVAC, size: int = 100) -> None:
        self.policy = policy
        self.plan = policy.start(LAYERS, World(size=size))  # a hundred ranks: a gain follows at once
        self.step = 0

    @property
    def used(self) -> float | None:
        """The factor in use."""
        one = self.plan["a.weight"]
        return None if isinstance(one, Dense) else round(factor(one) or 0, 3)

    def feed(self, gains: Mapping[float, float] | Sequence[float], steps: int = 1) -> None:
        """So many steps in which a factor keeps what `gains` says, the nearest known below for others."""
        known = dict(gains) if isinstance(gains, Mapping) else {}
        for _ in range(steps):
            watched = self.policy.watch(self.step, self.plan)
            news = {}
            for name, rungs in watched.items():
                errors = tuple(1 - known[max(f for f in known if f <= (factor(r) or 0) + 1e-6)] for r in rungs)
                news[name] = Table(tuple(rungs), errors, 1.0, 1.0, 1)
            self.plan, self.why = self.policy.react(self.step, news, self.plan)[:2]
            self.step += 1

    def decide(self, **seconds: float) -> str:
        """A window's end; seconds a step by factor, such as x10=0.1."""
        times = {}
        for key, value in seconds.items():
            scale = float(key[1:]) / (factor(self.policy.base) or 1)
            entries = {n: thinner(c, scale) if n in COMPRESSED else c for n, c in self._base().items()}
            times[Plan(entries).digest] = value
        made = self.policy.propose(Stats(step_times=times), self.plan)
        self.policy.take_notes(made.notes)
        return made.why

    def _base(self) -> Plan:
        return GraVAC(self.policy.base).start(LAYERS, World(size=2))


def test_per_step_candidate_minimum_or_dense() -> None:
    bench = Bench(each_step(TopK(density=0.1), floor=0.7))
    assert bench.used == 10
    for gains, used in [((0.9, 0.8), 20), ((0.9, 0.6), 10), ((0.5, 0.4), None), ((0.7, 0.7), 20)]:
        bench.feed(dict(zip((10, 20), gains, strict=True)))
        assert bench.used == used
        assert f"floor is {bench.policy.floor:g}" in bench.why
    assert bench.plan["b.bias"] == Dense()


def test_the_gain_is_an_average_with_the_papers_weight() -> None:
    bench = Bench(each_step(TopK(density=0.1)), size=4)
    bench.feed({10: 1.0})
    bench.feed({10: 0.5})
    assert "0.9800" in bench.why  # 1 + 4/100 (0.5 - 1)


def test_measured_in_one_step_of_several_the_gain_follows_as_fast() -> None:
    often, seldom = (GraVAC(TopK(density=0.1), every=every) for every in (1, 5))
    plan = often.start(LAYERS, World(size=4))
    assert seldom.start(LAYERS, World(size=4)) == plan
    assert [bool(seldom.watch(step, plan)) for step in range(6)] == [True, False, False, False, False, True]
    assert seldom._weight == pytest.approx(1 - (1 - often._weight) ** 5)


@pytest.mark.parametrize(
    ("scaling", "largest", "factors"),
    [("exponential", 1000, [20, 40, 160, 1000]), ("geometric", 1000, [20, 40, 80, 160, 320, 640, 1000]),
     ("exponential", 30, [20, 30])],
)  # fmt: skip
def test_the_candidates_follow_the_scaling_up_to_the_largest(
    scaling: str, largest: float, factors: list[float]
) -> None:
    bench = Bench(each_step(TopK(density=0.1), scaling=scaling, largest=largest))
    seen = []
    for _ in factors:
        bench.feed({10: 0.99, 20: 0.9}, 2)
        seen.append(bench.used)
        bench.decide()
    assert seen == factors
    bench.feed({10: 0.99, 20: 0.9}, 2)
    assert bench.used == factors[-1], "and no further"


def test_a_gain_within_omega_raises_the_minimum() -> None:
    bench = Bench(each_step(TopK(density=0.1), omega=0.01))
    bench.feed({10: 0.9, 20: 0.895}, 2)
    assert "the minimum now" in bench.decide()
    bench.feed({10: 0.9, 20: 0.895, 40: 0.3}, 2)
    assert bench.used == 20, "where the next candidate fails, this is what is left"


def test_it_settles_on_the_lower_of_two_throughputs_within_omega() -> None:
    bench = Bench(each_step(TopK(density=0.1)))
    bench.feed({10: 0.95, 20: 0.9}, 2)
    bench.decide(x10=0.2, x20=0.1)
    bench.feed({10: 0.95, 20: 0.9, 40: 0.895}, 2)
    assert "settled at 20x" in bench.decide(x10=0.2, x40=0.1)  # 9.0 and 8.95
    bench.feed({10: 0.95, 20: 0.9}, 2)
    assert bench.used == 20
    assert bench.decide(x20=0.1).startswith("settled")


def test_at_the_end_of_the_sequence_it_settles_on_the_best() -> None:
    bench = Bench(each_step(TopK(density=0.1), largest=20))
    bench.feed({10: 0.95, 20: 0.71}, 2)
    assert "settled at 10x" in bench.decide(x10=0.10, x20=0.09)


def test_a_candidate_below_the_floor_ends_the_search_until_it_fits() -> None:
    bench = Bench(each_step(TopK(density=0.1)))
    bench.feed({10: 0.9, 20: 0.85}, 2)
    bench.decide(x10=0.3, x20=0.2)
    bench.feed({10: 0.9, 20: 0.85, 40: 0.6}, 2)
    assert bench.used == 10, "within a window the minimum is what is left"
    assert "settled at 20x" in bench.decide(x10=0.3)
    bench.feed({10: 0.9, 20: 0.85, 40: 0.6}, 2)
    assert bench.used == 20, "but then the best that is known is used, and not the minimum"
    bench.feed({10: 0.9, 20: 0.85, 40: 0.8}, 2)
    assert "goes on" in bench.decide(x20=0.2)
    bench.feed({10: 0.9, 20: 0.85, 40: 0.8}, 2)
    assert bench.used == 40


def test_it_unsettles_when_the_gain_falls_below_the_floor() -> None:
    bench = Bench(each_step(TopK(density=0.1), largest=20))
    bench.feed({10: 0.95, 20: 0.9}, 2)
    assert "settled at 20x" in bench.decide(x10=0.2, x20=0.1)
    bench.feed({10: 0.8, 20: 0.5}, 2)
    assert bench.used == 10, "the fallback comes first"
    assert "begins again" in bench.decide(x20=0.1)
    bench.feed({10: 0.8, 20: 0.75}, 2)
    assert bench.used == 20


def test_nothing_known_and_all_zero_gradients_change_nothing() -> None:
    bench = Bench(each_step(TopK(density=0.1)))
    assert bench.decide() == "no statistics yet"
    plan = bench.policy.react(0, {}, bench.plan)[0]
    assert plan == bench.plan
    rungs = bench.policy.watch(0, bench.plan)["a.weight"]
    zeros = {"a.weight": Table(tuple(rungs), (0.0, 0.0), 0.0, 0.0, 1)}
    assert bench.policy.react(0, zeros, bench.plan)[0] == bench.plan


def test_its_state_goes_into_a_checkpoint_and_comes_back() -> None:
    bench, again = Bench(each_step(TopK(density=0.1)), size=3), Bench(each_step(TopK(density=0.1)), size=3)
    bench.feed({10: 0.95, 20: 0.9}, 3)
    bench.decide(x10=0.2, x20=0.1)
    bench.feed({10: 0.95, 20: 0.9, 40: 0.8}, 3)
    again.policy.load_state_dict(bench.policy.state_dict())
    again.plan, again.step = bench.plan, bench.step
    for one in (bench, again):
        one.feed({10: 0.6, 20: 0.5, 40: 0.4}, 2)
    assert (again.plan, again.why) == (bench.plan, bench.why)
    assert again.decide(x40=0.1) == bench.decide(x40=0.1)


SPARSIFIERS = (
    TopK(density=0.1), TopK(density=0.1, selection="sampled"), Threshold(density=0.1), RandomK(density=0.5),
    Chain(TopK(density=0.1), Sign()), Divided(TopK(density=0.1)),
)  # fmt: skip


@pytest.mark.parametrize("base", [*SPARSIFIERS, Sign(), Quantize(bits=4)], ids=str)
def test_a_second_level_sends_less_and_keeps_less(base: Compressor) -> None:
    layer = Layer("w", (400, 640))
    x = draw(0, 0, [layer])["w"]
    levels = [base, thinner(base, 2), thinner(base, 16)]
    sizes = [level.wire_bytes(layer, World(size=2)) for level in levels]
    assert sizes == sorted(sizes, reverse=True)
    errors = [level.error(x) for level in levels]
    assert errors == sorted(errors)
    if base in SPARSIFIERS:
        known = factor(base) or 0
        assert [factor(level) for level in levels] == pytest.approx([known, 2 * known, 16 * known], rel=1e-3)
    else:
        assert [sizes[0] / size for size in sizes] == pytest.approx([1, 2, 16], rel=0.1)


@pytest.mark.parametrize("base", [TopK(density=0.1), Threshold(density=0.1), RandomK(density=0.5), Sign()], ids=str)
def test_on_running_ranks_the_factor_moves_alike_without_extra_collectives_and_loses_nothing(base: Compressor) -> None:
    team = Team(lambda: each_step(base, floor=0.15, window=8), size=2)
    sent, given = torch.zeros(1), torch.zeros(1)
    for step in range(40):
        gradients = [draw(step, rank) for rank in range(2)]
        given = (
            given + torch.cat([(gradients[0][layer.name] + gradients[1][layer.name]).flatten() for layer in LAYERS]) / 2
        )
        sent = sent + team.step(gradients)[0]
        kinds = {(leg.op, leg.dtype) for la in LAYERS for leg in team.plan[la.name].legs(la, World(size=2))}
        along = {(Op.GATHER, torch.uint8), (Op.SUM, torch.float32)} <= kinds  # between two ranks, in one collective
        assert all(len(comm.log) == len(kinds) - along for comm in team.comms)
    held = torch.zeros_like(sent)
    for engine in team.engines:
        parts = [(engine.ledger.accounts[la.name].residual, la.numel) for la in LAYERS]
        held += torch.cat([torch.zeros(n) if r is None else r for r, n in parts]) / 2
    assert torch.allclose(sent + held, given, atol=40 * 2.0**-20 * float(given.abs().max()))
    histories = [[(c.step, c.plan.digest, c.why) for c in controller.history] for controller in team.controllers]
    assert histories[0] == histories[1]
    assert histories[0], "the factor never moved"
    assert torch.equal(*(policy.state_dict()["notes"] for policy in team.policies))
    team.close()


def test_a_fall_of_the_gain_is_answered_after_the_step_that_tells_of_it() -> None:
    """In step 6 the gradients become flat, step 7 tells, step 8 begins to answer."""
    team = Team(lambda: each_step(TopK(density=0.1), floor=0.8, window=1000), size=2)
    sharp, flat = torch.zeros(40, 64), torch.ones(40, 64)
    sharp[0, :8] = 100.0
    for policy in team.policies:
        policy._weight = 1.0  # type: ignore[attr-defined]
    plans = []
    for step in range(11):
        gradient = {layer.name: (sharp if step < 6 else flat).flatten()[: layer.numel].view(layer.shape)
                    if layer.numel <= 2560 else torch.zeros(layer.shape) for layer in LAYERS}  # fmt: skip
        team.step([gradient, gradient])
        plans.append(team.plan["a.weight"])
    assert plans[:8] == [TopK(density=0.1)] * 2 + [TopK(density=0.05)] * 6
    assert plans[8] == Dense()
    team.close()


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("window", {"window": 0}), ("every", {"every": 0}),
        ("floor", {"floor": 0}), ("floor", {"floor": nan}), ("floor", {"floor": 1.1}),
        ("omega", {"omega": 0}), ("largest", {"largest": 5}), ("largest", {"largest": nan}),
        ("scaling", {"scaling": "linear"}), ("base", {"base": PowerSGD()}), ("base", {"base": Dense()}),
        ("base", {"base": AdaComp()}),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(key: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=f"^{key}="):
        GraVAC(**{"base": TopK(density=0.1), **options})  # type: ignore[arg-type]
