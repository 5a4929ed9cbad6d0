"""Mixed plans over several buckets: what a step promises whatever the plan says."""

from collections import Counter, defaultdict

import pytest
import torch

from laconic import Hierarchical, Plan, PowerSGD, Quantize, TopK
from laconic.comm.loopback import Loopback
from laconic.exchange import Op
from laconic.layer import Layer
from laconic.runtime import packing
from laconic.runtime.buffers import GRAIN
from laconic.runtime.talk import SHORT
from tests.contract.conversation import UNIT
from tests.engine.fleet import Fleet, Recording, same_bits, same_ledgers
from tests.engine.model import BUCKETS, LAYERS, MIXED, OTHER

WORLDS = ((1, 1), (2, 1), (3, 1), (4, 2))
DENSE = Plan({})


class Books:
    """What went in and what came out, by layer."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.steps = fleet, 0
        self.balance = {name: torch.zeros(layer.numel, dtype=torch.float64) for name, layer in fleet.layers.items()}
        self.largest = dict.fromkeys(fleet.layers, 0.0)
        self.narrow = {  # layers whose sums were ever made in 16 bits
            name for name, layer in fleet.layers.items() if layer.dtype.itemsize == 2
        }

    def step(self, seed: int) -> None:
        gradients = self.fleet.gradients(seed)
        means = self.fleet.step(gradients, BUCKETS)
        self.steps += 1
        for name, layer in self.fleet.layers.items():
            for rank, other in enumerate(means):
                assert same_bits(other[name], means[0][name]), f"rank {rank} was given another mean of {name}"
            given = sum(own[name].flatten().double() for own in gradients) / self.fleet.size
            self.balance[name] += given - means[0][name].double()
            seen = [*(own[name].abs().max() for own in gradients), self.fleet.mean_residual(name).abs().max()]
            self.largest[name] = max(self.largest[name], self.fleet.size * float(max(seen)))
            plan = self.fleet.engines[0].plan
            assert plan is not None
            if any(leg.op is Op.SUM and leg.dtype.itemsize == 2 for leg in plan[name].legs(layer, self.world)):
                self.narrow.add(name)

    @property
    def world(self) -> "object":
        return self.fleet.engines[0].comm.world

    def check(self, stored: float = 0.0) -> None:
        """Nothing was lost but to rounding (see conversation.py); `stored` is the unit of a narrower residual."""
        for name, balance in self.balance.items():
            unit = 8 * (self.fleet.size + 4) * UNIT * max(1, balance.numel()) ** 0.5 + stored
            if name in self.narrow:
                unit += self.fleet.size * 2.0**-8
            gap = float((balance - self.fleet.mean_residual(name)).abs().max())
            assert gap <= self.steps * unit * self.largest[name], name


@pytest.mark.parametrize("commit", ["step", "bucket"])
@pytest.mark.parametrize(("size", "node_size"), WORLDS)
def test_a_mixed_plan_conserves_and_agrees(size: int, node_size: int, commit: str) -> None:
    with Fleet(LAYERS, MIXED, size, node_size, commit=commit) as fleet:
        books = Books(fleet)
        for step in range(8):
            books.step(step)
        books.check()


@pytest.mark.parametrize("commit", ["step", "bucket"])
def test_a_change_of_plan_loses_nothing(commit: str) -> None:
    with Fleet(LAYERS, MIXED, 4, 2, commit=commit) as fleet:
        books = Books(fleet)
        for step, plan in enumerate((MIXED, OTHER, DENSE, MIXED, OTHER, OTHER, DENSE)):
            fleet.adopt(plan)
            books.step(2 * step)
            books.step(2 * step + 1)
            books.check()
        for name in fleet.layers:
            assert not fleet.mean_residual(name).any(), "a dense plan sends what is left"
        assert fleet.engines[0].stats().residual_bytes == 0


def test_going_dense_sends_the_leftover_at_once() -> None:
    layers = (Layer("w", (6, 6)), Layer("v", (6, 6)))
    with Fleet(layers, Plan({"w": TopK(density=0.1)}), 2) as fleet:
        fleet.step(fleet.gradients(0))
        owed = fleet.mean_residual("w")
        fleet.adopt(DENSE)
        zeros = [{name: torch.zeros(6, 6) for name in fleet.layers}] * 2
        means = fleet.step(zeros)
        torch.testing.assert_close(means[0]["w"].double(), owed, rtol=4 * UNIT, atol=0)
        assert not fleet.step(zeros)[0]["w"].any()


def test_another_rank_keeps_the_factors() -> None:
    with Fleet((Layer("w", (12, 10)),), Plan({"w": PowerSGD(rank=2)}), 2) as fleet:
        fleet.step(fleet.gradients(0))
        account = fleet.engines[0].ledger.accounts["w"]
        before = account.warm["q"].clone()
        fleet.adopt(Plan({"w": PowerSGD(rank=4)}))
        assert torch.equal(account.warm["q"][:, :2], before)
        assert account.warm["q"].shape == (12, 4)
        fleet.adopt(Plan({"w": PowerSGD(rank=1)}))
        assert torch.equal(account.warm["q"], before[:, :1])
        assert same_bits(account.warm["q"], fleet.engines[1].ledger.accounts["w"].warm["q"])


@pytest.mark.parametrize(("size", "node_size"), [(3, 1), (4, 2)])
def test_one_collective_for_each_round_op_scope_and_dtype(size: int, node_size: int) -> None:
    comms = [Recording(comm) for comm in Loopback.ranks(size, node_size)]
    with Fleet(LAYERS, MIXED, comms=comms) as fleet:
        for names in BUCKETS:
            for comm in comms:
                comm.started.clear()
            fleet.step(fleet.gradients(0), [names])
            announced = defaultdict(set)
            for name in names:
                plan = fleet.engines[0].plan
                assert plan is not None
                for turn, leg in enumerate(plan[name].legs(fleet.layers[name], comms[0].world)):
                    announced[turn].add((leg.op, leg.scope, leg.dtype))
            for comm in comms:
                counts = Counter(entry[:4] for entry in comm.started)
                assert set(counts.values()) == {1}, "two collectives where one would do"
                for lane, keys in announced.items():
                    assert {key[1:] for key in counts if key[0] == lane} == keys, "the rider went alone"


def test_between_two_ranks_small_sums_go_with_the_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One collective less, and the same bits: of the means, and of what stays behind."""
    told = []
    for along in (0, packing.ALONG):
        monkeypatch.setattr(packing, "ALONG", along)
        comms = [Recording(comm) for comm in Loopback.ranks(2)]
        with Fleet(LAYERS, MIXED, comms=comms) as fleet:
            means = [fleet.step(fleet.gradients(step), BUCKETS) for step in range(3)]
            told.append((len(comms[0].started), means, fleet.engines[0].ledger.state_dict()))
    (apart, means, ledger), (together, same_means, same_ledger) = told
    assert together < apart
    for step, same in zip(means, same_means, strict=True):
        assert all(same_bits(step[0][name], same[0][name]) for name in step[0])
    assert same_ledgers([ledger], [same_ledger])


