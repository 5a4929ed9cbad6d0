"""Comm: the only door to the network."""

from typing import Protocol

import torch
from torch import Tensor

from laconic.exchange import Op
from laconic.world import Scope, World


class Pending(Protocol):
    """A collective under way."""

    def wait(self) -> Tensor:
        """The result; raises if the collective failed."""

    def future(self) -> "torch.futures.Future[object]":
        """Resolves when the result is there, to whatever the network likes; only where the comm has `futures`."""


class Comm(Protocol):
    """Starts collectives. Every rank must start the same ones in the same order on each lane.

    A lane is an ordered channel of its own: what is started on one never waits for, or mixes with, another.
    """

    world: World
    lanes: int
    futures: bool  # whether a collective can tell by itself that it has ended, from a thread of the network's

    @property
    def device(self) -> torch.device:
        """Where data must lie that is sent on lanes."""

    def start(self, op: Op, scope: Scope, data: Tensor, lane: int, result: Tensor | None = None) -> Pending:
        """Begin `op` on data: flat for SUM, MAX and GATHER, one row to each rank for SCATTER.

        SUM and MAX are made in place; for the others `result`, with a row from each rank, may be given.
        """

    def broadcast(self, data: Tensor) -> Tensor:
        """Rank 0's data, on the control lane; blocks."""

    def gather(self, data: Tensor) -> Tensor:
        """Everyone's data as rows, on the control lane; blocks."""

    def close(self) -> None:
        """Let go of the network."""
