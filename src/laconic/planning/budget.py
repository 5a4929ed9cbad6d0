"""The fastest step within an error budget: family, degree and route for each layer together.

    minimise   F(c), the simulated step under the choice c      subject to   sum over layers of error(c) <= budget

Bytes are not the aim: a byte that is hidden behind the backward pass costs nothing, and error spent there buys nothing.
Three stages, each starting from the best so far. (1) A knapsack on exposed time: the timeline tells what a second of
link or arithmetic in each bucket costs the step (its shadow price, 0 to 1), the dynamic programme of `knapsack` takes
the cheapest options at these prices, and the new choice is simulated and priced again. (2) Local search with the
timeline itself, a layer at a time. (3) Giving back: a layer takes the gentlest option that leaves the step as it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from laconic.planning.fused import Choice, Fused
from laconic.planning.knapsack import Infeasible, Knapsack

ROUNDS = 6  # of knapsack and pricing
UNIT = 1e-7  # seconds: costs are whole numbers for the knapsack
HIDDEN = 0.02  # what a hidden second counts: of two options that cost the step nothing, the one that asks for less
FREE = 5e-3  # relative: a step that is longer by no more is as it was
PATIENCE = 0.1  # seconds of local search
LITTLE = 1e-3  # of the step: a change that saves no more is not made, since layers of one kind talk together
GENTLE = 1e-2  # of the budget: a layer that leaves no more is gentle enough, or else leaves nothing


@dataclass(frozen=True)
class Found:
    """A choice, what the step takes under it, and what it leaves unsent."""

    choice: Choice
    seconds: float
    error: float


def fastest(fused: Fused, errors: Sequence[Sequence[float]], budget: float, patience: float = PATIENCE) -> Found:
    """The best choice that is found within the budget. Option 0 of every layer leaves nothing: it is always there."""
    search = _Search(fused, errors, budget)
    for choice in search.uniform():
        search.offer(choice)
    search.exchange_prices()
    deadline = perf_counter() + patience
    for _ in range(4):
        before = search.best
        search.improve(deadline)
        search.give_back(deadline)
        if search.best == before or perf_counter() > deadline:
            break
    return search.best


class _Search:
    def __init__(self, fused: Fused, errors: Sequence[Sequence[float]], budget: float) -> None:
        self.fused, self.errors, self.budget = fused, errors, budget
        dense = (0,) * len(fused.options)
        self.best = Found(dense, fused.seconds(dense), self.error(dense))
        self.least = self.best.seconds

    def error(self, choice: Choice) -> float:
        return float(sum(row[k] for row, k in zip(self.errors, choice, strict=True)))

    def fits(self, error: float) -> bool:
        return error <= self.budget * (1 + 1e-9)

    def offer(self, choice: Choice) -> float | None:
        """Keep a choice if it is the best; its seconds, or None where it breaks the budget."""
        error = self.error(choice)
        if not self.fits(error):
            return None
        found = Found(choice, self.fused.seconds(choice), error)
        self.least = min(self.least, found.seconds)
        if (found.seconds, found.error) < (self.best.seconds, self.best.error):
            self.best = found
        return found.seconds

    def uniform(self) -> Iterator[Choice]:
        """Every expression on all layers that have it: what people would try."""
        every = dict.fromkeys(option for row in self.fused.options for option in row)
        for option in every:
            yield tuple(row.index(option) if option in row else 0 for row in self.fused.options)

    def exchange_prices(self) -> None:
        """Stage 1: knapsack, simulation, new prices, until they repeat."""
        prices = [(1.0, 1.0)] * len(self.fused.members)
        knapsack = Knapsack(self.errors, self.budget)
        seen = set()
        for _ in range(ROUNDS):
            sizes = []
            for index, (sending, computing) in enumerate(
                zip(self.fused.link_seconds, self.fused.work_seconds, strict=True)
            ):
                link, work = (max(price, HIDDEN) / UNIT for price in prices[self.fused.bucket_of[index]])
                sizes.append([round(link * a + work * b) for a, b in zip(sending, computing, strict=True)])
            try:
                choice = knapsack.solve(sizes).rungs
            except Infeasible:
                return
            if choice in seen:
                return
            seen.add(choice)
            self.offer(choice)
            prices = [
                (0.5 * a + 0.5 * c, 0.5 * b + 0.5 * d)
                for (a, b), (c, d) in zip(prices, self.fused.prices(choice), strict=True)
            ]

    def improve(self, deadline: float) -> None:
        """Stage 2: one layer at a time, largest first, whatever shortens the step."""
        self._sweep(deadline, gentler=False)

    def give_back(self, deadline: float) -> None:
        """Stage 3: one layer at a time, the one that leaves most first, whatever leaves less at no cost."""
        self._sweep(deadline, gentler=True)

    def _sweep(self, deadline: float, gentler: bool) -> None:
        fused = self.fused
        choice, error, seconds = list(self.best.choice), self.best.error, self.best.seconds
        limit = self.least * (1 + FREE)  # of the fastest found, so that giving back again and again adds up to no more
        totals = fused.sums(self.best.choice)
        loads = [fused.load(bucket, total) for bucket, total in enumerate(totals)]
        if gentler:
            order = sorted(range(len(choice)), key=lambda i: -self.errors[i][choice[i]])
        else:
            order = sorted(range(len(choice)), key=lambda i: -fused.layers[i].numel)
        for layer in order:
            if perf_counter() > deadline:
                break
            bucket, held = fused.bucket_of[layer], choice[layer]
            others = totals[bucket] - fused.rows[layer][held]
            kept = None
            for option in range(len(fused.options[layer])):
                left = error - self.errors[layer][held] + self.errors[layer][option]
                if option == held or not self.fits(left) or (gentler and not self._worth(layer, held, option)):
                    continue
                if not gentler and self._saves(layer, held, option) < LITTLE * seconds:
                    continue
                before, loads[bucket] = loads[bucket], fused.load(bucket, others + fused.rows[layer][option])
                took = fused.finish(loads)
                loads[bucket] = before
                better = (
                    took <= limit and (kept is None or left < kept[1])
                    if gentler
                    else (took < (seconds * (1 - LITTLE) if kept is None else kept[2]))
                )
                if better:
                    kept = (option, left, took)
            if kept is not None:
                choice[layer], error, seconds = kept
                totals[bucket] = others + fused.rows[layer][choice[layer]]
                loads[bucket] = fused.load(bucket, totals[bucket])
        self._adopt(tuple(choice), seconds)

    def _worth(self, layer: int, held: int, option: int) -> bool:
        """Whether a layer had better leave so much less."""
        now, then = self.errors[layer][held], self.errors[layer][option]
        return then < now and (then == 0 or now > GENTLE * self.budget)

    def _saves(self, layer: int, held: int, option: int) -> float:
        """The most that another option can take from the step: all that it takes from link and cores."""
        sending, computing = self.fused.link_seconds[layer], self.fused.work_seconds[layer]
        return max(0.0, sending[held] - sending[option]) + max(0.0, computing[held] - computing[option])

    def _adopt(self, chosen: Choice, seconds: float) -> None:
        total = self.error(chosen)
        if self.fits(total) and np.isfinite(seconds):
            self.best = Found(chosen, seconds, total)
            self.least = min(self.least, seconds)