def test_a_plan_of_dense_layers_is_one_collective_a_bucket() -> None:
    comms = [Recording(comm) for comm in Loopback.ranks(2)]
    with Fleet(LAYERS, DENSE, comms=comms) as fleet:
        for step in range(2):
            fleet.step(fleet.gradients(step), BUCKETS)
        assert [entry[1:4] for entry in comms[0].started] == [(Op.SUM, comms[0].world.scope, torch.float32)] * 6


def test_dense_is_divide_then_sum_to_the_bit() -> None:
    with Fleet(LAYERS, DENSE, 3) as fleet:
        gradients = fleet.gradients(0)
        means = fleet.step(gradients, BUCKETS)
        for name in fleet.layers:
            first, second, third = (own[name].flatten() * (1 / 3) for own in gradients)
            assert same_bits(means[0][name], first + second + third)


def test_regrouping_the_buckets_changes_nothing() -> None:
    """Grouped anew between steps, as DDP does after the first: the same bits and the same books."""
    everything = tuple(name for names in BUCKETS for name in names)
    groupings = ((everything,), BUCKETS, tuple(reversed(BUCKETS)), (everything[:4], everything[4:]))
    with Fleet(LAYERS, MIXED, 4, 2) as steady, Fleet(LAYERS, MIXED, 4, 2) as regrouped:
        for step in range(8):
            gradients = steady.gradients(step)
            ours = steady.step([dict(own) for own in gradients], BUCKETS)
            theirs = regrouped.step(gradients, groupings[step % 4])
            for name in steady.layers:
                assert same_bits(ours[2][name], theirs[2][name])
        assert same_ledgers(steady.ledgers(), regrouped.ledgers())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_gradient_dtypes(dtype: torch.dtype) -> None:
    """The exchange is in float32 and its mean is rounded once more; a dense layer is summed as it is."""
    layers = [Layer(layer.name, layer.shape, dtype) for layer in LAYERS]
    with Fleet(layers, MIXED, 4, 2) as fleet:
        books = Books(fleet)
        for step in range(5):
            books.step(step)
        assert fleet.gradients(0)[0]["scale"].dtype is dtype
        books.check(stored=torch.finfo(dtype).eps / 2)


