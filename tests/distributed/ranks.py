"""Real ranks: N processes on a gloo group for one function, each with a deadline, its words and its traceback.

A rank is forked from a server that has imported torch once, so that a test pays for its own work and not for imports.
The ranks meet through a file, so that no port is shared and no rank's death takes the meeting point away.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

DEADLINE = 60.0  # seconds for a whole scene, on a machine that others use too
GROUP_TIMEOUT = 40.0  # seconds that a collective waits: above any honest delay here, below the deadline

os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONUNBUFFERED="1", TORCH_CPP_LOG_LEVEL="ERROR")
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["pytest", "torch", "torch._dynamo", "torch.nn.parallel", "laconic", "training"])


@dataclass
class Outcome:
    """How one rank ended."""

    rank: int
    exitcode: int | None  # None: it had to be killed at the deadline
    value: Any
    error: BaseException | None
    trace: str
    output: str
    seconds: float

    def __str__(self) -> str:
        end = f"killed after {self.seconds:.0f} s" if self.exitcode is None else f"exit code {self.exitcode}"
        return f"--- rank {self.rank}: {end}\n{self.output}"


@dataclass
class _Rank:
    process: Any
    folder: Path

    @property
    def pid(self) -> int:
        return int(self.process.pid)


class Scene:
    """Ranks under way."""

    def __init__(self, folder: Path, ranks: list[_Rank], deadline: float) -> None:
        self._folder, self._ranks, self._began, self._deadline = folder, ranks, time.monotonic(), deadline

    def await_stopped(self, rank: int) -> None:
        """Until the rank has stopped itself by SIGSTOP."""
        while self._state(rank) not in "T":
            assert time.monotonic() < self._began + self._deadline, f"rank {rank} was never stopped"
            time.sleep(0.01)

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self._ranks[rank].pid, number)

    def _state(self, rank: int) -> str:
        return Path(f"/proc/{self._ranks[rank].pid}/stat").read_text().rpartition(")")[2].split()[0]

    def end(self, whose: Iterable[int] | None = None) -> list[Outcome]:
        """Wait for these ranks, or for every rank, at most until the deadline."""
        wanted = list(range(len(self._ranks)) if whose is None else whose)
        ended: dict[int, Outcome] = {}
        while len(ended) < len(wanted):
            left = self._began + self._deadline - time.monotonic()
            waiting = [number for number in wanted if number not in ended]
            connection.wait([self._ranks[number].process.sentinel for number in waiting], max(0.0, left))
            for number in waiting:
                if self._ranks[number].process.exitcode is not None or left <= 0:
                    ended[number] = self._outcome(number, self._ranks[number])
        return [ended[number] for number in wanted]

    def _outcome(self, number: int, rank: _Rank) -> Outcome:
        seconds, exitcode = time.monotonic() - self._began, rank.process.exitcode
        if exitcode is None:
            self.close()
        value, error, trace = None, None, ""
        with contextlib.suppress(FileNotFoundError):
            value, error, trace = pickle.loads((rank.folder / "result").read_bytes())
        output = (rank.folder / "output").read_text(errors="replace") if (rank.folder / "output").exists() else ""
        return Outcome(number, exitcode, value, error, trace, output, seconds)

    def close(self) -> None:
        """Kill what is left."""
        for rank in self._ranks:
            if rank.process.exitcode is None:
                rank.process.kill()
        for rank in self._ranks:
            rank.process.join(10)


@contextlib.contextmanager
def scene(
    body: Callable[..., Any], world: int, deadline: float = DEADLINE, timeout: float = GROUP_TIMEOUT, **arguments: Any
) -> Iterator[Scene]:
    """Start `body(rank, **arguments)` on every rank of a gloo group."""
    with tempfile.TemporaryDirectory(prefix="laconic-ranks-") as name:
        folder, ranks = Path(name), []
        for number in range(world):
            own = folder / str(number)
            own.mkdir()
            spec = (body, number, world, folder / "store", own, deadline, timeout, arguments)
            process = _server.Process(target=_play, args=spec, daemon=True)  # type: ignore[attr-defined]
            process.start()
            ranks.append(_Rank(process, own))
        made = Scene(folder, ranks, deadline)
        try:
            yield made
        finally:
            made.close()


def outcomes(body: Callable[..., Any], world: int, **arguments: Any) -> list[Outcome]:
    """How every rank ended, whatever that was; nobody may hang."""
    with scene(body, world, **arguments) as ranks:
        ended = ranks.end()
    if any(one.exitcode is None for one in ended):
        pytest.fail("some ranks did not end\n" + "\n".join(map(str, ended)), pytrace=False)
    return ended


def run(body: Callable[..., Any], world: int, **arguments: Any) -> list[Any]:
    """What `body` returned on each rank; all must end well."""
    ended = outcomes(body, world, **arguments)
    if any(one.exitcode != 0 for one in ended):
        pytest.fail("\n".join(map(str, ended)), pytrace=False)
    return [one.value for one in ended]


def _play(
    body: Callable[..., Any], rank: int, world: int, store: Path, own: Path,
    deadline: float, timeout: float, arguments: dict[str, Any],
) -> None:  # fmt: skip
    """A rank's whole life."""
    output = os.open(own / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable()
    faulthandler.dump_traceback_later(deadline - 3, exit=False)  # where it hangs, if it does
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(0)
    limit = timedelta(seconds=timeout)
    meeting = dist.FileStore(str(store), world)
    meeting.set_timeout(limit)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=world, timeout=limit)
    try:
        result = (body(rank, **arguments), None, "")
    except BaseException as error:
        trace = traceback.format_exc()
        result = (None, _portable(error), trace)
        raise
    finally:
        (own / "partial").write_bytes(pickle.dumps(result))
        (own / "partial").rename(own / "result")
        sys.stdout.flush()
    dist.destroy_process_group()


def _portable(error: BaseException) -> BaseException:
    """The error if it survives pickling, otherwise its words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
