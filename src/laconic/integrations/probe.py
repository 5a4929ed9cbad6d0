"""The probe: measure this cluster's links and kernels and a model's backward pass, and write them down as a profile.

Every rank takes part and every rank ends with the same figures: times are those of the slowest rank for collectives,
and means over ranks for arithmetic. A few seconds on a slow link, since sizes stop growing where a transfer takes long.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn

from laconic.comm.process_group import ProcessGroupComm
from laconic.comm.protocol import Comm
from laconic.compressors.cast import Cast
from laconic.compressors.codec import Codec
from laconic.errors import InvalidConfig
from laconic.exchange import Compressor, Op
from laconic.integrations.trace import Tracer
from laconic.planning.costs import Kernel
from laconic.planning.link import Curves, Line, fit
from laconic.planning.profile import Profile, Trace
from laconic.world import Scope

MESSAGE_SIZES = (1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22)  # bytes
KERNEL_SIZES = (1 << 12, 1 << 15, 1 << 18, 1 << 20)  # elements
LONG = 0.2  # seconds after which larger messages are left out
REPEATS = 5
Tell = Callable[[str], None]


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
    tell("backward pass")
    trace = measure_trace(model, loss, comm, iterations)
    links = measure_links(comm, tell)
    kernels = {}
    for core in dict.fromkeys([Cast(), *given]):
        if isinstance(core, Codec):
            tell(f"kernel {core}")
            kernels[str(core), "cpu"] = measure_kernel(core, comm)
    return Profile(name, comm.world, trace, links, "cpu", kernels)


def measure_links(
    comm: Comm, tell: Tell = lambda _: None, message_sizes: Sequence[int] = MESSAGE_SIZES, repeats: int = REPEATS
) -> Curves:
    """A fitted line for every op and scope."""
    alone = comm.world.node_size in (1, comm.world.size)
    curves: dict[tuple[Op, Scope], tuple[Line, ...]] = {}
    for scope in Scope:
        for op in (Op.SUM, Op.GATHER, Op.SCATTER):
            if len(comm.world.members(scope)) == 1:
                curves[op, scope] = (Line(0.0, 0.0),)
                continue
            if alone and scope is not Scope.WORLD:  # the same ranks as the world's, whose costs are known by now
                curves[op, scope] = curves[op, Scope.WORLD]
                continue
            tell(f"link {op.value} {scope.value}")
            sizes, times = [], []
            for nbytes in message_sizes:
                sizes.append(float(nbytes))
                times.append(_collective(comm, op, scope, nbytes, repeats))
                if times[-1] > LONG and len(sizes) > 1:
                    break
            curves[op, scope] = (fit(sizes, times, f"{op.value} {scope.value}"),)
    return curves


def _collective(comm: Comm, op: Op, scope: Scope, nbytes: int, repeats: int) -> float:
    """Seconds of one collective: the median of several, on the slowest rank."""
    size = len(comm.world.members(scope))
    seen = []
    for turn in range(repeats + 1):
        data = torch.zeros(nbytes // 4 // size * size)
        comm.start(Op.SUM, Scope.WORLD, torch.zeros(1), 0).wait()  # all begin together
        began = perf_counter()
        comm.start(op, scope, data.view(size, -1) if op is Op.SCATTER else data, 0).wait()
        if turn:  # the first one opens connections
            seen.append(perf_counter() - began)
    return float(comm.gather(torch.tensor([median(seen)], dtype=torch.float64)).max())


def measure_kernel(codec: Codec, comm: Comm) -> Kernel:
    """Encoding and decoding, with every rank at it, as in training."""
    rng = torch.Generator().manual_seed(1)
    encode, decode = [], []
    for numel in KERNEL_SIZES:
        x, residual = torch.randn(numel, generator=rng), torch.randn(numel, generator=rng)
        payload, out = torch.zeros(codec.nbytes(numel), dtype=torch.uint8), torch.zeros(numel)
        there, back = [], []
        for _ in range(REPEATS):
            copy = x.clone()
            began = perf_counter()
            codec.encode(copy, payload, residual, 1)
            middle = perf_counter()
            codec.decode(payload, out, 1.0)
            there.append(middle - began)
            back.append(perf_counter() - middle)
        mean = comm.gather(torch.tensor([median(there), median(back)], dtype=torch.float64)).mean(0)
        encode.append(float(mean[0]))
        decode.append(float(mean[1]))
    sizes = [float(numel) for numel in KERNEL_SIZES]
    return Kernel(fit(sizes, encode, f"encode {codec}"), fit(sizes, decode, f"decode {codec}"))


def measure_trace(model: nn.Module, loss: Callable[[], Tensor], comm: Comm, iterations: int = 10) -> Trace:
    """When each gradient is ready, by a hook on each parameter: mean and spread over iterations, mean over ranks."""
    if iterations < 1:
        raise InvalidConfig("iterations", iterations, "measure at least once")
    tracer = Tracer(model)
    try:
        for iteration in range(iterations + 1):
            model.zero_grad(set_to_none=True)
            tracer.begin()
            value = loss()
            tracer.backward()
            value.backward()  # type: ignore[no-untyped-call]
            tracer.end()
            if not iteration:
                tracer.forget()  # the first one allocates
        tracer.turn()
    finally:
        tracer.close()
    return tracer.trace(comm)
