"""What a race trains: a model, its batches, its loss and how its quality is judged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import torch
from torch import Tensor, nn

from laconic.errors import InvalidConfig

OPTIMIZERS = ("sgd", "adam")


class Data(Protocol):
    """Examples for training and examples held out, both drawn by seed alone."""

    def batches(self, size: int, rank: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Training batches without end; each (rank, seed) sees its own."""

    def held_out(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same held-out batches on every call."""


@dataclass(frozen=True)
class Workload:
    """A named training task. `quality` says how the held-out figure is read: a loss (lower) or an accuracy (higher)."""

    name: str
    summary: str
    model: Callable[[], nn.Module]
    data: Callable[[str | None], Data]
    batch: int
    learning_rate: float
    quality: str = "loss"
    clip: float | None = None
    optimizer: str = "sgd"

    def trained_with(self, text: str) -> "Workload":
        """The same with another optimizer and its learning rate, such as "sgd:0.1" or "adam:0.001"."""
        name, _, rate = text.partition(":")
        try:
            wanted = float(rate)
        except ValueError:
            wanted = 0.0
        if name not in OPTIMIZERS or not 0 < wanted < inf:
            raise InvalidConfig("optimizer", text, "write one of sgd and adam and a learning rate, such as sgd:0.1")
        return replace(self, optimizer=name, learning_rate=wanted)

    def build(self, seed: int) -> nn.Module:
        """The model as it starts, the same for a seed on every rank and for every method."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model()

    def optimize(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.AdamW(model.parameters(), self.learning_rate, weight_decay=0.01)
        return torch.optim.SGD(model.parameters(), self.learning_rate, momentum=0.9)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data) -> tuple[float, float]:
        """Mean loss and accuracy over the held-out examples."""
        training = model.training
        model.eval()
        loss, right, seen = 0.0, 0, 0
        for inputs, targets in data.held_out(self.batch):
            scores = model(inputs).flatten(0, -2)
            loss += nn.functional.cross_entropy(scores, targets.flatten(), reduction="sum").item()
            right += int((scores.argmax(1) == targets.flatten()).sum())
            seen += targets.numel()
        model.train(training)
        return loss / seen, right / seen