def test_dtypes_mixed_in_one_model() -> None:
    kinds = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    layers = [Layer(layer.name, layer.shape, kinds[at % 4]) for at, layer in enumerate(LAYERS)]
    single = [[layer.name] for layer in layers]  # a DDP bucket holds one dtype
    with Fleet(layers, MIXED, 2) as fleet:
        gradients = fleet.gradients(0)
        means = fleet.step(gradients, single)
        for name, layer in fleet.layers.items():
            assert means[0][name].dtype is layer.dtype
            assert same_bits(means[0][name], means[1][name])


def test_a_narrow_residual_is_narrow_and_loses_no_more_than_its_rounding() -> None:
    with Fleet(LAYERS, MIXED, 2, residual_dtype=torch.bfloat16) as fleet:
        books = Books(fleet)
        for step in range(8):
            books.step(step)
        accounts = fleet.engines[0].ledger.accounts.values()
        assert {a.residual.dtype for a in accounts if a.residual is not None} == {torch.bfloat16}
        books.check(stored=2.0**-8)


def test_only_compressed_layers_have_a_residual() -> None:
    with Fleet(LAYERS, MIXED, 2) as fleet:
        for step in range(2):
            fleet.step(fleet.gradients(step), BUCKETS)
        stats = fleet.engines[0].stats()
        for name, layer in fleet.layers.items():
            assert stats.layers[name].residual_bytes == (4 * layer.numel if name in MIXED else 0)
    with Fleet(LAYERS, DENSE, 2) as fleet:
        fleet.step(fleet.gradients(0), BUCKETS)
        assert fleet.engines[0].ledger.state_dict() == {}


@pytest.mark.parametrize("commit", ["step", "bucket"])
def test_buffers_are_used_again(commit: str) -> None:
    plan = Plan({name: c for name, c in MIXED.items() if name != "stem.weight"})  # AdaComp's payload follows the data
    with Fleet(LAYERS, plan, 2, commit=commit) as fleet:
        arena, asked, sizes = fleet.engines[0]._arena, [], []
        take = arena.take

        def counted(nbytes: int, device: torch.device) -> torch.Tensor:
            asked.append(-(-max(1, nbytes) // GRAIN) * GRAIN)
            return take(nbytes, device)

        arena.take = counted
        for step in range(30):
            fleet.step(fleet.gradients(step), BUCKETS)
            sizes.append(fleet.engines[0].stats().buffer_bytes)
        # How many buckets are under way at once is up to the threads: at most all of a step's requests, each in a
        # buffer of its own that may be up to twice as large as it must.
        a_step = sum(asked) / len(sizes)
        assert 0 < max(sizes) <= 2 * a_step
        assert min(sizes[2:]) < a_step  # within a step, too


def test_hierarchy_inside_one_machine_or_with_one_rank_on_each() -> None:
    plan = Plan({"w": Hierarchical(Quantize(bits=8), TopK(density=0.2))})
    for size, node_size in ((4, 1), (4, 4), (1, 1)):
        with Fleet((Layer("w", (8, 9)),), plan, size, node_size) as fleet:
            means = fleet.step(fleet.gradients(0))
            assert all(same_bits(mean["w"], means[0]["w"]) for mean in means)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_short_layers_that_are_sent_as_they_are_share_a_conversation_wherever_they_lie(size: int) -> None:
    """A long stretch has its own. Whoever shares, each is given its mean, to rounding."""
    long = Layer("long.weight", (SHORT // 4 + 1,))
    layers = [Layer("a.weight", (16, 12)), Layer("a.bias", (16,)), Layer("b.weight", (12, 16)), Layer("b.bias", (12,)),
              long, Layer("c.weight", (10, 30)), Layer("c.bias", (10,)), Layer("c.scale", (3,))]  # fmt: skip
    plan = Plan({"a.weight": TopK(density=0.1), "b.weight": TopK(density=0.1), "c.weight": TopK(density=0.1)})
    names = [layer.name for layer in layers]
    with Fleet(layers, plan, size) as fleet:
        for step in range(3):
            gradients = fleet.gradients(step)
            means = fleet.step(gradients, [names])
            for name in ("a.bias", "b.bias", "long.weight", "c.bias", "c.scale"):
                total = sum(own[name].flatten() * (1 / size) for own in gradients)
                bound = 2 * size * UNIT * sum(own[name].flatten().abs() for own in gradients) / size
                for own in means:
                    assert bool(((own[name] - total).abs() <= bound).all()), name
        (program,) = fleet.engines[0]._programs.values()
        held = [tuple(layer.name for layer in segment.layers) for segment in program.segments]
        short, neighbours = ("a.bias", "c.bias", "c.scale"), ("b.bias", "long.weight")
        assert held == [("a.weight", "b.weight", "c.weight"), short, neighbours]
