"""The examples run as their first lines say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def torchrun(*command: object) -> str:
    return run("-m", "torch.distributed.run", "--standalone", *command)


@pytest.mark.parametrize("compressor", ["Chain(TopK(density=0.1), Quantize(bits=8))", None])
def test_training_reaches_the_same_accuracy_with_and_without(compressor: str | None) -> None:
    extra = ["--compressor", compressor] if compressor else []
    printed = torchrun("--nproc-per-node", 2, EXAMPLES / "train.py", "--steps", 300, *extra)
    accuracy = float(printed.split("not seen: ")[1].split("%")[0])
    assert accuracy > 85, printed
    assert ("TopK" in printed) == bool(compressor)


def test_machines_of_several_ranks_train_save_and_go_on(tmp_path: Path) -> None:
    command = ["--nproc-per-node", 2, EXAMPLES / "multi_node.py", "--steps", 5, "--checkpoint", tmp_path]
    assert "step 5:" in torchrun(*command)
    resumed = torchrun(*command)
    assert "step 10:" in resumed
    assert "rank 1: resumed at step 5" in resumed


def test_a_compressor_of_ones_own_keeps_the_laws() -> None:
    assert "every rank agrees" in run(EXAMPLES / "own_compressor.py")
