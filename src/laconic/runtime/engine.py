"""The engine: gradients in by name, their means out, by the plan of the day.

It knows nothing of DDP, and serves anything that can hand it named flat tensors in the same order on every rank.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from time import perf_counter

import torch
from torch import Tensor

from laconic.comm.protocol import Comm
from laconic.errors import ExchangeFailed, InvalidConfig
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.runtime.bucket import Bucket, Fault
from laconic.runtime.buffers import Arena, Lease, Window
from laconic.runtime.by_heart import ByHeart, Score, learn
from laconic.runtime.ledger import Ledger
from laconic.runtime.observer import Observer, StepTally
from laconic.runtime.packing import side_by_side
from laconic.runtime.rounds import Rounds, Word
from laconic.runtime.straight import Straight
from laconic.runtime.talk import Segment, Twins, in_few
from laconic.runtime.watch import Watch
from laconic.stats import Stats

LONGEST = 60.0  # seconds that a change of plan waits for the step before it

Future = torch.futures.Future[Tensor]


@dataclass
class _Program:
    """What is known of a bucket, or of some that travel together, from step to step."""

    names: tuple[str, ...]
    segments: list[Segment]
    cuts: list[Mapping[str, Tensor]]  # the buckets
    slices: Mapping[str, Tensor]  # all of them
    weight: int  # bytes
    score: Score | None = None  # what is said, where that is the same in every step
    learnt: bool = False
    busy: bool = False


@dataclass
class _Arrival:
    """A bucket that has been handed over, and how its mean is told."""

    slices: Mapping[str, Tensor]
    result: Tensor
    twins: Twins | None
    label: str
    future: Future
    ready: float


class Engine:
    """Reduces buckets of gradients.

    `commit="step"` ends all buckets of a step together, once every rank is known to have seen finite values only; then
    a step with a NaN or Inf anywhere leaves no trace. `commit="bucket"` ends each as it arrives: the last bucket's
    decoding is all that backward waits for, and a bad value undoes the buckets that hold it.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        comm: Comm,
        rounds: Rounds,
        *,
        residual_dtype: torch.dtype = torch.float32,
        commit: str = "step",
        seed: int = 0,
        on_step: Callable[[StepTally], None] | None = None,
    ) -> None:
        self.layers = {layer.name: layer for layer in layers}
        self.comm, self.commit = comm, commit
        self.ledger = Ledger(layers, comm.world, residual_dtype, seed)
        self._observer = Observer(layers, comm.world, on_step)
        self.plan: Plan | None = None
        self._rounds, self._arena, self._window = rounds, Arena(), Window()
        self._programs: dict[tuple[str, ...], _Program] = {}
        self._watching: Watch = {}
        self._fresh = False
        self._stages = 0
        self._together: list[_Arrival] = []  # buckets that travel with the next
        self._waiting: list[tuple[Bucket, _Program, list[_Arrival], bool]] = []
        self._held: list[tuple[Bucket, _Program, list[_Arrival]]] = []
        self._fault = Fault()
        self._idle = threading.Event()
        self._idle.set()
        through = None if on_step is None else self._settle  # who listens, hears of a step when it ends
        self._straight = Straight(comm, self.ledger, self._fault, self._idle, through)
        self._as_is: bool | None = None  # whether the plan, and what is pending, allow it; None: not known yet
        self._open = self._passing = False  # a step is under way; it, or the last one, goes straight through

    @property
    def observer(self) -> Observer:
        """What happened, all completed steps included."""
        self._settle()
        return self._observer

    @property
    def idle(self) -> bool:
        """Whether no step is under way."""
        return self._idle.is_set() and self._fault.error is None

    def depth(self, plan: Plan) -> int:
        """The rounds that a plan needs; InvalidConfig where there are not so many lanes."""
        world = self.comm.world
        depth = max((len(plan[name].legs(layer, world)) for name, layer in self.layers.items()), default=1)
        if depth > self.comm.lanes:
            raise InvalidConfig("plan", f"{depth} rounds", f"attach with lanes={depth}; there are {self.comm.lanes}")
        return depth

    def adopt(self, plan: Plan) -> None:
        """Use another plan from the next step on. Only between steps; residuals stay, warm state is handed on."""
        depth = self.depth(plan)
        if not self._idle.wait(LONGEST):
            raise ExchangeFailed(f"step {self._observer.steps} has not ended: adopt a plan between steps")
        self._settle()
        self.ledger.adopt(plan, self.plan)
        self._observer.forget(list(plan.diff(self.plan)) if self.plan is not None else [])
        self.plan, self._programs = plan, {}
        self._waits = plan.waits if not all(one.lossless for one in plan.values()) else frozenset()
        self._as_is = None
        self._stages = depth
        self._rounds.resize(depth + 1)

    def watch(self, what: Watch, fresh: bool = False) -> None:
        """Measure in the next steps what these compressors would leave of these layers; alike on every rank.

        With `fresh`, of their gradients alone, whatever waits from earlier steps.
        """
        self._watching, self._fresh = what, fresh

    def reduce_whole(self, names: tuple[str, ...], buffer: Tensor, *, last: bool, label: str) -> Future | None:
        """`reduce` for layers that lie side by side in a buffer, the short way; None where only `reduce` will do.

        Which it is, is decided for a whole step at its first bucket. Were ranks ever to decide differently, still
        nothing would mix: both ways start the same sums on lane 0 in the order of the calls. Raises ExchangeFailed
        where the sum cannot be started.
        """
        if self._fault.error is not None:
            return None
        if not self._open:
            self._begin()
        if not self._passing:
            return None
        self._open = not last
        return self._straight.take(
            names, buffer, last, partial(_where, self.comm.world.rank, self._observer.steps, label)
        )

    def _begin(self) -> None:
        """A step's first bucket is here; a step that goes straight through does not overlap with another."""
        if self._as_is is None:
            assert self.plan is not None, "adopt a plan first"
            self._as_is = self._straight.adopt(self.plan)
        straight = self._as_is and not self._watching and not self._observer.news
        if (straight or self._passing) and not self._idle.wait(LONGEST):
            raise ExchangeFailed(f"step {self._observer.steps} has not ended, and the next one begins")
        self._settle()
        self._open, self._passing = True, straight
        self._idle.clear()

    def _settle(self) -> None:
        """Enter a step that went straight through into the books."""
        tallies = self._straight.ended()
        for tally in tallies:
            self._observer.add(tally)
        if tallies:
            self._arena.close_step()
            self._observer.close_step(max(transfer.ended for tally in tallies for transfer in tally.transfers))

    def reduce(
        self,
        slices: Mapping[str, Tensor],
        result: Tensor,
        *,
        last: bool = True,
        label: str = "bucket",
        twins: Twins | None = None,
    ) -> Future:
        """Replace flat gradients by their mean over all ranks; the future resolves to `result` when they are there.

        `last` closes the step. Every rank must call this for the same layers in the same order. `twins` finds copies of
        gradients that nobody reads any more, for where a step ends as one. A bucket that the plan says waits travels
        with the next one, unless it is the last.
        """
        final = [self.layers[name].name for name in slices][-1]
        future: Future = torch.futures.Future(devices=[result.device] if result.is_cuda else None)
        self._together.append(_Arrival(slices, result, twins, label, future, perf_counter()))
        if self._fault.error is not None:
            together, self._together = self._together, []
            _refuse(together, self._fault.error)
            return future
        if not self._open:
            self._begin()
            self._passing = False
        self._open = not last
        if last or final not in self._waits:
            arrivals, self._together = self._together, []
            self._submit(arrivals, last)
        return future

    def _submit(self, arrivals: list[_Arrival], last: bool) -> None:
        """Send buckets on their way, in one conversation."""
        own = tuple((tuple(one.slices), one.ready) for one in arrivals)
        names = own[0][0] if len(own) == 1 else tuple(name for told, _ in own for name in told)
        program = self._program(names, [one.slices for one in arrivals])
        where = _where(self.comm.world.rank, self._observer.steps, " with ".join(one.label for one in arrivals))
        twins, riding = self._twins(arrivals, last), self._observer.riding(names)
        what = (
            where, program.segments, program.slices, program.weight, own, twins, self._stages, self.comm, self.ledger,
            Lease(self._arena), self._window, riding, self._watching, self._fresh, self._fault, self._ended,
        )  # fmt: skip
        usual = twins not in (None, _no_twin) and not riding and not self._watching and not program.busy
        score = self._score(program) if usual else None
        bucket = Bucket(*what) if score is None else ByHeart(score, *what)
        program.busy = True
        self._idle.clear()
        self._waiting.append((bucket, program, arrivals, last))
        self._rounds.submit(bucket)

    def _program(self, names: tuple[str, ...], cuts: list[Mapping[str, Tensor]]) -> _Program:
        """What is known of these buckets, while they lie where they lay."""
        known = self._programs.get(names)
        if known is not None and all(map(is_, known.cuts, cuts)):
            return known
        slices = cuts[0] if len(cuts) == 1 else dict(item for cut in cuts for item in cut.items())
        segments = self._segments(slices) if known is None else known.segments
        made = _Program(names, segments, cuts, slices, sum(gradient.nbytes for gradient in slices.values()))
        self._programs[names] = made
        return made

    def _score(self, program: _Program) -> Score | None:
        """What is said in every step, learnt once."""
        if not program.learnt:
            program.score = learn(program.segments, program.slices, self.ledger, self.comm.world)
            program.learnt = True
        return program.score

    def _twins(self, arrivals: list[_Arrival], last: bool) -> Twins | None:
        """Where copies of these gradients are."""
        if self.commit == "bucket":
            return None  # it ends at once, and so does a last bucket: neither needs memory for its mean
        known = [one.twins for one in arrivals if one.twins is not None]
        if len(known) < len(arrivals):
            return None if last else _no_twin
        if len(known) == 1:
            return known[0]
        whose = {name: one for one, arrival in zip(known, arrivals, strict=True) for name in arrival.slices}
        return lambda name: whose[name](name)

    def _segments(self, slices: Mapping[str, Tensor]) -> list[Segment]:
        """Which conversations these layers hold. Neighbours in memory that are sent as they are share one; see
        `in_few` for who else does."""
        assert self.plan is not None, "adopt a plan first"
        segments: list[Segment] = []
        for name, gradient in slices.items():
            layer, compressor, account = self.layers[name], self.plan[name], self.ledger.accounts[name]
            keeps = not compressor.lossless or account.residual is not None
            own = Segment.of(layer, compressor, keeps, self.comm.world)
            last = segments[-1] if segments else None
            if last is not None and not keeps and not last.keeps and compressor == last.compressor:
                joined = [slices[other.name] for other in last.layers]
                if side_by_side([*joined, gradient]) is not None:
                    segments[-1] = last.joined(own)
                    continue
            segments.append(own)
        return in_few(segments)

    def _ended(self, bucket: Bucket) -> Word:
        """A bucket has come through its rounds; in the order of `reduce`, on the last stage's thread."""
        waiting, program, arrivals, last = self._waiting.pop(0)
        assert waiting is bucket
        if bucket.error is not None:
            return self._fail(bucket.error, arrivals)
        self._held.append((bucket, program, arrivals))
        try:
            ready = self._finish() if self.commit == "bucket" or last else []
        except Exception as error:
            failure = ExchangeFailed(f"{bucket.label}, ending: {type(error).__name__}: {error}")
            failure.__cause__ = error
            return self._fail(failure, arrivals)
        if last:
            self._arena.close_step()
            self._observer.close_step()
            self._idle.set()
        return partial(_deliver, ready)

    def _finish(self) -> list[_Arrival]:
        """End the buckets that are held; what can be resolved then."""
        held = self._held
        spoiled: float | Tensor = 0.0
        undo = any(bucket.keeps for bucket, _, _ in held)
        for bucket, _, _ in held:
            spoiled = spoiled + bucket.spoiled
            if undo:
                spoiled = spoiled + bucket.spoiled_as_is()
        self._observer.spoil(spoiled)
        for bucket, program, _ in held:
            self._observer.heard(program.names, bucket.shared)
            bucket.finish(spoiled, self._observer.observing, self.ledger.dtype)
            self._observer.add(bucket.tally)
            program.busy = False
            if any(segment.keeps and segment.compressor.lossless for segment in bucket.segments):
                self._programs, self._as_is = {}, None  # what an earlier plan had left has been sent now
        self._held = []  # not before all have ended: a failure resolves them too
        return [one for _, _, arrivals in held for one in arrivals]

    def _fail(self, error: ExchangeFailed, arrivals: Sequence[_Arrival]) -> Word:
        """Nothing more can be exchanged: the order of collectives is no longer known to be the same everywhere."""
        self._fault.error = self._fault.error or error
        held, self._held = self._held, []
        self._idle.set()
        return partial(_refuse, [*(one for _, _, some in held for one in some), *arrivals], error)

    def stats(self) -> Stats:
        """What happened since the start."""
        assert self.plan is not None
        return self.observer.stats(self.plan, self.ledger, self._arena.nbytes)

    def close(self) -> None:
        """Stop the threads; the ledger stays readable."""
        self._rounds.close()
        self._settle()


def _deliver(arrivals: Sequence[_Arrival]) -> None:
    """Tell whoever waits for these that their mean is there."""
    for one in arrivals:
        one.future.set_result(one.result)


def _refuse(arrivals: Sequence[_Arrival], error: ExchangeFailed) -> None:
    """Tell whoever waits for these that there is no mean."""
    for one in arrivals:
        if not one.future.done():
            one.future.set_exception(error)  # type: ignore[arg-type]  # torch's stub says the result's type


def _no_twin(name: str) -> Tensor | None:
    return None


def _where(rank: int, step: int, label: str) -> str:
    return f"rank {rank}, step {step}, {label}"
