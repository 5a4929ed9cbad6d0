"""Buffers that are lent for the length of a conversation and used again in the next step."""

import threading
from bisect import bisect_left, insort

import torch
from torch import Tensor

GRAIN = 256  # sizes are rounded up to this many bytes, so that nearly equal requests share a buffer


class Arena:
    """A stock of memory. It grows to what one step needs at a time, and stays there."""

    def __init__(self) -> None:
        self._free: dict[torch.device, list[tuple[int, int, Tensor]]] = {}
        self._lock = threading.Lock()
        self._made = 0
        self.nbytes = 0

    def take(self, nbytes: int, device: torch.device) -> Tensor:
        """A buffer of at least `nbytes` bytes: the smallest that fits, unless it is more than twice too large."""
        size = -(-max(1, nbytes) // GRAIN) * GRAIN
        with self._lock:
            stock = self._free.setdefault(device, [])
            at = bisect_left(stock, (size,))
            if at < len(stock) and stock[at][0] <= 2 * size:
                return stock.pop(at)[2]
            self.nbytes += size
        return torch.empty(size, dtype=torch.uint8, device=device)

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back."""
        with self._lock:
            self._made += 1
            insort(self._free.setdefault(buffer.device, []), (buffer.numel(), self._made, buffer))


class Lease:
    """What one bucket has borrowed in this step."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._held: list[Tensor] = []

    def take(self, numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A flat tensor, uninitialised, until `release`."""
        buffer = self._arena.take(numel * dtype.itemsize, device)
        self._held.append(buffer)
        return buffer[: numel * dtype.itemsize].view(dtype)

    def release(self) -> None:
        """Everything back."""
        while self._held:
            self._arena.give(self._held.pop())
