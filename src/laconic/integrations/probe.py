"""What links and arithmetic cost, measured by all ranks together.

Every rank takes part and every rank ends with the same figures: times are those of the slowest rank for collectives,
and means over ranks for arithmetic. Seconds on a slow link, since sizes stop growing where a transfer takes long.
"""

from collections.abc import Callable, Sequence
from statistics import median
from threading import Thread
from time import perf_counter

import torch

from laconic.comm.protocol import Comm, Pending
from laconic.exchange import Op, wire_bytes
from laconic.planning.link import Curves, Line, bend
from laconic.world import Scope

MESSAGE_SIZES = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)  # bytes
LONG = 0.2  # seconds after which larger messages are left out
REPEATS = 5
SQUARE, ALONE = 96, 200  # the matrix whose products are counted, and how many tell what one takes
Tell = Callable[[str], None]


def measure_links(
    comm: Comm, tell: Tell = lambda _: None, message_sizes: Sequence[int] = MESSAGE_SIZES, repeats: int = REPEATS
) -> Curves:
    """A fitted line for every op and scope."""
    alone = comm.world.node_size in (1, comm.world.size)
    curves: dict[tuple[Op, Scope], tuple[Line, ...]] = {}
    for scope in Scope:
        for op in (Op.SUM, Op.GATHER, Op.SCATTER):
            if comm.world.sizes[scope] == 1:
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
            curves[op, scope] = (bend(sizes, times, f"{op.value} {scope.value}"),)
    return curves


def measure_handling(comm: Comm, nbytes: int = 1 << 20, repeats: int = 5) -> float:
    """A core's seconds for every byte that a rank sends in a sum over the world: calls, copies, additions, interrupts.

    It is what a rank that computes meanwhile loses, since interrupts are on nobody's account.
    """
    square, data, lost = torch.randn(SQUARE, SQUARE), torch.zeros(nbytes // 4), []
    for _ in range(repeats):
        comm.start(Op.SUM, Scope.WORLD, torch.zeros(1), 0).wait()  # all begin together
        began = perf_counter()
        for _ in range(ALONE):
            torch.mm(square, square)
        product = (perf_counter() - began) / ALONE
        comm.start(Op.SUM, Scope.WORLD, torch.zeros(1), 0).wait()
        began, done = perf_counter(), 0
        waiting = Thread(target=comm.start(Op.SUM, Scope.WORLD, data, 0).wait)
        waiting.start()
        while waiting.is_alive():
            torch.mm(square, square)
            done += 1
        lost.append(perf_counter() - began - done * product)
        waiting.join()
    sent = wire_bytes(Op.SUM, nbytes, comm.world.size)
    mean = float(comm.gather(torch.tensor([median(lost)], dtype=torch.float64)).mean())
    return max(0.0, mean) / sent if sent else 0.0


def _collective(comm: Comm, op: Op, scope: Scope, nbytes: int, repeats: int) -> float:
    """Seconds of one collective: the median of several, on the slowest rank."""
    size = comm.world.sizes[scope]
    seen = []
    for turn in range(repeats + 1):
        data = torch.zeros(nbytes // 4 // size * size, device=comm.device)
        _finish(comm.start(Op.SUM, Scope.WORLD, data.new_zeros(1), 0))  # all begin together
        began = perf_counter()
        _finish(comm.start(op, scope, data.view(size, -1) if op is Op.SCATTER else data, 0))
        if turn:  # the first one opens connections
            seen.append(perf_counter() - began)
    return float(comm.gather(torch.tensor([median(seen)], dtype=torch.float64)).max())


def _finish(pending: Pending) -> None:
    """Wait until the result is there, also where `wait` lets a stream wait and not this thread."""
    pending.wait().flatten()[:1].tolist()
