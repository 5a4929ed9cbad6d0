"""What `stats` says, against what was sent and left."""

from time import perf_counter

import pytest
import torch

from laconic import AdaComp, Plan
from laconic.exchange import wire_bytes
from tests.engine.fleet import Fleet
from tests.engine.model import BUCKETS, LAYERS, MIXED

SIZE = 4


def test_a_step_tells_what_it_took_of_a_core() -> None:
    """No more than the clock shows for all threads together, and nothing where nothing is compressed."""
    with Fleet(LAYERS, MIXED, 2) as fleet:
        began = perf_counter()
        fleet.step(fleet.gradients(0), BUCKETS)
        took = perf_counter() - began
        (traced,) = fleet.engines[0].observer.recent
        threads = 2 + fleet.engines[0].depth(MIXED.resolve(LAYERS))
        assert 0 < traced.core_s < threads * took
        fleet.adopt(Plan({}))
        for seed in (1, 2):
            fleet.step(fleet.gradients(seed), BUCKETS)
        assert fleet.engines[0].observer.recent[-1].core_s < traced.core_s


def test_bytes_and_ratio_are_those_of_the_legs() -> None:
    plan = Plan({name: c for name, c in MIXED.items() if not isinstance(c, AdaComp)})
    steps = 3
    with Fleet(LAYERS, plan, SIZE, 2) as fleet:
        for step in range(steps):
            fleet.step(fleet.gradients(step), BUCKETS)
        engine = fleet.engines[0]
        stats, world = engine.stats(), engine.comm.world
        assert engine.plan is not None
        for name, layer in fleet.layers.items():
            legs = engine.plan[name].legs(layer, world)
            sent = sum(
                wire_bytes(leg.op, leg.numel * leg.dtype.itemsize, len(world.members(leg.scope))) for leg in legs
            )
            dense = wire_bytes(legs[0].op.SUM, layer.nbytes, SIZE)
            assert stats.layers[name].dense_bytes == steps * dense
            # neighbours that are sent as one share its bytes by their size, rounded down
            assert steps * sent - steps * len(BUCKETS) <= stats.layers[name].wire_bytes <= steps * sent
        assert stats.steps == steps
        assert stats.ratio == stats.dense_bytes / stats.wire_bytes
        assert stats.compress_s > 0
        assert stats.communicate_s > 0


def test_a_payload_that_follows_the_data_is_counted_as_sent() -> None:
    with Fleet(LAYERS, Plan({"stem.weight": AdaComp(bin=8)}), 2) as fleet:
        fleet.step(fleet.gradients(0))
        first = fleet.engines[0].stats().layers["stem.weight"].wire_bytes
        fleet.step(fleet.gradients(1))
        second = fleet.engines[0].stats().layers["stem.weight"].wire_bytes - first
        assert 0 < second < first, "the first payload has room for everything, the second for what is likely"


def test_errors_are_summed_over_ranks_and_identical_everywhere() -> None:
    with Fleet(LAYERS, MIXED, SIZE, 2) as fleet:
        gradients = fleet.gradients(0)
        fleet.step(gradients, BUCKETS)
        left = {
            name: sum(float(e[name]["residual"].double().square().sum()) for e in fleet.ledgers()) for name in MIXED
        }
        assert not any(layer.energy for layer in fleet.engines[0].stats().layers.values()), "not shared yet"
        fleet.step(fleet.gradients(1), BUCKETS)
        everyone = [engine.stats() for engine in fleet.engines]
        for stats in everyone:
            for name in fleet.layers:
                ours, first = stats.layers[name], everyone[0].layers[name]
                assert (ours.energy, ours.left) == (first.energy, first.left)
        for name in MIXED:
            layer = everyone[0].layers[name]
            energy = sum(float(own[name].double().square().sum()) for own in gradients)
            assert layer.energy == pytest.approx(energy, rel=SIZE * 2.0**-23)  # they travel as float32
            assert layer.left == pytest.approx(left[name], rel=SIZE * 2.0**-23)
            assert layer.error == pytest.approx((left[name] / energy) ** 0.5, rel=SIZE * 2.0**-22)


def test_statistics_of_a_changed_layer_are_forgotten() -> None:
    with Fleet(LAYERS, MIXED, 2) as fleet:
        for step in range(2):
            fleet.step(fleet.gradients(step), BUCKETS)
        assert fleet.engines[0].stats().layers["a.weight"].energy > 0
        fleet.adopt(Plan({name: c for name, c in MIXED.items() if name != "a.weight"}))
        layers = fleet.engines[0].stats().layers
        assert layers["a.weight"].energy == 0
        assert layers["b.weight"].energy > 0


def test_every_step_is_told_to_the_listener() -> None:
    seen = []
    with Fleet(LAYERS, MIXED, 2, on_step=seen.append) as fleet:
        gradients = fleet.gradients(0)
        fleet.step(gradients, BUCKETS)
        gradients[0]["a.weight"][0, 0] = torch.nan
        fleet.step(gradients, BUCKETS)
    steps = sorted((tally.step, tally.spoiled) for tally in seen)
    assert steps == [(0, False), (0, False), (1, True), (1, True)]
    assert all(tally.wire_bytes > 0 for tally in seen)
