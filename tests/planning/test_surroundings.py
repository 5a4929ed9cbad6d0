"""What traced steps tell about cadence and link."""

from dataclasses import replace

import pytest

from laconic import Layer, Scope, World
from laconic.exchange import Op
from laconic.planning.link import Line
from laconic.planning.surroundings import STARTING, STRAY, Cadence, Surroundings, bounded, slowdown
from laconic.stats import BucketTrace, StepTrace, Transfer

AROUND = Surroundings(World(size=2), {(op, scope): (Line(1e-3, 1e-8),) for op in Op for scope in Scope})
LAYERS = (Layer("a", (1000, 250)), Layer("b", (1000, 250)))


def bucket(
    names: tuple[str, ...], ready: float, began: float, ended: float, work: tuple[tuple[float, float], ...] = ()
) -> BucketTrace:
    return BucketTrace(names, ready, (Transfer(Op.SUM, Scope.WORLD, 1_000_000, began, ended),), work)


def step(number: int, *buckets: BucketTrace, began: float = 0.0, reduced: float = 1.0, ended: float = 1.1) -> StepTrace:
    return StepTrace(number, "plan", began, reduced, ended, buckets)


def test_ready_counts_from_the_forward_pass_without_the_exchange_before_it() -> None:
    """The second bucket was ready at 0.5. For 0.1 of it the backward pass had half a core, and it lost what it takes a
    core to start the first bucket's collective and to handle its bytes, of which half were sent by then."""
    handling = 4e-8  # 1 MB in a sum over two ranks takes 0.04 s of a core
    around = replace(AROUND, handling=handling)
    one = step(0, bucket(("b",), 10.2, 10.3, 10.7, ((10.2, 10.3),)), bucket(("a",), 10.5, 10.5, 10.9), began=10.0)
    cadence = Cadence.of([one], around)
    assert cadence is not None
    assert cadence.groups == (("b",), ("a",))
    assert cadence.ready == pytest.approx((0.2, 0.5 - 0.05 - STARTING - 0.5 * handling * 1e6))


def test_the_exchange_takes_no_more_than_half_of_the_time_after_the_first_bucket() -> None:
    """Handling as a survey in a busy moment has it: a core's 2 s for what was sent in 0.3."""
    one = step(0, bucket(("b",), 0.2, 0.2, 0.5), bucket(("a",), 0.5, 0.5, 0.9))
    cadence = Cadence.of([one], replace(AROUND, handling=2e-6))
    assert cadence is not None
    assert cadence.ready == pytest.approx((0.2, 0.5 - 0.15))


def test_with_two_cores_the_exchange_holds_nothing_up() -> None:
    one = step(0, bucket(("b",), 0.2, 0.3, 0.7, ((0.2, 0.3),)), bucket(("a",), 0.5, 0.5, 0.9))
    cadence = Cadence.of([one], replace(AROUND, handling=4e-8, cores=2.0))
    assert cadence is not None
    assert cadence.ready == pytest.approx((0.2, 0.5))


def test_buckets_of_before_ddps_rebuild_are_left_out() -> None:
    old = step(0, bucket(("a", "b"), 0.9, 0.9, 1.0))
    new = [step(i, bucket(("b",), 0.1 * i, 0.5, 0.6), bucket(("a",), 0.5, 0.6, 0.7)) for i in (1, 2, 3)]
    cadence = Cadence.of([old, *new], AROUND)
    assert cadence is not None
    assert cadence.ready == pytest.approx((0.1, 0.5))  # quick steps tell: neighbours only ever make them longer
    profile = cadence.profile(LAYERS, AROUND)
    assert [layer.name for layer in profile.trace.layers] == ["b", "a"]
    assert profile.trace.after == pytest.approx(0.1)


def test_steps_that_were_not_traced_tell_nothing() -> None:
    assert Cadence.of([step(0)], AROUND) is None
    assert slowdown([step(0)], AROUND) is None


def test_a_link_at_half_the_rate_takes_twice_as_long_for_a_byte() -> None:
    """1 MB takes 1 ms of latency and 10 ms at the surveyed rate."""
    usual = step(0, bucket(("a",), 0.0, 0.0, 0.011))
    assert slowdown([usual], AROUND) == pytest.approx(1.0)
    halved = step(0, bucket(("a",), 0.0, 0.0, 0.021))
    assert slowdown([halved], AROUND) == pytest.approx(2.0)
    assert slowdown([halved], AROUND.slower(2.0)) == pytest.approx(1.0)


