"""The controller: observe, propose (rank 0), publish, check, agree, adopt, record.

It acts between steps only, and steps are counted by completed reductions, which every rank has alike whatever its loop
does: accumulate, skip, or join with uneven inputs. What is proposed after step k travels beside step k+1 on a lane of
its own, and is adopted by all ranks after step k+1, or by none. So no rank ever waits for another outside a reduction:
a blocking collective at the start of a forward pass would deadlock with `join()`, whose early finishers take part in
reductions but never start a forward pass. A reaction needs no word at all: it follows from sums that all ranks hold.
"""

import json
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from laconic.comm.protocol import Comm
from laconic.control import underway
from laconic.control.clock import Clock
from laconic.control.history import Change, History
from laconic.control.record import Recorder
from laconic.control.sounding import sound
from laconic.errors import LaconicError
from laconic.plan import Plan
from laconic.policies.policy import Policy, Proposal
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import PATIENCE
from laconic.stats import Sounding, Stats, StepTrace

log = logging.getLogger(__name__)
LONGEST = 60.0  # seconds that a published plan may be late before a rank says so


@dataclass
class _Errand:
    """Something that all ranks do together beside a step."""

    settled: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


@dataclass
class _Letter(_Errand):
    """A proposal on its way to all ranks."""

    proposal: Proposal | None = None
    refused: str | None = None


@dataclass
class _Lead(_Errand):
    """A sounding of the link."""

    found: Sounding = ()


