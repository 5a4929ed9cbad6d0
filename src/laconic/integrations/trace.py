"""The backward pass as it runs: when each gradient is ready, and what the step does before and after."""

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor, nn

from laconic.comm.protocol import Comm
from laconic.errors import InvalidConfig
from laconic.layer import Layer
from laconic.planning.profile import Trace


class Tracer:
    """Listens to a model's parameters; whoever runs the step says when it begins, when backward does, when it ends.

    Times are means over the steps of a turn and medians over turns, so that what else the machine does for a while
    falls out. Under DDP the copies into and out of its buckets are part of what is measured.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not trained:
            raise InvalidConfig("model", type(model).__name__, "it has no parameters that are trained")
        self.layers = [Layer.of(name, p) for name, p in trained]
        self._ready: list[dict[str, float]] = [{}]
        self._turns: list[list[list[float]]] = []
        self._steps: list[list[float]] = []
        self._start = self._backward = 0.0
        self._handles = [p.register_post_accumulate_grad_hook(self._watch(name)) for name, p in trained]  # type: ignore[no-untyped-call]

    def _watch(self, name: str) -> Callable[[Tensor], None]:
        return lambda _: self._ready[0].__setitem__(name, perf_counter())

    def begin(self) -> None:
        """The step begins: data, forward pass."""
        self._ready[0] = {}
        self._start = perf_counter()

    def backward(self) -> None:
        """The backward pass begins."""
        self._backward = perf_counter()

    def end(self) -> None:
        """The step has ended, optimizer included."""
        end = perf_counter()
        silent = next((layer.name for layer in self.layers if layer.name not in self._ready[0]), None)
        if silent is not None:
            raise InvalidConfig("model", silent, "it got no gradient: freeze parameters that the loss does not use")
        ready = [self._ready[0][layer.name] - self._backward for layer in self.layers]
        after = end - self._backward - max(ready)
        self._steps.append([*ready, self._backward - self._start, after])

    def turn(self) -> None:
        """Close a turn of steps; without one it does not count."""
        if self._steps:
            self._turns.append(self._steps)
        self._steps = []

    def forget(self) -> None:
        """Drop the steps of the turn under way."""
        self._steps = []

    def trace(self, comm: Comm) -> Trace:
        """What was seen so far; a collective act. Of each step the slowest rank counts: all others wait for it."""
        if not self._turns:
            raise InvalidConfig("iterations", 0, "measure at least once")
        count = len(self.layers)
        lengths = [len(turn) for turn in self._turns]
        mine = torch.tensor([step for turn in self._turns for step in turn], dtype=torch.float64)
        everyone = comm.gather(mine.flatten()).view(comm.world.size, *mine.shape)
        slowest = (everyone[:, :, :count].amax(2) + everyone[:, :, count:].sum(2)).argmax(0)
        steps = everyone[slowest, torch.arange(len(mine))]
        typical = torch.stack([turn.mean(0) for turn in torch.split(steps, lengths)]).quantile(0.5, 0).tolist()
        spreads = steps[:, :count].std(0, correction=0).tolist()
        ready, forward, after = typical[:count], typical[count], typical[count + 1]
        order = sorted(range(count), key=lambda i: (ready[i], i))
        return Trace(
            tuple(self.layers[i] for i in order), tuple(ready[i] for i in order), tuple(spreads[i] for i in order),
            forward, max(0.0, after),
        )  # fmt: skip

    def close(self) -> None:
        """Listen no more."""
        for handle in self._handles:
            handle.remove()
