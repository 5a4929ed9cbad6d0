"""The GPU kernels, run by Triton's interpreter on CPU tensors, write the reference's bytes."""

import os
import subprocess
import sys

import pytest

from tests.kernels.cases import CASES, Case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = """
import sys
import torch
from laconic.kernels import reference, triton as backend
from tests.kernels import cases
from tests.kernels.test_identity import FILLS, compare

case = getattr(cases, sys.argv[1])
for fill in ("normal", "ties", "sparse", "subnormal", "huge", "all scales", "signed zeros", "not a number"):
    for n in (0, 1, 17, 1025, 2600):
        rng = torch.Generator().manual_seed(n)
        for seed in range(4 if case is cases.quantize else 2):
            compare(backend, case, FILLS[fill](n, rng), torch.randn(n, generator=rng) if seed % 2 else None, 1, seed)
x = torch.randn(1500, generator=torch.Generator().manual_seed(3))
for l2 in (False, True):
    if case is cases.quantize:
        want, got = reference.quantize_errors(x, 100, l2), backend.quantize_errors(x, 100, l2)
        assert all(abs(a - b) <= 1e-10 * a for a, b in zip(want, got)), (want, got)
print("equal")
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_same_bytes_in_the_interpreter(case: Case) -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, case.__name__],
        env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=os.getcwd(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "equal"
