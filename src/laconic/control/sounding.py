"""What the link takes right now: a few messages of known length, beside a step's forward pass, on the control lane.

A compressed step's own messages are short and wait for each other, and tell a link's rate badly.
"""

from time import perf_counter

import torch

from laconic.comm.protocol import Comm
from laconic.stats import Sounding

SIZES = (1 << 12, 1 << 16, 1 << 19)  # bytes
TIMES, ENOUGH = 3, 0.05  # of each size so many, or fewer where they take so many seconds together
LONG = 0.02  # seconds: after a message that takes longer, there is no larger one


def sound(comm: Comm) -> Sounding:
    """Bytes and seconds of gathers, the quickest of each size on the slowest rank; alike on every rank."""
    found: list[tuple[int, float]] = []
    for nbytes in SIZES:
        data, seen = torch.zeros(nbytes, dtype=torch.uint8), list[float]()
        while len(seen) < TIMES and sum(seen) < ENOUGH:
            comm.gather(data[:1])  # all begin together
            began = perf_counter()
            comm.gather(data)
            took = torch.tensor([perf_counter() - began], dtype=torch.float64)
            seen.append(float(comm.gather(took).max()))
        found.append((nbytes, min(seen)))
        if len(found) > 1 and found[-1][1] > LONG:
            break
    return tuple(found)