class Controller:
    """Changes the engine's plan as the policy proposes."""

    def __init__(
        self, engine: Engine, comm: Comm, policy: Policy, recorder: Recorder | None = None,
        learning_rate: Callable[[], float | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._engine, self._comm, self._policy, self._recorder = engine, comm, policy, recorder
        self._learning_rate = learning_rate
        self._history, self._clock = History(), Clock()
        self._timed = (self._plan, self._plan.digest)
        self._seen = -1
        self._stopped = False
        self._join: Callable[[], object] = lambda: None
        self._letter: _Letter | None = None
        self._lead: _Lead | None = None
        self._sounding: Sounding = ()

    @property
    def idle(self) -> bool:
        """Whether nothing is said beside training."""
        return all(errand is None or errand.settled.is_set() for errand in (self._letter, self._lead))

    @property
    def history(self) -> Sequence[Change]:
        """Every change of plan, oldest first."""
        return self._history.changes

    @property
    def _plan(self) -> Plan:
        assert self._engine.plan is not None
        return self._engine.plan

    @property
    def _digest(self) -> str:
        """Of the plan in use; computed once for each, since every step asks."""
        if self._timed[0] is not self._plan:
            self._timed = (self._plan, self._plan.digest)
        return self._timed[1]

    def tick(self) -> None:
        """Do what is due between two steps; cheap when nothing is."""
        if self._policy.period is None or self._stopped:
            return
        steps = self._engine.observer.steps
        if steps == self._seen:
            return
        self._seen = steps
        self._clock.tick(steps, self._digest)
        self._read(steps)
        news, self._engine.observer.tables.news = self._engine.observer.tables.news, {}
        self._adopt(steps, Proposal(*self._policy.react(steps, news, self._plan)))
        if self._policy.due(steps):
            self._close_effect()
            self._propose()
            self._engine.observer.tables.forget()
            self._sounding = ()
        elif self._policy.sounds(steps):
            self._lead = _Lead()
            self._send(self._lead, partial(self._sound, self._lead))
        self._engine.watch(self._policy.watch(steps, self._plan), self._policy.fresh)

    def state_dict(self) -> dict[str, Any]:
        """What is under way, as plain values: a window's statistics, and a proposal that no rank has adopted yet."""
        told = None
        if self._letter is not None:
            self._await(self._letter, self._seen)
            told = None if self._letter.proposal is None else _write(self._letter.proposal)
        return {**underway.packed(self._engine.observer), "proposal": told, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        underway.unpack(state, self._engine.observer)
        for errand in (self._letter, self._lead):  # of the run so far; the next must not overtake it
            if errand is not None:
                self._await(errand, self._seen)
        self._seen, self._letter, self._lead, self._sounding = state["seen"], None, None, ()
        if state["proposal"] is not None:
            self._letter = _Letter(proposal=self._checked(_read(state["proposal"])))
            self._letter.settled.set()
        watched = self._policy.watch(self._seen, self._plan) if self._policy.period is not None else {}
        self._engine.watch(watched, self._policy.fresh)

    def stop(self) -> None:
        """Propose and watch nothing more."""
        self._close_effect()
        self._engine.watch({})
        self._stopped = True

    def stats(self) -> Stats:
        """What the engine counted, with what is known here: times from step to step, and the learning rate."""
        times = self._clock.medians()
        return replace(
            self._engine.stats(), step_s=times.get(self._digest, 0.0), step_times=times,
            learning_rate=self._learning_rate(), recent=self._recent(), sounding=self._sounding,
        )  # fmt: skip

    def _recent(self) -> tuple[StepTrace, ...]:
        """The last steps: the clock's boundaries with what the observer saw between them."""
        seen = {tally.step: tally for tally in self._engine.observer.recent}
        return tuple(
            StepTrace(step, plan, began, seen[step].reduced, ended, tuple(seen[step].buckets), seen[step].core_s)
            for step, plan, began, ended in self._clock.bounds
            if step in seen
        )

    def _propose(self) -> None:
        raw = b""
        if self._comm.world.rank == 0:
            made = Proposal(self._plan, "")
            try:
                made = Proposal(*self._policy.propose(self.stats(), self._plan))
            except LaconicError as error:
                log.warning("the policy could not propose a plan, the old one stays: %s", error)
            raw = _write(made).encode()
        self._letter = _Letter()
        self._send(self._letter, partial(self._publish, self._letter, raw))

    def _send(self, errand: _Errand, act: Callable[[], None]) -> None:
        """Have it done on a thread of its own; the next tick waits for it, so that there is one at a time."""

        def run() -> None:
            try:
                act()
            except Exception as error:
                errand.error = error
            finally:
                errand.settled.set()

        thread = threading.Thread(target=run, name="laconic control", daemon=True)
        thread.start()
        self._join()
        self._join = weakref.finalize(self, thread.join, PATIENCE)  # see runtime/rounds.py: not at exit in torch

    def _publish(self, letter: _Letter, raw: bytes) -> None:
        """Rank 0's proposal to everyone, and everyone's consent back."""
        size = int(self._comm.broadcast(torch.tensor([len(raw)])))
        text = torch.zeros(size, dtype=torch.uint8)
        if self._comm.world.rank == 0:
            text = torch.frombuffer(bytearray(raw), dtype=torch.uint8).clone()
        received = bytes(self._comm.broadcast(text).tolist()).decode()
        fine = 1
        try:
            letter.proposal = self._checked(_read(received))
        except LaconicError as error:
            fine, letter.refused = 0, str(error)
        votes = self._comm.gather(torch.tensor([fine])).flatten().tolist()
        if not all(votes):
            letter.proposal = None
            letter.refused = letter.refused or f"rank {votes.index(0)} refused the plan"

    def _sound(self, lead: _Lead) -> None:
        lead.found = sound(self._comm)

    def _checked(self, proposal: Proposal) -> Proposal:
        plan = proposal.plan.resolve(list(self._engine.layers.values()))
        self._engine.depth(plan)
        return proposal._replace(plan=plan)

    def _await(self, errand: _Errand, steps: int) -> None:
        what = "plan published" if isinstance(errand, _Letter) else "sounding begun"
        while not errand.settled.wait(LONGEST):
            log.warning("step %d: the %s after the last step has not arrived yet", steps, what)

    def _read(self, steps: int) -> None:
        """Take what all ranks did beside the last step."""
        letter, lead = self._letter, self._lead
        self._letter = self._lead = None
        for errand in (letter, lead):
            if errand is not None:
                self._await(errand, steps)
                if errand.error is not None:
                    raise errand.error
        if lead is not None:
            self._sounding = lead.found
        if letter is None:
            return
        if letter.proposal is None:
            log.warning("step %d: the old plan stays: %s", steps, letter.refused)
            return
        if letter.proposal.notes:
            self._policy.take_notes(letter.proposal.notes)
        self._adopt(steps, letter.proposal)

    def _adopt(self, steps: int, proposal: Proposal) -> None:
        """Use a plan from now on and write it down, unless it is the one in use."""
        plan, before = proposal.plan, self._plan
        changed = {} if plan is before else {n: (str(a), str(b)) for n, (a, b) in before.diff(plan).items()}
        if not changed and plan.waits == before.waits:
            return
        self._close_effect()
        self._engine.adopt(plan)
        self._clock.change()
        world = self._comm.world
        nbytes = sum(plan[name].wire_bytes(layer, world) for name, layer in self._engine.layers.items())
        change = Change(steps, plan, changed, proposal.why, {"bytes": float(nbytes), **proposal.predicted})
        self._history.add(change, self._engine.stats())
        if self._recorder is not None:
            self._recorder.change(change)
        log.info("step %d: %d layers change: %s", steps, len(changed), proposal.why)

    def _close_effect(self) -> None:
        """Write down what came of the last change."""
        change = self._history.close(self.stats())
        if change is not None and self._recorder is not None:
            self._recorder.effect(change)


def _write(proposal: Proposal) -> str:
    """A proposal as text; `_read` is its inverse."""
    plan, why, notes, predicted = proposal
    content: Mapping[str, Any] = {
        "why": why,
        "plan": plan.to_json(),
        "reasons": plan.why,
        "notes": dict(notes),
        "predicted": dict(predicted),
    }
    return json.dumps(content)


def _read(text: str) -> Proposal:
    content = json.loads(text)
    plan = Plan(Plan.from_json(content["plan"]), content["reasons"])
    return Proposal(plan, content["why"], content["notes"], content["predicted"])
