"""Buffers that are lent for the length of a conversation and used again in the next step."""

import threading
from bisect import bisect_left, bisect_right
from math import prod

import torch
from torch import Tensor

GRAIN = 256  # sizes are rounded up to this many bytes, so that nearly equal requests share a buffer
FORMS = 32  # shapes of a buffer that are remembered: plans come and go
IDLE = 2  # steps after which an unused buffer is let go: buckets were rebuilt, or the plan has changed


_Stock = tuple[list[int], list[tuple[int, Tensor]]]  # sizes, ascending; for each the step of last use, and the buffer


class Arena:
    """A stock of memory. It follows what one step needs at a time."""

    def __init__(self) -> None:
        self._free: dict[torch.device, _Stock] = {}
        self._lock = threading.Lock()
        self._step = 0
        self._forms: dict[int, dict[tuple[tuple[int, ...], torch.dtype], Tensor]] = {}
        self.nbytes = 0

    def take(self, nbytes: int, device: torch.device) -> Tensor:
        """A buffer of at least `nbytes` bytes: the smallest that fits, unless it is more than twice too large."""
        size = -(-max(1, nbytes) // GRAIN) * GRAIN
        with self._lock:
            sizes, buffers = self._stock(device)
            at = bisect_left(sizes, size)
            if at < len(sizes) and sizes[at] <= 2 * size:
                latest = bisect_right(sizes, sizes[at], at) - 1  # so that what is too many falls idle
                del sizes[latest]
                return buffers.pop(latest)[1]
            self.nbytes += size
        return torch.empty(size, dtype=torch.uint8, device=device)

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back."""
        with self._lock:
            sizes, buffers = self._stock(buffer.device)
            at = bisect_right(sizes, size := buffer.numel())
            sizes.insert(at, size)
            buffers.insert(at, (self._step, buffer))

    def _stock(self, device: torch.device) -> "_Stock":
        found = self._free.get(device)
        if found is None:
            found = self._free[device] = ([], [])
        return found

    def form(self, buffer: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A buffer's beginning as a tensor of this shape, made once: in a step it costs as much as some arithmetic."""
        known = self._forms.get(buffer.data_ptr())
        if known is None:
            known = self._forms[buffer.data_ptr()] = {}
        made = known.get((shape, dtype))
        if made is None:
            if len(known) >= FORMS:
                known.clear()
            made = known[shape, dtype] = buffer[: prod(shape) * dtype.itemsize].view(dtype).view(shape)
        return made

    def close_step(self) -> None:
        """Let go of what no step has used lately."""
        with self._lock:
            self._step += 1
            for sizes, buffers in self._free.values():
                for at in range(len(buffers) - 1, -1, -1):
                    if buffers[at][0] < self._step - IDLE:
                        self.nbytes -= sizes[at]
                        self._forms.pop(buffers[at][1].data_ptr(), None)
                        del sizes[at], buffers[at]


class Window:
    """How much gradient may be between encoding and arrival: as much as two of the largest bucket, where buckets that
    travel together are one.

    One is on the wire while the next is encoded; more would wait in memory for a link that is busy anyway. Whoever is
    inside never waits for whoever is not, and buckets enter in order, so that nothing can stand still.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = self._largest = 0

    def enter(self, nbytes: int) -> None:
        """Wait for room."""
        with self._changed:
            self._largest = max(self._largest, nbytes)
            self._changed.wait_for(lambda: not self._inside or self._inside + nbytes <= 2 * self._largest)
            self._inside += nbytes

    def leave(self, nbytes: int) -> None:
        """Make room."""
        with self._changed:
            self._inside -= nbytes
            self._changed.notify_all()


class Lease:
    """What one bucket has borrowed in this step."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._held: dict[int, Tensor] = {}

    def take(self, numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A flat tensor, uninitialised, until `drop` or `release`."""
        return self.rows((numel,), dtype, device)

    def rows(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The same in another shape."""
        buffer = self._arena.take(prod(shape) * dtype.itemsize, device)
        self._held[buffer.data_ptr()] = buffer
        return self._arena.form(buffer, shape, dtype)

    def drop(self, tensor: Tensor) -> None:
        """Give back what `take` returned, if this is such a tensor."""
        buffer = self._held.pop(tensor.data_ptr(), None)
        if buffer is not None:
            self._arena.give(buffer)

    def release(self) -> None:
        """Everything back."""
        while self._held:
            self._arena.give(self._held.popitem()[1])
