"""The handle: what a user holds after attach."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from laconic.compressors import Dense
from laconic.control import checkpoint
from laconic.control.agreement import agree
from laconic.control.controller import Controller
from laconic.control.history import Change
from laconic.control.record import Recorder
from laconic.errors import LaconicError, StateError
from laconic.integrations.report import report
from laconic.integrations.show import table
from laconic.plan import Plan
from laconic.policies.notes import as_tensors, from_tensors
from laconic.policies.policy import Policy
from laconic.policies.static import Static
from laconic.runtime.engine import Engine
from laconic.stats import Stats

log = logging.getLogger(__name__)


class Handle:
    """One model's compression: what it does now, what it did, and its state.

    Nothing has to be called in the training loop. In a loop of your own that never calls the DDP model's forward,
    `control()` between steps keeps plan changes off the backward pass.
    """

    def __init__(self, engine: Engine, controller: Controller, policy: Policy, recorder: Recorder) -> None:
        self._engine, self._controller, self._policy, self._recorder = engine, controller, policy, recorder

    @property
    def plan(self) -> Plan:
        """The compressor of each layer."""
        assert self._engine.plan is not None
        return self._engine.plan

    @property
    def policy(self) -> Policy:
        """What decides the plan."""
        return self._policy

    @property
    def steps(self) -> int:
        """Reductions completed since the start, over resumes."""
        return self._engine.observer.steps

    @property
    def history(self) -> Sequence[Change]:
        """Every change of plan, with its step, its reason, what it promised and what came of it."""
        return tuple(self._controller.history)

    def stats(self) -> Stats:
        """Bytes, ratio, error, residual, times and the learning rate, for each layer and in all."""
        return self._controller.stats()

    def report(self) -> str:
        """What was chosen for which layers and why, what was expected, and what was measured, in plain words."""
        return report(self.plan, self.stats(), self._policy, self.history)

    def control(self) -> None:
        """The control step. It runs by itself at each forward pass; calling it more often does no harm."""
        self._controller.tick()

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, tensors and plain values: `torch.load(weights_only=True)` reads it. Save every rank's."""
        state: dict[str, Any] = {
            "laconic_state": checkpoint.VERSION,
            "rank": self._engine.comm.world.rank,
            "world_size": self._engine.comm.world.size,
            "step": self.steps,
            "plan": self.plan.to_json(),
            "layers": self._engine.ledger.state_dict(),
            "policy": dict(self._policy.state_dict()),
            "underway": as_tensors(self._controller.state_dict()),
        }
        return {**state, "digest": checkpoint.digest(state)}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
        """Go on from a state: this rank's own, or, from a world of another size, the list of every rank's.

        Every rank must call this; they compare what they load. Returns in words what was done. From another world size
        old rank q's residual goes to rank q modulo the new size, so their sum is kept.
        """
        return self._resume(lambda: [state] if isinstance(state, Mapping) else list(state))

    def _resume(self, read: Callable[[], Sequence[Mapping[str, Any]]]) -> str:
        """Read, compare and go on; where one rank cannot, none does."""
        states, mine, plan, failure = [], [], Plan({}), None
        try:
            states = list(read())
            mine = self._own(states)
            plan = Plan.from_json(states[0]["plan"], "the state's plan").resolve(list(self._engine.layers.values()))
            found = f"step {states[0]['step']} of a world of {states[0]['world_size']}"
        except LaconicError as error:
            failure, found = error, f"none that can be loaded: {error}"
        try:
            agree(self._engine.comm, {"checkpoint": found, "checkpoint's plan": plan.to_json()})
        finally:
            if failure is not None:
                raise failure from None
        world, saved = self._engine.comm.world, int(states[0]["world_size"])
        self._engine.adopt(plan)
        known = mine if saved == world.size else states
        self._engine.ledger.load([one["layers"] for one in known], [one["layers"] for one in mine])
        self._engine.observer.steps = int(states[0]["step"])
        self._policy.load_state_dict(states[0]["policy"])
        if saved == world.size and "underway" in mine[0]:  # another world's sums are of other ranks
            self._controller.load_state_dict(from_tensors(mine[0]["underway"]))
        done = f"resumed at step {self.steps}"
        if saved != world.size:
            ranks = ", ".join(str(one["rank"]) for one in mine) or "none"
            done += f" from a world of {saved} in one of {world.size}: this rank holds the residuals of rank {ranks}"
        log.info("%s", done)
        return done

    def _own(self, states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Which of these states this rank takes over; StateError where they do not fit it."""
        for index, one in enumerate(states):
            checkpoint.check(one, "the state" if len(states) == 1 else f"state {index}")
            self._engine.ledger.check(one["layers"])
        world, saved = self._engine.comm.world, int(states[0]["world_size"])
        if saved == world.size:
            mine = [one for one in states if int(one["rank"]) == world.rank]
            if not mine:
                raise StateError(
                    f"this is rank {world.rank}, and the state is rank {states[0]['rank']}'s: load its own"
                )
            return mine
        if len(states) != saved:
            raise StateError(
                f"the state is of a world of {saved} and this one has {world.size}: "
                f"load the list of all {saved} ranks' states, so that no residual is lost"
            )
        return checkpoint.shares(states, world.rank, world.size)

    def save(self, folder: str | Path) -> Path:
        """Write this rank's state into a folder; every rank calls it. A save that is cut short leaves the old file."""
        return checkpoint.write(folder, self.state_dict())

    def load(self, folder: str | Path) -> str:
        """Go on from a folder that `save` wrote, also at another world size; says what it did."""
        world = self._engine.comm.world
        return self._resume(lambda: checkpoint.read(folder, world.rank, world.size))

    def detach(self) -> str:
        """From the next step on send everything as it is, what is still unsent included; the closing report.

        DDP cannot unregister a hook, so the engine stays, with an all-dense plan.
        """
        report = str(self)
        self._controller.stop()
        self._engine.adopt(Static(Dense()).start(list(self._engine.layers.values()), self._engine.comm.world))
        self._recorder.close()
        return report

    def __str__(self) -> str:
        return table(self.plan, self.stats(), self._engine.comm.world, self._policy)
