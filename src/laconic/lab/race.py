"""Methods side by side over one network: each trains in processes of its own, and they take turns of a few steps.

Turns are short and interleaved, so that whatever else the machine does hurts all alike, and only one method is on the
wire at a time, so that the kernel's counters tell what each sent. A method that crashes or hangs is out, and the race
goes on.
"""

import math
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from laconic.errors import InvalidConfig
from laconic.lab import workloads
from laconic.lab.entrant import Entrant
from laconic.lab.layout import Layout
from laconic.lab.methods import Method
from laconic.lab.network import Network, open_network
from laconic.lab.rates import Schedule
from laconic.lab.team import Team, TeamFailed


@dataclass(frozen=True)
class Course:
    """What is raced: the task, the network and the length."""

    workload: str
    layout: Layout
    rate: Schedule
    methods: tuple[Method, ...]
    steps: int = 60
    seeds: int = 1
    turn: int = 5
    warmup: int = 5  # steps that are trained but not timed
    evaluations: int = 4
    data: str | None = None
    batch: int | None = None  # of each rank; None is the workload's own
    optimizer: str | None = None  # and its learning rate, such as adam:0.001; None is the workload's own
    target_loss: float | None = None
    target_accuracy: float | None = None
    network: str = "auto"
    delay: float = 0.0
    loss: float = 0.0
    patience: float = 120.0  # seconds beyond the expected, after which a silent method counts as hung
    budget: float = math.inf  # seconds from the start, after which the present round is the last

    def __post_init__(self) -> None:
        workload = workloads.find(self.workload)
        if self.optimizer is not None:
            workload.trained_with(self.optimizer)
        for key, least in (("steps", 1), ("seeds", 1), ("turn", 1), ("warmup", 0), ("evaluations", 0)):
            if getattr(self, key) < least:
                raise InvalidConfig(key, getattr(self, key), f"choose {least} or more")
        if self.steps <= self.warmup:
            raise InvalidConfig("steps", self.steps, f"choose more than the {self.warmup} steps of warm-up")
        if self.batch is not None and self.batch < 1:
            raise InvalidConfig("batch", self.batch, "choose 1 or more")
        if not self.patience >= 1.0:
            raise InvalidConfig("patience", self.patience, "choose at least one second")
        if not 0.0 <= self.delay < 10.0:
            raise InvalidConfig("delay", self.delay, "choose from 0 to 10 seconds")
        if not 0.0 <= self.loss < 1.0:
            raise InvalidConfig("loss", self.loss, "choose a fraction from 0 to 1")
        if self.data is not None:
            workloads.find(self.workload).data(self.data)  # a file that cannot be read is found before the race


Watch = Callable[[list[Entrant]], None]


def _silent(entrants: list[Entrant]) -> None:
    pass


