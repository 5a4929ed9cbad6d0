"""The probe: every rank ends with the same profile, and it can be planned with."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from laconic import TopK
from laconic.cli import main
from laconic.comm.loopback import Loopback
from laconic.errors import InvalidConfig
from laconic.exchange import Op
from laconic.integrations.prober import probe
from laconic.planning.advice import advise
from laconic.planning.profile import Profile
from laconic.world import Scope


def task() -> tuple[nn.Module, object]:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    x = torch.randn(8, 64)
    return model, lambda: model(x).square().mean()


def test_every_rank_ends_with_the_same_profile():
    comms = Loopback.ranks(4, node_size=2)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda comm: probe("net", *task(), comm, [TopK(density=0.01)], 3), comms))
    assert len({profile.to_json() for profile in made}) == 1
    profile = made[0]
    assert Profile.from_json(profile.to_json()) == profile
    assert {(op, scope) for op, scope in profile.links} == {
        (op, scope) for op in (Op.SUM, Op.GATHER, Op.SCATTER) for scope in Scope
    }
    assert all(line.alpha + line.beta > 0 for lines in profile.links.values() for line in lines)
    assert set(profile.kernels) == {("Cast(dtype='bf16')", "cpu"), ("TopK(density=0.01)", "cpu")}
    assert {"Dense", "TopK(density=0.01)", "Hierarchical(Dense, Divided(TopK(density=0.01)))"} <= set(profile.talks)
    assert 1 <= profile.cores <= 2
    advice = advise(profile, [TopK(density=0.01)])
    assert advice.bound <= advice.predicted <= advice.dense


def test_the_last_layer_is_ready_first():
    (comm,) = Loopback.ranks(1)
    trace = probe("net", *task(), comm, [], 5).trace
    names = [layer.name for layer in trace.layers]
    assert set(names[:2]) == {"2.weight", "2.bias"}
    assert set(names[2:]) == {"0.weight", "0.bias"}
    assert trace.forward > 0
    assert trace.after >= 0


def test_a_model_that_cannot_be_traced_is_named():
    (comm,) = Loopback.ranks(1)
    model, _ = task()
    with pytest.raises(InvalidConfig, match=r"2\.weight"):
        probe("net", model, lambda: model[0](torch.randn(8, 64)).square().mean(), comm, [], 1)
    model.requires_grad_(False)
    with pytest.raises(InvalidConfig, match="no parameters"):
        probe("net", model, lambda: torch.zeros(()), comm, [], 1)


def test_without_torchrun_it_says_how_to_start(capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert main(["probe"]) == 2
    assert "torchrun" in capsys.readouterr().err


@pytest.mark.timeout(110)
def test_under_torchrun(tmp_path, capsys):
    file = tmp_path / "profile.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "laconic"]
    words = ["probe", "-o", str(file), "--workload", "mlp", "--iterations", "2"]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=100, check=False, env=settings)
    assert done.returncode == 0, done.stderr[-2000:]
    assert main(["plan", "--profile", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == "mlp"
    assert told["bound_ms"] <= told["predicted_ms"] <= told["dense_ms"]
