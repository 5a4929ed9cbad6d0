"""Whole programs under torchrun: they end when they are done, fail when a rank dies, and go on after a restart."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(420)  # two launches, with imports, on a machine that may be busy

JOB = Path(__file__).with_name("job.py")
SETTINGS = {
    **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(JOB.parent),
    # torch 2.13 lets all lives of a job share one store, in which the addresses of dead processes stay: after a restart
    # gloo's init_process_group itself, with or without laconic, may try to reach them. This gives each life its own.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}  # fmt: skip


@dataclass
class Job:
    """A launcher at work, in a session of its own."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def said(self) -> str:
        """Everything so far."""
        return self.output.read_text(errors="replace")

    def kill(self, pid: int) -> None:
        """End one of its workers, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def start(folder: Path, *arguments: str, restarts: int = 0) -> Iterator[Job]:
    """Launch the job on two ranks; whatever is left of it at the end is killed."""
    folder.mkdir(exist_ok=True)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launch += ["--max-restarts", str(restarts), "--monitor-interval", "0.1", str(JOB), str(folder), *arguments]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            launch, stdout=output, stderr=subprocess.STDOUT, env=SETTINGS, start_new_session=True
        )
        try:
            yield Job(process, folder / "output")
        finally:
            if process.poll() is None:
                process.terminate()  # the launcher takes its workers with it
                process.wait(60)


def torchrun(folder: Path, *arguments: str, restarts: int = 0, deadline: float = 200) -> tuple[int, str]:
    """The launcher's exit code and everything that was said."""
    with start(folder, *arguments, restarts=restarts) as job:
        try:
            return job.process.wait(deadline), job.said()
        except subprocess.TimeoutExpired:
            pytest.fail(f"torchrun did not end in {deadline} s\n{job.said()}", pytrace=False)


def _bits(folder: Path) -> set[str]:
    return {(folder / f"bits-{rank}").read_text() for rank in range(2)}


def _groups_at_exit(said: str) -> set[str]:
    found = re.findall(r"(\d+) groups at exit", said)
    assert len(found) == 2, said
    return set(found)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The end of a run in which nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, said = torchrun(folder, "9")
    assert code == 0, said
    assert len(_bits(folder)) == 1
    return _bits(folder)


def test_a_program_that_says_no_goodbye_still_ends_well(tmp_path: Path, undisturbed: set[str]) -> None:
    code, said = torchrun(tmp_path, "9", "--leave")
    assert code == 0, said
    assert "terminate" not in said, said
    assert _bits(tmp_path) == undisturbed
    assert _groups_at_exit(said) == {"1"}, said  # DDP's own, which was idle


def test_whoever_lets_go_of_the_model_and_destroys_the_group_leaves_no_thread_of_gloos(tmp_path: Path) -> None:
    code, said = torchrun(tmp_path, "9", "--let-go")
    assert code == 0, said
    assert _groups_at_exit(said) == {"0"}, said


def test_a_death_makes_the_launcher_fail_and_nobody_goes_on_alone(tmp_path: Path) -> None:
    code, said = torchrun(tmp_path, "9", "--die", "4", "--timeout", "30")
    assert code != 0, said
    assert "SIGKILL" in said or "-9" in said, said
    assert not (tmp_path / "bits-0").exists(), "the survivor went on alone"


def test_torchrun_restarts_and_the_run_ends_with_the_bits_of_one_that_never_died(
    tmp_path: Path, undisturbed: set[str]
) -> None:
    code, said = torchrun(tmp_path, "9", "--die", "7", "--timeout", "30", restarts=1)
    assert code == 0, said
    assert sorted(re.findall(r"rank \d: resumed at step 6", said)) == [f"rank {n}: resumed at step 6" for n in range(2)]
    assert _bits(tmp_path) == undisturbed


def test_after_detach_and_destroy_the_process_exits_by_itself_within_seconds(tmp_path: Path) -> None:
    """Without a launcher that could kill it: one rank alone, from its last word to its exit."""
    lonely = {**SETTINGS, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, str(JOB), str(tmp_path), "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=lonely)
    try:
        assert process.stdout is not None
        words = process.stdout.readline()
        said_at = time.monotonic()
        assert words == "rank 0: done\n", words + process.communicate(timeout=60)[1]
        _, errors = process.communicate(timeout=60)
        assert time.monotonic() - said_at < 10
        assert process.returncode == 0, errors
    finally:
        process.kill()
