"""A probe that takes turns: it measures a little at a time, beside whatever else wants the machine, and then sums up.

So what disturbs the machine for a while disturbs a few measurements, and medians leave them out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from threading import Thread
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn

from laconic.comm.process_group import ProcessGroupComm
from laconic.comm.protocol import Comm
from laconic.compressors.cast import Cast
from laconic.compressors.codec import Codec
from laconic.compressors.dense import Dense
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor
from laconic.integrations.probe import Tell, measure_handling, measure_links
from laconic.integrations.rehearsal import Rehearsal
from laconic.integrations.trace import Tracer
from laconic.layer import Layer
from laconic.planning.costs import Kernel
from laconic.planning.grammar import expressions
from laconic.planning.link import Line, fit_total
from laconic.planning.profile import Profile
from laconic.policies.static import unsuited

SPINS = 60  # products of matrices whose time tells how many cores there are


@contextmanager
def joined(local: int) -> Iterator[ProcessGroupComm]:
    """A comm among the ranks that torchrun started, `local` to a machine, with one lane, while the block lasts."""
    dist.init_process_group("gloo")
    comm = ProcessGroupComm(dist.group.WORLD)  # type: ignore[arg-type]
    try:
        comm.open(1, local if comm.world.size % local == 0 else 1)
        yield comm
    finally:
        comm.close()
        dist.destroy_process_group()


class Prober:
    """Measures for one model on one cluster; every rank does the same. `trace` listens to the steps that others run."""

    def __init__(self, model: nn.Module, comm: Comm, given: Sequence[Compressor], tell: Tell = lambda _: None) -> None:
        self.tracer = Tracer(model)
        self._comm = comm
        self._links, self._handling = measure_links(comm, tell), measure_handling(comm)
        self._rehearsals = rehearsals(self.tracer.layers, comm, [Dense(), *given])
        self._cores: list[float] = []
        self._turns = 0

    def turn(self, gradients: Mapping[str, Tensor]) -> None:
        """Close a turn of traced steps, and hold every conversation once, all ranks at a time."""
        self.tracer.turn()
        self._comm.gather(torch.zeros(1))
        for rehearsal in self._rehearsals:
            if not self._turns:
                rehearsal.turn(gradients, count=False)  # the first one allocates
            rehearsal.turn(gradients)
        self._comm.gather(torch.zeros(1))
        self._cores.append(cores())
        self._turns += 1

    def profile(self, name: str) -> Profile:
        """What was measured so far; a collective act."""
        talks: dict[str, tuple[Line, ...]] = {}
        kernels: dict[tuple[str, str], Kernel] = {}
        for rehearsal in self._rehearsals:
            parts = talks[str(rehearsal.compressor)] = measured(rehearsal, self._comm)
            if isinstance(rehearsal.compressor, Codec):
                one = 1 if isinstance(rehearsal.compressor, Cast) else self._comm.world.size
                decode = Line(parts[-1].alpha / one, parts[-1].beta / one, parts[-1].error)
                kernels[str(rehearsal.compressor), "cpu"] = Kernel(parts[0], decode)
        mine = torch.tensor([median(self._cores)], dtype=torch.float64)
        shared = float(self._comm.gather(mine).mean())
        trace = self.tracer.trace(self._comm)
        return Profile(
            name, self._comm.world, trace, self._links, "cpu", kernels, talks, round(shared, 3), self._handling
        )


def rehearsals(layers: Sequence[Layer], comm: Comm, every: Sequence[Compressor]) -> list[Rehearsal]:
    """One for every expression that suits a layer, on the layers that it suits."""
    made = []
    for compressor in every:
        suited = [x for x in layers if isinstance(compressor, Dense) or unsuited(compressor, x) is None]
        if suited:
            made.append(Rehearsal(compressor, suited, comm.world))
    return made


def measured(rehearsal: Rehearsal, comm: Comm) -> tuple[Line, ...]:
    """A line over elements for each part of the conversation, means over ranks."""
    times = rehearsal.seconds()
    rows = torch.tensor([times[layer.name] for layer in rehearsal.layers], dtype=torch.float64)
    mean = comm.gather(rows.flatten()).mean(0).view(rows.shape)
    sizes = [float(layer.numel) for layer in rehearsal.layers]
    return tuple(fit_total(sizes, column.tolist(), str(rehearsal.compressor)) for column in mean.T)


def cores() -> float:
    """How many threads of this rank run at the speed of one alone, while all ranks do the same; from 1 to 2."""
    square = torch.randn(192, 192)

    def spin() -> None:
        for _ in range(SPINS):
            torch.mm(square, square)

    def seconds(threads: int) -> float:
        team = [Thread(target=spin) for _ in range(threads)]
        began = perf_counter()
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        return perf_counter() - began

    return min(2.0, max(1.0, 2 * seconds(1) / seconds(2)))


def probe(
    name: str,
    model: nn.Module,
    loss: Callable[[], Tensor],
    comm: Comm,
    given: Sequence[Compressor],
    iterations: int = 10,
    tell: Tell = lambda _: None,
) -> Profile:
    """Everything that planning needs; a collective act. `loss` runs one forward pass of `model`."""
    if iterations < 1:
        raise InvalidConfig("iterations", iterations, "measure at least once")
    prober = Prober(model, comm, [x for x in expressions(given, comm.world, offload=False) if x != Dense()], tell)
    tell("backward pass")
    try:
        for iteration in range(iterations + 1):
            model.zero_grad(set_to_none=True)
            prober.tracer.begin()
            value = loss()
            prober.tracer.backward()
            value.backward()  # type: ignore[no-untyped-call]
            prober.tracer.end()
            if not iteration:
                prober.tracer.forget()  # the first one allocates
        tell("arithmetic")
        prober.turn({layer: p.grad for layer, p in model.named_parameters() if p.grad is not None})
    finally:
        prober.tracer.close()
        model.zero_grad(set_to_none=True)
    return prober.profile(name)
