"""What every method's processes are given alike."""

import os
import platform

import pytest

from laconic.lab.layout import Layout
from laconic.lab.paced import PacedNetwork
from laconic.lab.rates import Rate
from laconic.lab.team import Team

BLOCKS, TIMES = 40, 10
AGAIN = f"""
import json, resource, sys
def fill():
    [b"1" * (1 << 20) for _ in range({BLOCKS})]  # all held until the last is there
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({TIMES}):
    fill()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps({{"touched": faults * resource.getpagesize()}}), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how memory is kept is glibc's")
@pytest.mark.parametrize(("threshold", "least", "most"), [(None, 0.0, 0.1), ("65536", 1.0, 1.1)])
def test_workers_keep_the_memory_that_they_free_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, threshold: str | None, least: float, most: float
) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    if threshold:
        monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", threshold)
    team = Team(PacedNetwork(Layout(2), Rate(None)), 29500, ("-c", AGAIN))
    try:
        touched = [answer["touched"] for answer in team.hear(30.0, "filling memory")]
    finally:
        team.close()
    assert all(least <= each / (TIMES * BLOCKS << 20) <= most for each in touched), touched


def test_a_machine_keeps_to_its_own_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core has no share")
    team = Team(PacedNetwork(Layout(2), Rate(None)), 29500, ("-c", "input()"))
    try:
        one, two = (os.sched_getaffinity(pid) for pid in team.pids)
    finally:
        team.close()
    assert len(one) == len(two) == len(cores) // 2
    assert not one & two
