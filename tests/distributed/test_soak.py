"""A long run with random deaths: torchrun restarts it until it is done; it fails if no step completes for a while."""

import random
import re
import time
from pathlib import Path

import pytest
from test_torchrun import start

STEPS, DEATHS, SILENCE = 120, 4, 90.0  # silence: seconds without a completed step that fail the test


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_with_random_kills_goes_on_and_ends_with_one_model(tmp_path: Path) -> None:
    rng = random.Random(0)
    with start(tmp_path, str(STEPS), "--tell", "--timeout", "30", restarts=DEATHS + 2) as job:
        last, progress, deaths, aim = 0, time.monotonic(), 0, rng.randint(5, 25)
        while job.process.poll() is None:
            assert time.monotonic() - progress < SILENCE, f"no step for {SILENCE:.0f} s after step {last}\n{job.said()}"
            seen = re.findall(r"rank (\d) pid (\d+) step (\d+)", job.said())
            if seen and int(seen[-1][2]) != last:
                last, progress = int(seen[-1][2]), time.monotonic()
                if deaths < DEATHS and last >= aim:
                    job.kill(int(rng.choice(seen[-2:])[1]))
                    deaths, aim = deaths + 1, last + rng.randint(5, 25)
            time.sleep(0.02)
        assert job.process.returncode == 0, job.said()
    assert deaths == DEATHS
    assert len({(tmp_path / f"bits-{rank}").read_text() for rank in range(2)}) == 1
