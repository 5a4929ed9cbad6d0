"""The controller: observe, propose (rank 0), publish, check, agree, adopt, record.

It acts between steps only, and steps are counted by completed reductions, which every rank has alike whatever its loop
does: accumulate, skip, or join with uneven inputs. What is proposed after step k travels beside step k+1 on a lane of
its own, and is adopted by all ranks after step k+1, or by none. So no rank ever waits for another outside a reduction:
a blocking collective at the start of a forward pass would deadlock with `join()`, whose early finishers take part in
reductions but never start a forward pass.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from laconic.comm.protocol import Comm
from laconic.errors import LaconicError
from laconic.plan import Plan
from laconic.policies.policy import Policy
from laconic.runtime.engine import Engine
from laconic.runtime.rounds import PATIENCE

log = logging.getLogger(__name__)
LONGEST = 60.0  # seconds that a published plan may be late before a rank says so


@dataclass(frozen=True)
class Change:
    """A plan that was adopted: before which step, what changed, and why."""

    step: int
    plan: Plan
    changed: dict[str, tuple[str, str]]
    why: str


@dataclass
class _Proposal:
    """A plan on its way to all ranks."""

    settled: threading.Event = field(default_factory=threading.Event)
    plan: Plan | None = None
    why: str = ""
    refused: str | None = None
    error: Exception | None = None


class Controller:
    """Changes the engine's plan as the policy proposes."""

    def __init__(self, engine: Engine, comm: Comm, policy: Policy) -> None:
        self.history: list[Change] = []
        self._engine, self._comm, self._policy = engine, comm, policy
        self._seen = 0
        self._stopped = False
        self._errand: Callable[[], object] = lambda: None
        self._proposal: _Proposal | None = None

    def tick(self) -> Change | None:
        """Do what is due between two steps; cheap when nothing is. The change that took effect, if one did."""
        steps = self._engine.observer.steps
        if steps == self._seen or self._policy.period is None or self._stopped:
            return None
        self._seen = steps
        change = self._adopt(steps)
        if steps % self._policy.period == 0:
            self._propose()
        return change

    def stop(self) -> None:
        """Propose nothing more."""
        self._stopped = True

    def _propose(self) -> None:
        plan, why = self._engine.plan, ""
        assert plan is not None
        if self._comm.world.rank == 0:
            try:
                plan, why = self._policy.propose(self._engine.stats(), plan)
            except LaconicError as error:
                log.warning("the policy could not propose a plan, the old one stays: %s", error)
        self._proposal = _Proposal()
        errand = threading.Thread(
            target=self._publish, args=(self._proposal, plan, why), name="laconic control", daemon=True
        )
        errand.start()
        self._errand()
        self._errand = weakref.finalize(self, errand.join, PATIENCE)  # see runtime/rounds.py: not at exit in torch

    def _publish(self, proposal: _Proposal, plan: Plan, why: str) -> None:
        """On a thread of its own: rank 0's plan to everyone, and everyone's consent back."""
        try:
            raw = (why.replace("\n", " ") + "\n" + plan.to_json()).encode()
            size = int(self._comm.broadcast(torch.tensor([len(raw)])))
            text = torch.zeros(size, dtype=torch.uint8)
            if self._comm.world.rank == 0:
                text = torch.frombuffer(bytearray(raw), dtype=torch.uint8).clone()
            received = bytes(self._comm.broadcast(text).tolist()).decode()
            proposal.why, _, content = received.partition("\n")
            fine = 1
            try:
                proposal.plan = Plan.from_json(content).resolve(list(self._engine.layers.values()))
                self._engine.depth(proposal.plan)
            except LaconicError as error:
                fine, proposal.refused = 0, str(error)
            votes = self._comm.gather(torch.tensor([fine])).flatten().tolist()
            if not all(votes):
                proposal.plan = None
                proposal.refused = proposal.refused or f"rank {votes.index(0)} refused the plan"
        except Exception as error:
            proposal.error = error
        finally:
            proposal.settled.set()

    def _adopt(self, steps: int) -> Change | None:
        proposal, self._proposal = self._proposal, None
        if proposal is None:
            return None
        while not proposal.settled.wait(LONGEST):
            log.warning("step %d: the plan published after the last step has not arrived yet", steps)
        if proposal.error is not None:
            raise proposal.error
        before = self._engine.plan
        assert before is not None
        if proposal.plan is None:
            log.warning("step %d: the old plan stays: %s", steps, proposal.refused)
            return None
        changed = {name: (str(a), str(b)) for name, (a, b) in before.diff(proposal.plan).items()}
        if not changed:
            return None
        self._engine.adopt(proposal.plan)
        change = Change(steps, proposal.plan, changed, proposal.why)
        self.history.append(change)
        log.info("step %d: %d layers change: %s", steps, len(changed), proposal.why)
        return change
