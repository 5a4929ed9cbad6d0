"""Plans worth trying: the fastest within an error budget, over all families and over each family alone.

A model of costs is never exact, so the clock has the last word: it should be given plans that differ in kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from laconic.compressors.codec import Codec
from laconic.compressors.dense import Dense
from laconic.compressors.routes import Divided, Hierarchical, Route
from laconic.exchange import Compressor
from laconic.layer import Layer
from laconic.plan import Plan
from laconic.planning.budget import Found, fastest
from laconic.planning.fused import Fused
from laconic.planning.profile import Profile
from laconic.planning.surroundings import Cadence, Surroundings
from laconic.stats import Table
from laconic.world import World

SHARES = (1.0, 0.5, 0.2, 0.05)  # of the budget that are tried
MOST = 0.95  # of a layer's energy that may be left: more, and the layer hardly learns
PREFERENCE = 0.1  # how much longer a step may take that leaves nothing than one that leaves everything
TWICE = 2.0  # a divided route encodes twice, and leaves about as much again


@dataclass(frozen=True)
class Candidate:
    """A plan, the seconds that its step should take, and the share of energy that it should leave unsent."""

    plan: Plan
    seconds: float
    error: float

    @property
    def dense(self) -> bool:
        return all(compressor.lossless for compressor in self.plan.values())

    @property
    def cost(self) -> float:
        """What candidates are compared by: time, and of nearly equal times the smaller error."""
        return self.seconds * (1 + PREFERENCE * self.error)


def routes(core: Compressor, world: World) -> Iterator[Compressor]:
    """The ways that a compressor may go in this world; a route with no advantage there is left out."""
    yield core
    if isinstance(core, Codec) and world.size > 2:
        yield Divided(core)
    if 1 < world.node_size < world.size:
        yield Hierarchical(Dense(), core)
        if isinstance(core, Codec) and world.across().size > 2:
            yield Hierarchical(Dense(), Divided(core))


def depth(layers: Sequence[Layer], families: Sequence[Mapping[str, Sequence[Compressor]]], world: World) -> int:
    """The most rounds that any of these plans may need."""
    named = {layer.name: layer for layer in layers}
    each = {(core, named[name]) for menu in families for name, cores in menu.items() for core in cores}
    options = [(option, layer) for core, layer in each for option in routes(core, world)]
    options += [(option, layer) for layer in layers for option in plain(world)]
    return max((len(option.legs(layer, world)) for option, layer in options), default=1)


def plain(world: World) -> list[Compressor]:
    """The ways of sending everything as it is."""
    several = 1 < world.node_size < world.size
    return [Dense(), Hierarchical(Dense(), Dense())] if several else [Dense()]


def candidates(
    layers: Sequence[Layer],
    families: Sequence[Mapping[str, Sequence[Compressor]]],
    tables: Mapping[str, Table],
    cadence: Cadence,
    around: Surroundings,
    budget: float,
) -> list[Candidate]:
    """Every plan worth a trial, dense among them, the best first. A layer without a finite table stays dense."""
    profile = cadence.profile(layers, around)
    energy = sum(table.energy for table in tables.values())
    if energy <= 0:
        return []
    everything = {name: [core for family in families for core in family.get(name, ())] for name in tables}
    found = []
    for menu in (everything, *families):
        options, errors = _options(profile, menu, tables, around.world)
        fused = Fused(profile, cadence.groups, options)
        options, errors = _unbeaten(fused, errors)
        fused = Fused(profile, cadence.groups, options)
        for share in SHARES if menu is everything else SHARES[:1]:
            best = fastest(fused, errors, share * budget * energy)
            chosen = {layer.name: row[k] for layer, row, k in zip(fused.layers, options, best.choice, strict=True)}
            why = _reasons(fused, best, errors, tables)
            plan = Plan({layer.name: chosen.get(layer.name, Dense()) for layer in layers}, why)
            found.append(Candidate(plan, best.seconds, best.error / energy))
    fused = Fused(profile, cadence.groups, [(Dense(),)] * len(profile.trace.layers))
    dense = Plan({layer.name: Dense() for layer in layers})
    found.append(Candidate(dense, fused.seconds((0,) * len(fused.layers)), 0.0))
    each = {candidate.plan: candidate for candidate in sorted(found, key=lambda one: -one.cost)}
    return sorted(each.values(), key=lambda one: one.cost)


def _options(
    profile: Profile, menu: Mapping[str, Sequence[Compressor]], tables: Mapping[str, Table], world: World
) -> tuple[list[list[Compressor]], list[list[float]]]:
    """For each layer its options and what each would leave; dense first."""
    options: list[list[Compressor]] = []
    errors: list[list[float]] = []
    for layer in profile.trace.layers:
        row = plain(world)
        left = [0.0] * len(row)
        table = tables.get(layer.name)
        if table is not None and table.energy > 0:
            known = dict(zip(table.rungs, table.errors, strict=True))
            for core in menu.get(layer.name, ()):
                if core not in known or known[core] > MOST * table.energy:
                    continue
                for option in routes(core, world):
                    row.append(option)
                    left.append(known[core] * (TWICE if _encodes_twice(option) else 1.0))
        options.append(row)
        errors.append(left)
    return options, errors


def _reasons(
    fused: Fused, found: Found, errors: Sequence[Sequence[float]], tables: Mapping[str, Table]
) -> dict[str, str]:
    """For each layer, what its option does for the step: the seconds it would take longer with that layer dense."""
    why = {}
    for index, layer in enumerate(fused.layers):
        option, table = found.choice[index], tables.get(layer.name)
        if option:
            alone = (*found.choice[:index], 0, *found.choice[index + 1 :])
            saved, left = fused.seconds(alone) - found.seconds, errors[index][option]
            share = f", {left / table.energy:.0%} of it goes later" if table is not None and table.energy else ""
            why[layer.name] = f"saves {1e3 * saved:.1f} ms{share}"
        elif table is not None:
            why[layer.name] = "compressing it would not shorten the step"
    return why


def _encodes_twice(option: Compressor) -> bool:
    return isinstance(option, Divided) or (isinstance(option, Hierarchical) and _encodes_twice(option.outer))


def _unbeaten(fused: Fused, errors: Sequence[Sequence[float]]) -> tuple[list[list[Compressor]], list[list[float]]]:
    """Options that no other beats in link time, arithmetic, rounds and error at once; dense always."""
    options: list[list[Compressor]] = []
    kept: list[list[float]] = []
    for row, rows, left in zip(fused.options, fused.rows, errors, strict=True):
        facts = np.array([
            [fused.link_seconds(r), fused.work_seconds(r), float(isinstance(option, Route)), e]
            for option, r, e in zip(row, rows, left, strict=True)
        ])  # fmt: skip
        no_worse = (facts[None] <= facts[:, None]).all(2)
        earlier = np.tri(len(facts), k=-1, dtype=bool)
        beaten = no_worse & (~no_worse.T | earlier)
        index = [k for k in range(len(row)) if k == 0 or not beaten[k].any()]
        options.append([row[k] for k in index])
        kept.append([left[k] for k in index])
    return options, kept
