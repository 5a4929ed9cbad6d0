"""Auto: family, degree, route and moment together, so that a step is as short as this network allows at an error that
training does not notice. docs/auto.md states the problem and the algorithm.

Measure: for a few steps, when buckets are ready, what the link takes, and what every option would leave of every layer.
Try: rank 0 solves for the fastest step within the error budget (planning.candidates) and ranks what it finds by time;
the best of each kind run for some steps, and the one that the clock likes best stays.
Settled: the clock is looked at now and then. Where it drifts, where the error leaves its budget, where gradients change
fast (Accordion's critical regime), and after ever longer times in any case, Auto measures again. Dense is always among
the candidates, and is tried again at a bounded cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import inf, isfinite, sqrt
from typing import Any

from torch import Tensor

from laconic.compressors import AdaComp, Cast, Chain, Dense, PowerSGD, Quantize, Sign, TopK
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.candidates import (
    Candidate,
    apart,
    believable,
    candidates,
    dearness,
    depth,
    plain,
    priced,
    routes,
    seconds,
    unsent,
)
from laconic.planning.surroundings import Cadence, Surroundings, bounded, slowdown
from laconic.policies import given, notes
from laconic.policies.moment import (
    SLIGHT,
    TRIAL_COST,
    Moment,
    alarm,
    critical,
    drift,
    from_notes,
    lost,
    overhead,
    pace,
    patience,
    quickest,
    typical,
)
from laconic.policies.policy import Policy, Proposal
from laconic.policies.static import Static, unsuited
from laconic.policies.trials import ON_TRIAL, Trial, verdict, worth_trying
from laconic.stats import Stats, Table
from laconic.world import World

# Why these degrees, and what each did to the loss in the lab: docs/auto.md.
FAMILIES: tuple[tuple[Compressor, ...], ...] = (
    (Cast(),),
    tuple(Quantize(bits=bits) for bits in (8, 6, 4, 3, 2)),
    tuple(Chain(TopK(density=d, selection="sampled"), Quantize(bits=4)) for d in (0.2, 0.1)),
    tuple(PowerSGD(rank=rank, dtype=dtype) for rank in (32, 24, 16) for dtype in ("bf16", "int4", "int3")),
    (AdaComp(),),
    (Sign(),),
)
LONG = 0.5  # seconds: where a dense exchange takes so long, a run begins with the first of these that does not
BEGINNINGS = (Quantize(bits=8), Quantize(bits=4))

MEASURED = 4  # steps of a measurement: one to get going, two watched, one in which their sums travel
TRIED = 6  # steps of a trial, after the one that pays for the change
STAYS = 1.05  # how far behind the best the plan in use may be expected to be without a trial
LOOK = 10  # steps between looks at the clock, and not less than
LOOK_SECONDS = 1.0  # in time
AS_IS = "no other way was clearly faster"  # why a layer is dense that could be compressed
OTHER_LINK = 1.5  # times as fast or slow as it was: a link that calls for other plans
LONGEST = 64  # times the period: how far apart measurements get while nothing changes


class Auto(Policy):
    """The default: as fast as this network allows, at the quality of dense.

    `budget` is the largest share of the energy of a step's gradients that may be left for later steps, over all layers
    and ranks; what bits leave counts a quarter, what selections leave twice. `families` are ladders of compressors to
    choose from. `period` is the number of steps after which it measures again in any case; it doubles while nothing
    changes.

    >>> Auto(budget=0.2)
    Auto(budget=0.2)
    """

    fresh = True  # residuals grow with the plan in use, so that a budget on them would mean something else each time

    def __init__(
        self, *, budget: float = 0.5, families: Sequence[Sequence[Compressor]] = FAMILIES, period: int = 40
    ) -> None:
        given.number("budget", budget, 0, 1)
        given.steps("period", period, LOOK)
        if not families or not all(families):
            raise InvalidConfig("families", families, "give ladders of compressors, such as [[Quantize(bits=4)]]")
        self.budget, self.families, self.period = budget, families, period
        self._around: Surroundings | None = None
        self._start((), World())

    def __repr__(self) -> str:
        return given.described(self)

    def _start(self, layers: Sequence[Layer], world: World) -> None:
        self._layers, self._world = tuple(layers), world
        self._now = Moment(next=MEASURED, patience=self.period or 0)
        self._menus = [self._menu(family) for family in self.families]
        self._tables: Mapping[str, Table] = {}  # of the last measurement, on rank 0
        self._never: dict[str, str] = {}  # layers that are on no menu, and why

    def _menu(self, family: Sequence[Compressor]) -> dict[str, tuple[Compressor, ...]]:
        """A family's compressors for each layer that they suit."""
        suited = {
            layer.name: tuple(core.for_layer(layer) for core in family if unsuited(core, layer) is None)
            for layer in self._layers
        }
        return {name: cores for name, cores in suited.items() if cores}

    # On every rank.

    def start(self, layers: Sequence[Layer], world: World) -> Plan:
        self._start(layers, world)
        reasons = {layer.name: unsuited(self.families[-1][0], layer) or "small" for layer in layers}
        self._never = {name: why for name, why in reasons.items() if not any(name in menu for menu in self._menus)}
        return Plan({layer.name: Dense() for layer in layers}, self._never)

    def rounds(self, layers: Sequence[Layer], world: World) -> int:
        self._start(layers, world)
        return depth(layers, self._all_menus(), world)

    def _all_menus(self) -> list[dict[str, tuple[Compressor, ...]]]:
        """What there is to choose from, and what a run may begin with."""
        return [*self._menus, self._menu(BEGINNINGS)] if any(self._menus) else []

    def surveyed(self, layers: Sequence[Layer], world: World) -> Sequence[Compressor]:
        cores = dict.fromkeys(core for menu in self._all_menus() for cores in menu.values() for core in cores)
        return [*plain(world), *(option for core in cores for option in routes(core, world))] if cores else []

    def learn(self, around: Surroundings, plan: Plan) -> Plan:
        self._around = around
        at_once = Cadence((tuple(layer.name for layer in self._layers),), (0.0,), 0.0)
        found, least = plan, inf  # the first that is quick enough, the gentlest before others; or the quickest
        for core in (Dense(), *BEGINNINGS):
            for option in routes(core, around.world):
                start = Static(option).start(self._layers, around.world)
                took = seconds(start, self._layers, at_once, around)
                if took < least:
                    found, least = Plan(start, {**plan.why, **start.why}), took
                if least <= LONG:
                    return found
        return found

    def due(self, step: int) -> bool:
        return self._around is not None and step >= self._now.next

    def watch(self, step: int, plan: Plan) -> Mapping[str, Sequence[Compressor]]:
        if self._around is None or self._now.phase != "measure":
            return {}
        watched = self._now.next - step in (2, 3)
        rungs: dict[str, tuple[Compressor, ...]] = {}  # even with no rungs, a layer that is watched is traced
        for menu in self._menus:
            for name, cores in menu.items():
                rungs[name] = rungs.get(name, ()) + (cores if watched else ())
        return rungs

    def sounds(self, step: int) -> bool:
        """With the last step of a measurement, but for the first, so soon after the survey; and where steps changed."""
        now = self._now
        wanted = now.since > 0 if now.phase == "measure" else now.phase == "settled" and now.wonders
        sounded = self._around is not None and self._around.device == "cpu"  # elsewhere words go by another network
        return sounded and wanted and step == now.next - 1

    def take_notes(self, notes: Mapping[str, Any]) -> None:
        self._now = from_notes(notes)

    def state_dict(self) -> Mapping[str, Tensor]:
        return notes.as_tensors(asdict(self._now))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if known := notes.from_tensors(state):
            self.take_notes(known)

    # On rank 0.

    def propose(self, stats: Stats, plan: Plan) -> Proposal:
        match self._now.phase:
            case "measure":
                return self._solve(stats, plan)
            case "trial":
                return self._judge(stats, plan)
            case _:
                return self._look(stats, plan)

    def _solve(self, stats: Stats, plan: Plan) -> Proposal:
        """With what was measured, find the plans that are worth a trial, and begin with the best."""
        now, around = self._now, self._around
        assert around is not None
        cadence, tables = Cadence.of(stats.recent, around), _finite(stats.tables)
        if cadence is None or not tables:
            waiting = replace(now, next=stats.steps + MEASURED)
            return Proposal(plan, "nothing finite was measured: the plan stays", asdict(waiting))
        slow = slowdown(stats.recent, around) or now.slow
        took = typical(stats.recent, plan.digest)
        dear = dearness(stats.recent, plan, self._layers, cadence, around) or now.dear
        around = around.dearer(dear)
        sure = bounded(slow, stats.sounding, around)
        slow = sure or believable(slow, now.slow, took, plan, self._layers, cadence, around)
        norm = sqrt(sum(table.gradient for table in tables.values()))
        tight = now.tight / 2 if critical(now, norm) else now.tight
        ranked = candidates(self._layers, self._menus, tables, cadence, around.slower(slow), self.budget * tight)
        seen = quickest(stats.recent, plan.digest) if all(one.lossless for one in plan.values()) else 0.0
        dense = min([one.seconds for one in ranked if one.dense] + [seen] * (seen > 0), default=0.0)
        told = _tell(ranked, slow, dear, tight * self.budget)
        if tight < now.tight:
            told += f"; the gradient's norm went from {now.norm:.3g} to {norm:.3g}, so the budget is halved"
        trials = worth_trying(ranked, self._layers, dense)
        moment = replace(
            now, since=stats.steps, trials=trials, tight=tight, norm=norm, slow=slow, dear=dear, dense=dense,
            rate=stats.learning_rate or 0.0, skipped=stats.skipped, energy=_energy(stats), uneasy=False,
            cost=overhead(stats.recent, MEASURED), again=False,
        )  # fmt: skip
        self._tables = tables
        if not ranked:
            return self._settle(stats, plan, replace(moment, expected=0.0), "no gradient yet: the plan stays")
        in_use = plan.to_json() == now.settled and not _another(slow, now.slow)  # on this link it has won nothing yet
        held = priced(plan, self._layers, tables, cadence, around.slower(slow)) if in_use else None
        if held is not None and held.dense:
            held = replace(held, seconds=min(dense, held.seconds))
        if held is not None and held.late <= self.budget * tight and held.cost <= STAYS * ranked[0].cost:
            stays = Trial(plan.to_json(), held.seconds, held.error, plan.why, took or now.expected, late=held.late)
            return self._settle(stats, plan, replace(moment, trials=()), f"the plan stays: {told}", stays)
        return self._try(stats, plan, moment, told)

    def _try(self, stats: Stats, plan: Plan, moment: Moment, told: str) -> Proposal:
        """Run the first plan that has not been timed."""
        trial = next(trial for trial in moment.trials if not trial.took)
        moment = replace(moment, phase="trial", next=stats.steps + 2 + TRIED)
        return self._use(trial, plan, moment, told)

    def _use(self, trial: Trial, plan: Plan, moment: Moment, told: str) -> Proposal:
        predicted = {"step_s": trial.seconds, "error": sqrt(trial.error)}
        chosen = Plan.from_json(trial.plan)
        open_to = {name for menu in self._menus for name in menu}
        as_is = {**self._never, **dict.fromkeys(open_to, AS_IS)}
        why = {**plan.why, **{name: why for name, why in as_is.items() if chosen[name].lossless}, **trial.why}
        return Proposal(Plan(chosen, why), told, asdict(moment), predicted)

    def _judge(self, stats: Stats, plan: Plan) -> Proposal:
        """Note what the plan under trial took; then the next one, or the verdict."""
        took, least, text = typical(stats.recent, plan.digest), quickest(stats.recent, plan.digest), plan.to_json()
        lead = pace(stats.recent, plan.digest)
        timed = tuple(
            replace(one, took=took or one.seconds, least=least or one.seconds, pace=lead) if one.plan == text else one
            for one in self._now.trials
        )
        moment = replace(self._now, trials=timed)
        if not moment.again:
            moment = replace(self._second_thoughts(stats, plan, moment), again=True)
        if any(not trial.took for trial in moment.trials):
            return self._try(stats, plan, moment, f"{_ms(took)} on trial; the next candidate")
        best, timed = verdict(moment.trials), moment.trials
        told = f"{_ms(best.took)} a step, the best of " + ", ".join(_ms(trial.took) for trial in timed)
        told += f"; dense {'took' if any(t.error == 0 for t in timed) else 'would take'} {_ms(self._dense(moment))}"
        return self._settle(stats, plan, moment, told, best)

    def _second_thoughts(self, stats: Stats, plan: Plan, moment: Moment) -> Moment:
        """The trials once more when the first is timed, now that it is known how steps go that are not dense.

        What a measurement sees are dense steps, in which the network's own work holds the backward pass up, and nothing
        is encoded. The plan on trial stands for its kind, unless another of that kind is expected to be better by more
        than a little.
        """
        around, recent = self._around, [step for step in stats.recent if step.plan == plan.digest]
        if not self._tables or around is None or (cadence := Cadence.of(recent, around)) is None:
            return moment
        moment = replace(moment, dear=dearness(recent, plan, self._layers, cadence, around) or moment.dear)
        here, budget = around.dearer(moment.dear).slower(moment.slow), self.budget * moment.tight
        held = priced(plan, self._layers, self._tables, cadence, here)
        ranked = candidates(self._layers, self._menus, self._tables, cadence, here, budget)
        if held is None or not ranked:
            return moment
        better = [one for one in ranked if STAYS * one.cost < held.cost or apart(one.plan, plan, self._layers)]
        timed = tuple(trial for trial in moment.trials if trial.took)
        better = [one for one in better if one.plan != plan]
        others = worth_trying(better, self._layers, moment.dense, held.cost, ON_TRIAL - len(timed))
        return replace(moment, trials=(*timed, *others))

    def _dense(self, moment: Moment) -> float:
        return next((trial.took for trial in moment.trials if trial.error == 0 and trial.took), moment.dense)

    def _settle(self, stats: Stats, plan: Plan, moment: Moment, told: str, best: Trial | None = None) -> Proposal:
        """Stay with a plan. The next measurement is twice as far off if it is the one that was there before, and in any
        case so far that measuring costs little."""
        took = best.took if best is not None else 0.0
        cost = moment.cost + sum((2 + TRIED) * max(0.0, trial.took - took) for trial in moment.trials)
        ahead = max(LOOK, int(LOOK_SECONDS / took) if took else 0)
        stays = best is not None and moment.expected > 0 and best.plan == moment.settled
        longest = LONGEST * (self.period or 0)
        wait = patience(cost, took, self.period or 0, longest)
        known = (moment.least, moment.most) if stays else (took, took)
        moment = replace(
            moment, phase="settled", next=stats.steps + 1 + ahead, expected=took, trials=(), afford=wait,
            price=max(cost, took), lost=0.0, looked=stats.steps, least=min(took, *known), most=max(took, *known),
            dense=self._dense(moment), settled=best.plan if best is not None else "",
            late=best.late if best is not None else 0.0,
            patience=max(wait, min(longest, 2 * moment.patience)) if stays else wait,
        )  # fmt: skip
        return self._use(best, plan, moment, told) if best is not None else Proposal(plan, told, asdict(moment))

    def _look(self, stats: Stats, plan: Plan) -> Proposal:
        """Whether anything calls for another measurement, or a trial of dense can be paid for."""
        now, around = self._now, self._around
        assert around is not None
        took = typical(stats.recent, plan.digest)
        ahead = max(LOOK, int(LOOK_SECONDS / took) if took else 0)
        if now.wonders:
            moment = replace(now, wonders=False, next=now.looked + ahead)
            link = bounded(now.slow, stats.sounding, around) or now.slow
            if not _another(link, now.slow) or abs(drift(now, took)) <= SLIGHT:
                return Proposal(plan, "steps have changed, and the link has not", asdict(moment))
            moment = replace(moment, phase="measure", next=stats.steps + MEASURED)
            told = f"the link takes {link:.2f} times what the survey found, and it was {now.slow:.2f}"
            return Proposal(plan, f"measuring again: {told}", asdict(moment))
        found = alarm(now, stats, took, self.budget, unsent(plan, stats.layers))
        if found is not None:
            moment = replace(now, phase="measure", next=stats.steps + MEASURED, tight=found.tight, over=found.over)
            return Proposal(plan, f"measuring again: {found.why}", asdict(moment))
        credit = now.credit + TRIAL_COST * took * (stats.steps - now.looked)
        cost = (TRIED + 1) * max(0.0, now.dense - took)
        uneasy = abs(drift(now, took)) > SLIGHT
        moment = replace(
            now, next=stats.steps + ahead, credit=credit, looked=stats.steps, uneasy=uneasy,
            lost=lost(now, stats.steps, took),
        )  # fmt: skip
        slower = took > now.dense > 0
        due = slower or (credit >= cost and stats.steps - now.tried >= (self.period or 0))
        if due and not uneasy and not all(c.lossless for c in plan.values()):  # what dense took then, it takes now
            error = stats.error**2
            latest = stats.recent[-TRIED:]
            least, lead = quickest(latest, plan.digest), pace(latest, plan.digest)
            trials = (
                Trial(plan.to_json(), took, error, plan.why, took, least, lead, now.late),
                Trial(Plan({name: Dense() for name in plan}).to_json(), now.dense, 0.0, {}),
            )
            moment = replace(moment, credit=credit - cost, tried=stats.steps, trials=trials, again=True)
            told = f"a step takes {_ms(took)}, and dense took {_ms(now.dense)}" if slower else ""
            told = told or f"for at most {100 * TRIAL_COST:.0f}% of the time"
            return self._try(stats, plan, moment, f"dense on trial: {told}")
        if uneasy and not now.uneasy and around.device == "cpu":
            moment = replace(moment, wonders=True, next=stats.steps + 3)
        return Proposal(plan, "steps have changed, not for long yet" if uneasy else "as expected", asdict(moment))


def _another(slow: float, before: float) -> bool:
    """Whether a link is another than it was."""
    return not 1 / OTHER_LINK < slow / before < OTHER_LINK


def _finite(tables: Mapping[str, Table]) -> dict[str, Table]:
    return {
        name: table
        for name, table in tables.items()
        if table.rungs and isfinite(table.energy) and all(map(isfinite, table.errors))
    }


def _energy(stats: Stats) -> float:
    return sum(layer.energy for layer in stats.layers.values())


def _tell(ranked: Sequence[Candidate], slow: float, dear: float, budget: float) -> str:
    if not ranked:
        return ""
    best, dense = ranked[0], next((one for one in ranked if one.dense), ranked[0])
    return (
        f"{_ms(best.seconds)} a step expected where dense takes {_ms(dense.seconds)}, with {best.error:.3f} of the "
        f"energy left for later, which counts as {best.late:.3f} (at most {budget:.3g}); the link takes {slow:.2f} "
        f"times what the survey found, and arithmetic {dear:.2f} times what was rehearsed"
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