class Race:
    """Runs a course; the entrants hold what came out."""

    def __init__(self, course: Course, watch: Watch = _silent) -> None:
        self.course, self.watch = course, watch
        self.entrants: list[Entrant] = []
        self.teams: dict[Method, Team] = {}  # the processes of the seed under way
        self.network_kind = course.network
        self._end = math.inf
        self.load = 0.0  # what else the machine was doing when the race began: its load average

    def run(self) -> list[Entrant]:
        """Race every seed. Whatever happens, workers and network are gone afterwards."""
        course = self.course
        network = open_network(course.layout, course.rate.at(0), course.network, delay=course.delay, loss=course.loss)
        self.network_kind = network.kind
        self.load = os.getloadavg()[0]
        self._end = time.monotonic() + course.budget
        try:
            for seed in range(course.seeds):
                self._heat(network, seed)
        finally:
            network.close()
        return self.entrants

    def _heat(self, network: Network, seed: int) -> None:
        heat = [Entrant(method, seed, self.course.steps) for method in self.course.methods]
        self.entrants += heat
        try:
            for index, entrant in enumerate(heat):
                if entrant.method.ours and seed == 0:
                    entrant.record = tempfile.TemporaryFile()  # noqa: SIM115  (read after the race)
                port = _port(network, seed * len(heat) + index)
                self.teams[entrant.method] = Team(network, port, passed=entrant.record)
            for entrant in heat:
                self._prepare(network, entrant)
            self._turns(network, heat)
            for entrant in heat:
                if entrant.status == "running":
                    self._attempt(entrant, self._finish)
        finally:
            for team in self.teams.values():
                team.close()
            self.teams.clear()

    def _attempt(self, entrant: Entrant, act: Callable[[Entrant], None]) -> None:
        """Let an entrant act; one that fails is out of the race."""
        try:
            act(entrant)
        except TeamFailed as failure:
            entrant.status, entrant.failure = failure.kind, failure.detail
            self.teams[entrant.method].close()
        self.watch(self.entrants)

    def _prepare(self, network: Network, entrant: Entrant) -> None:
        """Build the model and install the method, one entrant after the other: some measure the network here."""
        course = self.course
        order = {
            "do": "prepare",
            "workload": course.workload,
            "method": entrant.method.name,
            "seed": entrant.seed,
            "data": course.data,
            "batch": course.batch,
            "optimizer": course.optimizer,
            "timeout": course.patience,
            "record": f"/dev/fd/{entrant.record.fileno()}" if entrant.record else None,
            "paced": network.kind == "paced",
            "rate": course.rate.at(0).bits or 0,
        }

        def prepare(entrant: Entrant) -> None:
            team = self.teams[entrant.method]
            team.hear(course.patience, "starting")
            start = time.monotonic()
            entrant.parameters = team.ask(order, course.patience)[0]["parameters"]
            entrant.prepare_seconds = time.monotonic() - start
            entrant.status = "running"

        self._attempt(entrant, prepare)

    def _turns(self, network: Network, heat: list[Entrant]) -> None:
        course, step = self.course, 0
        rounds = 0
        while step < course.steps and (step <= course.warmup or time.monotonic() < self._end):
            steps = self._turn_length(step)
            network.set_rate(course.rate.at(step))
            act = partial(self._take_turn, network, steps, step >= course.warmup)
            for entrant in heat[rounds % len(heat) :] + heat[: rounds % len(heat)]:  # nobody is always first
                if entrant.status == "running":
                    self._attempt(entrant, act)
            step, rounds = step + steps, rounds + 1

    def _turn_length(self, step: int) -> int:
        """Up to the next change of rate, end of warm-up, evaluation or end of the race."""
        course = self.course
        stops = [step + course.turn, course.steps]
        stops += [end for end in (course.rate.next_change(step), course.warmup, self._next_evaluation(step)) if end]
        return min(stop for stop in stops if stop > step) - step

    def _next_evaluation(self, step: int) -> int | None:
        course = self.course
        due = [course.steps * index // course.evaluations for index in range(1, course.evaluations + 1)]
        return next((at for at in due if at > step), None)

    def _take_turn(self, network: Network, steps: int, timed: bool, entrant: Entrant) -> None:
        course, team = self.course, self.teams[entrant.method]
        rate = course.rate.at(entrant.step)
        guess = (entrant.ms_per_step or 5000.0) / 1e3 + 16 * entrant.parameters / rate.bytes_per_second
        order = {"do": "run", "steps": steps, "rate": (rate.bits or 0) if network.kind == "paced" else None}
        before = network.sent()
        answers = team.ask(order, course.patience + 3 * steps * guess)
        after = network.sent()
        if before is None or after is None:
            sent = sum(answer["modelled_bytes"] for answer in answers) / len(answers)
        else:
            sent = (sum(after) - sum(before)) / len(after)
        entrant.took_turn(answers, sent, timed)
        if self._next_evaluation(entrant.step - 1) == entrant.step:
            self._judge(entrant, team)

    def _judge(self, entrant: Entrant, team: Team) -> None:
        if entrant.method.trains_together:
            judged = team.ask({"do": "evaluate"}, self.course.patience)[0]
            entrant.was_judged(judged["loss"], judged["accuracy"])

    def _finish(self, entrant: Entrant) -> None:
        team = self.teams[entrant.method]
        if self.course.evaluations and entrant.evaluations[-1:] and entrant.evaluations[-1]["step"] != entrant.step:
            self._judge(entrant, team)
        entrant.profile = team.ask({"do": "stop"}, self.course.patience)[0].get("profile")
        entrant.status = "done"


def _port(network: Network, index: int) -> int:
    """A port for a team's rendezvous: any in a namespace of ours, a free one on a loopback that we share."""
    if network.kind != "paced":
        return 29500 + index
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
