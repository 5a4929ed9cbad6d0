"""The lab without a kernel's help: loopback, with each transfer held to the time that the modelled link would take.

Where namespaces cannot be had (macOS, a locked container), a process group wraps gloo's: a collective is done when gloo
has done it *and* the link, which carries one transfer after the other, would have. It is a model, and races over it
say so: one link per rank, ring collectives, no headers, no congestion.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from laconic.lab.layout import Layout
from laconic.lab.rates import Rate

BACKEND = "paced"
_c10d: Any = dist.distributed_c10d  # torch's stubs lack its groups' methods and options


class PacedNetwork:
    """Every rank on this machine's loopback; the workers pace themselves."""

    kind = "paced"
    device = None

    def __init__(self, layout: Layout, rate: Rate) -> None:
        self.layout, self.rate = layout, rate

    def prefix(self, machine: int) -> list[str]:
        return []

    def address(self, machine: int) -> str:
        return "127.0.0.1"

    def set_rate(self, rate: Rate) -> None:
        self.rate = rate

    def sent(self) -> None:
        return None

    def close(self) -> None:
        pass


class _Link:
    """This rank's link: busy until a moment, and what has crossed it."""

    def __init__(self) -> None:
        self.bytes_per_second = float("inf")
        self.sent = 0
        self._free = 0.0
        self._lock = threading.Lock()

    def carry(self, size: float) -> float:
        """Put `size` bytes on the link; when they will have crossed it."""
        with self._lock:
            self.sent += round(size)
            self._free = max(self._free, time.monotonic()) + size / self.bytes_per_second
            return self._free


_link = _Link()


def set_rate(bits: int) -> None:
    _link.bytes_per_second = bits / 8 if bits else float("inf")


def sent() -> int:
    return _link.sent


class _PacedWork(_c10d.Work):  # type: ignore[misc]
    """A gloo work that is not done before the link is."""

    def __init__(self, inner: Any, until: float, outputs: Any) -> None:
        super().__init__()
        self._inner, self._until, self._outputs = inner, until, outputs
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.Lock()

    def wait(self, timeout: Any = None) -> bool:
        self._inner.wait()
        time.sleep(max(0.0, self._until - time.monotonic()))
        return True

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed()) and time.monotonic() >= self._until

    def get_future(self) -> "torch.futures.Future[Any]":
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                threading.Thread(target=self._resolve, args=(self._future,), daemon=True).start()
            return self._future

    def _resolve(self, future: "torch.futures.Future[Any]") -> None:
        try:
            self.wait()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(self._outputs)


class PacedGroup(_c10d.ProcessGroup):  # type: ignore[misc]
    """gloo's collectives, each charged to the link as a ring would."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self._gloo = _c10d.ProcessGroupGloo(store, rank, size, timeout)
        self._size = size

    def getBackendName(self) -> str:
        return BACKEND

    def _pace(self, work: Any, size: float, outputs: Any) -> _PacedWork:
        return _PacedWork(work, _link.carry(size), outputs)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> _PacedWork:
        size = 2 * (self._size - 1) / self._size * _bytes(tensors)
        return self._pace(self._gloo.allreduce(tensors, opts or _c10d.AllreduceOptions()), size, tensors)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> _PacedWork:
        return self._pace(self._gloo.broadcast(tensors, opts), _bytes(tensors), tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> _PacedWork:
        work = self._gloo.allgather(outputs, inputs, opts or _c10d.AllgatherOptions())
        return self._pace(work, (self._size - 1) * _bytes(inputs), outputs)

    def _allgather_base(self, output: Tensor, given: Tensor, opts: Any = None) -> _PacedWork:
        work = self._gloo._allgather_base(output, given, opts or _c10d.AllgatherOptions())
        return self._pace(work, (self._size - 1) * _bytes([given]), output)

    all_gather_single = _allgather_base  # its name from torch 2.13 on

    def alltoall_base(self, output: Tensor, given: Tensor, out: Any, into: Any, opts: Any = None) -> _PacedWork:
        work = self._gloo.alltoall_base(output, given, out, into, opts or _c10d.AllToAllOptions())
        return self._pace(work, (self._size - 1) / self._size * _bytes([given]), output)

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None) -> _PacedWork:
        return self._pace(self._gloo.barrier(opts or _c10d.BarrierOptions()), 0, None)


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def register(bits: int) -> str:
    """Make the paced backend known to torch.distributed, at a rate; its name."""
    set_rate(bits)
    if not hasattr(dist.Backend, BACKEND.upper()):
        make: Callable[..., Any] = PacedGroup
        dist.Backend.register_backend(BACKEND, make, devices=["cpu"])
    return BACKEND
