"""The GPU kernels, run by Triton's interpreter on CPU tensors, write the reference's bytes."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = """
import torch
from laconic.kernels import triton as backend
from tests.kernels.cases import fold, narrow, quantize, requantize, settle, sign
from tests.kernels.test_identity import FILLS, compare

for case in (fold, settle, quantize, requantize, sign, narrow):
    for fill in ("normal", "ties", "subnormal", "huge", "signed zeros", "not a number"):
        for n in (0, 1, 17, 1025, 5003):
            rng = torch.Generator().manual_seed(n)
            for seed in range(4 if case is quantize else 1):
                compare(backend, case, FILLS[fill](n, rng), torch.randn(n, generator=rng), 1, seed)
print("equal")
"""


def test_same_bytes_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=os.getcwd(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "equal"
