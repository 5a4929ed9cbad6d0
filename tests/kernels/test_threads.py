"""Threads that help with large layers: for several callers at a time, after a fork, and gone at the end."""

import subprocess
import sys
from threading import Thread
from types import ModuleType

import pytest
import torch

from laconic.kernels import reference

CALLERS, CALLS = 4, 6


def test_several_callers_at_a_time(native: ModuleType, two_threads: None) -> None:
    n = 2 * native.LARGE + 321
    rng = torch.Generator().manual_seed(1)
    inputs = [torch.randn(n, generator=rng) for _ in range(CALLERS)]
    expected = []
    for g in inputs:
        x, signs = g.clone(), torch.zeros(-(-n // 8), dtype=torch.uint8)
        reference.sign(x, None, signs, True)
        expected.append((x, signs))
    good = [0] * CALLERS

    def call(which: int) -> None:
        for _ in range(CALLS):
            x, signs = inputs[which].clone(), torch.zeros(-(-n // 8), dtype=torch.uint8)
            native.sign(x, None, signs, True)
            good[which] += torch.equal(x, expected[which][0]) and torch.equal(signs, expected[which][1])

    callers = [Thread(target=call, args=(which,)) for which in range(CALLERS)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert good == [CALLS] * CALLERS


FORK = """
import os, torch
from laconic.kernels import native
torch.set_num_threads(2)
n = 4 * native.LARGE
x = torch.ones(n)
assert native.fold(x, x.clone()) == 4.0 * n  # the parent's helpers are there
child = os.fork()
if child == 0:  # no torch arithmetic here: its own threads do not survive a fork
    os._exit(0 if native.energy(x) == 4.0 * n and native.energy(x) == 4.0 * n else 3)
assert native.energy(x) == 4.0 * n
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("both")
"""


def test_a_child_has_helpers_of_its_own() -> None:
    pytest.importorskip("laconic.kernels.native", exc_type=ImportError)
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout.strip()) == (0, "both"), done.stderr