def test_a_message_that_waits_for_another_is_counted_from_its_end() -> None:
    both = step(0, bucket(("b",), 0.0, 0.0, 0.011), bucket(("a",), 0.0, 0.0, 0.022))
    assert slowdown([both], AROUND) == pytest.approx(1.0)


def test_a_rank_that_is_late_now_and_then_does_not_slow_the_link() -> None:
    steps = [step(i, bucket(("a",), 0.0, 0.0, 0.011 + late)) for i, late in enumerate((0.3, 0.0, 0.2))]
    assert slowdown(steps, AROUND) == pytest.approx(1.0)


def test_only_what_goes_between_machines_tells_of_the_link_between_them() -> None:
    machines = replace(AROUND, world=World(size=4, node_size=2))
    waited = Transfer(Op.SCATTER, Scope.NODE, 1_000_000, 0.0, 0.5)
    across = Transfer(Op.GATHER, Scope.ACROSS, 1_000_000, 0.5, 0.521)
    steps = [step(0, BucketTrace(("a",), 0.0, (waited, across), ()))]
    assert slowdown(steps, machines) == pytest.approx(2.0)
    assert slowdown([step(0, BucketTrace(("a",), 0.0, (waited,), ()))], machines) is None
    slower = machines.slower(2.0).links
    assert slower[Op.GATHER, Scope.ACROSS][0].beta == pytest.approx(2e-8)
    assert slower[Op.GATHER, Scope.NODE] == machines.links[Op.GATHER, Scope.NODE]


def test_what_dense_takes_is_the_links_word() -> None:
    assert AROUND.dense_seconds(LAYERS) == pytest.approx(1e-3 + 1e-8 * 2_000_000)


def test_buckets_are_worth_cutting_where_a_piece_takes_longer_than_waking_for_it() -> None:
    assert not AROUND.worth_cutting(LAYERS)  # 21 ms in all, in five pieces
    assert AROUND.slower(2.0).worth_cutting(LAYERS)


def test_a_gather_that_finds_everything_there_does_not_make_the_link_quicker() -> None:
    """The rank that comes last has the others' messages at once."""
    steps = [
        step(i, BucketTrace(("a",), 0.0, (Transfer(Op.GATHER, Scope.WORLD, 1_000_000, 0.0, ended),), ()))
        for i, ended in enumerate((0.011, 0.001, 0.011))
    ]
    assert slowdown(steps, AROUND) == pytest.approx(1.0)


@pytest.mark.parametrize(("slow", "found"), [(9.5, 20 - STRAY / 5e-3), (20.0, 20.0), (54.0, 20 + STRAY / 5e-3)])
def test_a_sounding_bounds_what_the_messages_of_steps_tell(slow: float, found: float) -> None:
    """504 096 bytes more take 5 ms on the surveyed link, and 100 ms now, give or take what busy cores add."""
    sounding = ((4096, 0.003), (504_096, 0.103))
    assert bounded(slow, sounding, AROUND) == pytest.approx(found)


def test_without_two_sizes_a_sounding_tells_nothing() -> None:
    assert bounded(3.0, (), AROUND) is None
    assert bounded(3.0, ((4096, 0.1),), AROUND) is None
    silent = replace(AROUND, links={key: (Line(1e-3, 0.0),) for key in AROUND.links})
    assert bounded(3.0, ((4096, 0.001), (65536, 0.002)), silent) is None


@pytest.mark.parametrize(
    "line",
    [
        Line(1e-3, 1e-8),
        Line(0.0, 1e-8, points=((1e6, 1e-2),)),
        Line(0.0, 1e-8, points=((1e3, 1e-4), (1e5, 1e-4), (1e6, 8e-3))),  # the first bytes pass at once
    ],
)
def test_on_a_slower_link_every_byte_takes_longer_and_the_longest_message_as_many_times(line: Line) -> None:
    slow, longest = line.slower(20), line.points[-1][0] if line.points else 1e6
    start = line.alpha if len(line.points) != 3 else line.points[0][1]
    assert slow.seconds(longest) == pytest.approx(start + 20 * (line.seconds(longest) - start))
    for one in (point[0] for point in line.points):
        assert slow.seconds(one) - line.seconds(one) >= 0.99 * 19 * (line.seconds(longest) - start) * one / longest
    assert line.slower(1).points == line.points
