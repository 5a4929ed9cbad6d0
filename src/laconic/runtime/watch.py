"""Watching: what other compressors would leave of a layer, measured on what this rank is about to send.

Only in steps that a policy asks for, beside the step and without a trace in it: a measurement that fails is NaN.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan

import torch
from torch import Tensor

from laconic import kernels
from laconic.exchange import Compressor
from laconic.runtime.buffers import Lease
from laconic.runtime.ledger import Ledger
from laconic.stats import Table

Watch = Mapping[str, Sequence[Compressor]]


@dataclass(frozen=True)
class Measurement:
    """One layer in one step, on this rank: |gradient|^2, the energy of what was measured, and what each rung leaves."""

    rungs: tuple[Compressor, ...]
    values: tuple[float, ...]


def measure(
    name: str, gradient: Tensor, ledger: Ledger, rungs: Sequence[Compressor], lease: Lease, fresh: bool = False
) -> Measurement:
    """Measure before the layer's conversation opens; neither gradient nor residual is changed.

    With `fresh`, of the gradient alone, whatever waits from earlier steps.
    """
    layer, residual = ledger.accounts[name].layer, ledger.accounts[name].residual
    y = gradient
    if gradient.dtype is not torch.float32:
        y = lease.take(layer.numel, torch.float32, gradient.device).copy_(gradient)
    new = energy = float(kernels.of(y).energy(y))
    if residual is not None and not fresh:
        out = lease.take(layer.numel, torch.float32, gradient.device) if y is gradient else y
        y = torch.add(y, residual, out=out)
        energy = float(kernels.of(y).energy(y))
    left = [nan] * len(rungs)
    if isfinite(energy):
        try:
            left = errors(y.view(layer.shape), rungs)
        except RuntimeError:  # a decomposition that does not converge must not fail the step
            left = [nan] * len(rungs)
    if y is not gradient:
        lease.drop(y)
    return Measurement(tuple(rungs), (new, energy, *left))


def errors(x: Tensor, rungs: Sequence[Compressor]) -> list[float]:
    """What each rung would leave of x; those of one family are measured together."""
    families: dict[type, list[int]] = {}
    for index, rung in enumerate(rungs):
        families.setdefault(type(rung), []).append(index)
    told = [nan] * len(rungs)
    for family in families.values():
        group = [rungs[index] for index in family]
        for index, error in zip(family, group[0].errors(x, group).tolist(), strict=True):
            told[index] = error
    return told


class Tables:
    """Measurements of all ranks, added up: of the last step (`news`), and since the last decision."""

    def __init__(self) -> None:
        self.news: dict[str, Table] = {}
        self.sums: dict[str, Table] = {}

    def add(self, name: str, rungs: tuple[Compressor, ...], values: Sequence[float]) -> None:
        """What all ranks together measured in one step; a sum that is not finite tells nothing."""
        if not all(map(isfinite, values)):
            return
        gradient, energy, *left = values
        self.news[name] = Table(rungs, tuple(left), energy, gradient, 1)
        before = self.sums.get(name)
        if before is None or before.rungs != rungs:
            self.sums[name] = self.news[name]
            return
        total = tuple(a + b for a, b in zip(before.errors, left, strict=True))
        self.sums[name] = Table(rungs, total, before.energy + energy, before.gradient + gradient, before.steps + 1)

    def means(self) -> dict[str, Table]:
        """Per step, since `forget`."""
        made = {}
        for name, total in self.sums.items():
            n, left = total.steps, tuple(error / total.steps for error in total.errors)
            made[name] = Table(total.rungs, left, total.energy / n, total.gradient / n, n)
        return made

    def forget(self) -> None:
        """Begin again: a decision was taken."""
        self.sums = {}
