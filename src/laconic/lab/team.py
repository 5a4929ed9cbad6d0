"""The processes of one method, seen from outside: started, told what to do, and ended without a trace."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

from laconic.errors import LaconicError
from laconic.lab.network import Network

# glibc gives freed memory back to the kernel and asks for it again in every step, more or less of it by how a process's
# heap happens to lie: up to a quarter of a step, and a fifth between two processes that do the same.
KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(4 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}


class TeamFailed(LaconicError, RuntimeError):
    """A method's workers crashed or stopped answering; `kind` is which."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


class Team:
    """One worker a rank, each in its machine's namespace and in a process group of its own.

    What they print goes to files without a name, which are gone when we are. `passed` is a file that they inherit.
    """

    def __init__(
        self,
        network: Network,
        port: int,
        command: Sequence[str] = ("-m", "laconic.lab.worker"),
        passed: IO[bytes] | None = None,
    ) -> None:
        self._workers: list[subprocess.Popen[str]] = []
        self._logs = [tempfile.TemporaryFile() for _ in range(network.layout.world)]  # noqa: SIM115  (closed in close)
        layout = network.layout
        for rank in range(layout.world):
            machine = layout.machine_of(rank)
            environment = {**KEEPS_MEMORY, **os.environ} | {
                "RANK": str(rank),
                "WORLD_SIZE": str(layout.world),
                "LOCAL_RANK": str(rank % layout.ranks),
                "LOCAL_WORLD_SIZE": str(layout.ranks),
                "MASTER_ADDR": network.address(0),
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "PYTHONWARNINGS": "ignore",
            }
            if network.device:
                environment["GLOO_SOCKET_IFNAME"] = network.device
            self._workers.append(
                subprocess.Popen(
                    [*network.prefix(machine), sys.executable, *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._logs[rank],
                    text=True,
                    env=environment,
                    pass_fds=[passed.fileno()] if passed else [],
                    start_new_session=True,
                )
            )
            if hasattr(os, "sched_setaffinity"):  # a machine's threads do not run on another's cores
                cores = layout.share(machine, sorted(os.sched_getaffinity(0)))
                os.sched_setaffinity(self._workers[-1].pid, cores)
        self._unread = [""] * layout.world

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def tell(self, order: dict[str, Any]) -> None:
        """Send an order to every worker."""
        for rank, worker in enumerate(self._workers):
            assert worker.stdin
            try:
                worker.stdin.write(json.dumps(order) + "\n")
                worker.stdin.flush()
            except BrokenPipeError:
                raise self._crash(rank) from None

    def ask(self, order: dict[str, Any], limit: float) -> list[dict[str, Any]]:
        """Send an order and wait for every worker's answer."""
        self.tell(order)
        return self.hear(limit, str(order["do"]))

    def hear(self, limit: float, about: str) -> list[dict[str, Any]]:
        """One answer of every worker, in rank order, within `limit` seconds."""
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as waiting:
            for rank, worker in enumerate(self._workers):
                assert worker.stdout
                waiting.register(worker.stdout, selectors.EVENT_READ, rank)
            while len(answers) < len(self._workers):
                ready = waiting.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    silent = [rank for rank in range(len(self._workers)) if rank not in answers]
                    named = ", ".join(map(str, silent))
                    raise TeamFailed("hung", f"no answer to {about} from rank {named} within {limit:.0f} s")
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 20).decode()
                    if not chunk:
                        raise self._crash(key.data)
                    self._unread[key.data] += chunk
                    if "\n" in chunk:
                        line, _, self._unread[key.data] = self._unread[key.data].partition("\n")
                        answers[key.data] = json.loads(line)
                        waiting.unregister(key.fileobj)
        return [answers[rank] for rank in range(len(self._workers))]

    def _crash(self, rank: int) -> TeamFailed:
        """What the first worker that ended had to say. The others follow it within moments; the first is the cause."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._workers[rank].wait(5)
        lines = [line for line in contents(self._logs[rank]).splitlines() if line.strip()]
        code = self._workers[rank].returncode
        how = f"signal {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
        return TeamFailed("crashed", f"rank {rank} ended with {how}: {lines[-1][:300] if lines else 'no message'}")

    def close(self) -> None:
        """End every worker, by force if need be."""
        for worker in self._workers:
            if worker.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
            for stream in (worker.stdin, worker.stdout):
                with contextlib.suppress(BrokenPipeError):
                    assert stream
                    stream.close()
            worker.wait()
        for log in self._logs:
            log.close()


def contents(file: IO[bytes]) -> str:
    """What a file holds, read without moving the place where others write."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
