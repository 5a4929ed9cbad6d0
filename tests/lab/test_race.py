"""Races: what is measured agrees with arithmetic, equal methods stay equal, a failing one is named and left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
import torch

from laconic.cli import main
from laconic.errors import InvalidConfig
from laconic.lab import records, workloads
from laconic.lab.entrant import Entrant
from laconic.lab.layout import Layout
from laconic.lab.matrix import commit
from laconic.lab.methods import parse_methods
from laconic.lab.namespaces import NoPermission
from laconic.lab.network import ShapedNetwork, open_network
from laconic.lab.paced import PacedNetwork
from laconic.lab.race import Course, Race
from laconic.lab.rates import Rate, Schedule
from laconic.lab.standings import standings
from laconic.lab.team import Team, TeamFailed

from .processes import gone


def networks() -> str | None:
    """Why there are no namespaces here, if so."""
    for user in (False, True):
        try:
            ShapedNetwork(Layout(1), Rate(None), user=user).close()
            return None
        except NoPermission as refusal:
            reason = str(refusal)
    return reason


NO_NETWORK = networks()
needs_network = pytest.mark.skipif(NO_NETWORK is not None, reason=f"no network namespaces: {NO_NETWORK}")


def course(methods: str, rate: str = "1gbit", **options: object) -> Course:
    settled = {"steps": 6, "turn": 2, "warmup": 2, "evaluations": 1, "patience": 60.0} | options
    return Course("mlp", Layout(2), Schedule.parse(rate), parse_methods(methods), **settled)  # type: ignore[arg-type]


@needs_network
@pytest.mark.timeout(400)
def test_a_race_measures_what_arithmetic_says() -> None:
    run = course("noop;dense;Dense;TopK(density=0.01)", rate="1gbit for 4 steps, then 100mbit")
    race = Race(run)
    race.run()
    rows = {row.method: row for row in standings(race)}
    assert {row.status for row in rows.values()} == {"ok"}, [row.failure for row in rows.values()]
    # The kernel counts the payload, 4.6% of headers, and acknowledgements; nothing crosses when nothing is sent.
    for name in ("dense", "Dense", "TopK(density=0.01)"):
        computed = rows[name].computed_bytes_per_step
        assert computed is not None
        assert 1.0 <= (rows[name].wire_bytes_per_step or 0) / computed < 1.15, name
    assert (rows["noop"].wire_bytes_per_step or 0) < 1000
    # Half of the timed steps had a link of 100 Mbit/s: no method is faster than its bytes allow.
    bytes_per_step = rows["dense"].computed_bytes_per_step or 0
    assert (rows["dense"].ms_per_step or 0) >= 1e3 * bytes_per_step * (1 / 125e6 + 1 / 12.5e6) / 2
    # Plain DDP and laconic's all-dense plan are the same arithmetic, bit by bit.
    losses = {e.method.name: [entry["loss"] for entry in e.losses] for e in race.entrants}
    assert losses["dense"] == losses["Dense"]
    assert rows["dense"].loss == rows["Dense"].loss
    assert rows["noop"].loss is None
    assert rows["noop"].of_limit == 1.0
    assert rows["dense"].over_dense == 1.0
    assert {"workload", "hosts", "rate", "method", "ms_per_step", "of_limit", "over_dense", "wire_bytes_per_step",
            "loss", "seeds"} <= set(json.loads(rows["dense"].json()))  # fmt: skip
    written = {run.name: run for run in records.of_race(race, rows.values())}
    assert [event["step"] for event in written["dense"].of("loss")] == list(range(6))
    assert len(written["TopK(density=0.01)"].of("step")) == 6
    assert written["TopK(density=0.01)"].first("start")["world"] == 2


@needs_network
@pytest.mark.timeout(400)
def test_a_method_whose_worker_dies_is_reported_and_the_race_goes_on() -> None:
    killed: list[int] = []

    def kill_one_worker(entrants: list[Entrant]) -> None:
        if not killed and entrants[-1].step >= 2:
            killed.append(race.teams[entrants[1].method].pids[0])
            os.kill(killed[0], signal.SIGKILL)

    race = Race(course("dense;fp16"), kill_one_worker)
    dense, fp16 = race.run()
    assert dense.status == "done"
    assert fp16.status == "crashed"
    assert fp16.failure is not None
    assert "SIGKILL" in fp16.failure
    assert dense.step == 6
    row = standings(race)[1]
    assert (row.status, row.failure) == ("crashed", fp16.failure)


@needs_network
@pytest.mark.timeout(400)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=str)
def test_a_race_that_is_ended_leaves_no_process(end: signal.Signals) -> None:
    script = """
        import signal
        from laconic.lab.layout import Layout
        from laconic.lab.methods import parse_methods
        from laconic.lab.race import Course, Race
        from laconic.lab.rates import Schedule

        def watch(entrants):
            if entrants[0].status == "running" and entrants[0].step == 0:
                print(*(pid for team in race.teams.values() for pid in team.pids), flush=True)

        race = Race(Course("mlp", Layout(2), Schedule.parse("50mbit"), parse_methods("dense"), turn=2), watch)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits "ignore"
        race.run()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    process.send_signal(end)  # in the middle of a collective: 13 MB at 50 Mbit/s take two seconds
    assert process.wait(60) != 0
    assert gone(workers)


@pytest.mark.timeout(400)
def test_a_paced_race_is_labelled_and_no_faster_than_its_model() -> None:
    run = course("dense;TopK(density=0.01)", rate="500mbit", network="paced")
    race = Race(run)
    race.run()
    rows = {row.method: row for row in standings(race)}
    assert {row.network for row in rows.values()} == {"paced"}
    assert {row.status for row in rows.values()} == {"ok"}, [row.failure for row in rows.values()]
    bytes_per_step = rows["dense"].wire_bytes_per_step or 0
    assert bytes_per_step == pytest.approx(rows["dense"].computed_bytes_per_step)
    assert (rows["dense"].ms_per_step or 0) >= 1e3 * bytes_per_step / 62.5e6


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        ("import sys; sys.exit('out of luck')", "crashed", "out of luck"),
        ("import os; os.abort()", "crashed", "SIGABRT"),
        ("input()", "hung", "no answer to starting from rank 0, 1 within 1 s"),
    ],
)
def test_a_team_that_fails_says_how(script: str, kind: str, says: str) -> None:
    team = Team(PacedNetwork(Layout(2), Rate(None)), 29500, ("-c", script))
    with pytest.raises(TeamFailed) as failure:
        team.hear(1.0 if kind == "hung" else 30.0, "starting")
    team.close()
    assert failure.value.kind == kind
    assert says in failure.value.detail
    for pid in team.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.timeout(300)
def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        team = Team(PacedNetwork(Layout(2), Rate(None)), taken.getsockname()[1])
        order = {"do": "prepare", "workload": "mlp", "method": "dense", "seed": 0, "data": None, "timeout": 5.0}
        order |= {"record": None, "paced": True, "rate": 0}
        try:
            team.hear(120.0, "starting")
            with pytest.raises(TeamFailed, match=r"(?i)address already in use|EADDRINUSE"):
                team.ask(order, 60.0)
        finally:
            team.close()


def test_without_the_tools_a_network_is_paced_or_refused(monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "")
    assert isinstance(open_network(Layout(2), Rate(None)), PacedNetwork)
    assert main(["race", "--network", "root"]) == 1
    assert "unshare is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workload", "bert"], "workload='bert'"),
        (["--methods", "zip"], "methods='zip'"),
        (["--methods", "torch-powersgd"], "give a rank"),
        (["--methods", "TopK(density=2)"], "density"),
        (["--methods", "dense;dense"], "once"),
        (["--rate", "quick"], "rate='quick'"),
        (["--hosts", "none"], "hosts='none'"),
        (["--steps", "3"], "steps=3"),
        (["--seeds", "0"], "seeds=0"),
        (["--network", "wifi"], "network='wifi'"),
        (["--data", "/nowhere/text"], "data='/nowhere/text'"),
        (["--report", "/nowhere/report.html"], "report='/nowhere/report.html'"),
    ],
)
def test_bad_input_is_named_with_exit_code_2(arguments: list[str], says: str, capsys) -> None:
    assert main(["race", *arguments]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert "Traceback" not in captured.err


@needs_network
@pytest.mark.timeout(400)
def test_a_matrix_goes_on_where_it_stopped(tmp_path, capsys) -> None:
    output, page = tmp_path / "results.jsonl", tmp_path / "results.md"
    arguments = ["matrix", "--workloads", "mlp", "--rates", "1gbit", "--methods", "noop;dense", "--steps", "4"]
    arguments += ["--warmup", "1", "--turn", "2", "--output", str(output), "--page", str(page)]
    assert main(arguments) == 0
    first, text = output.read_text(), page.read_text()
    assert len(first.splitlines()) == 2
    assert "## mlp, 2 hosts, 1gbit" in text
    assert "| `dense` |" in text
    assert (f"Raced at commit {commit()}." in text) == (commit() is not None)
    output.write_text(first + '{"workload": "ml')  # as a kill in the middle of a line would leave it
    assert main(arguments) == 0
    assert output.read_text() == first  # the same figures: nothing was raced again
    output.write_text("no result\n" + first)
    assert main(arguments) == 2


def test_without_git_results_have_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() is None


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_workloads_are_the_same_for_a_seed_and_differ_by_rank(name: str) -> None:
    workload = workloads.find(name)
    data = workload.data(None)
    one, two = next(data.batches(4, 0, 7)), next(workload.data(None).batches(4, 0, 7))
    other = next(data.batches(4, 1, 7))
    assert all(a.equal(b) for a, b in zip(one, two, strict=True))
    assert not one[0].equal(other[0])
    model, again = workload.build(3), workload.build(3)
    assert all(a.equal(b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    size = sum(parameter.numel() for parameter in model.parameters())
    assert 2.5e6 < size < 4.5e6


def test_another_optimizer_and_its_rate() -> None:
    """In its own words, or refused before anything starts."""
    workload = workloads.find("lstm").trained_with("adam:0.002")
    optimizer = workload.optimize(workload.build(0))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0]["lr"] == 0.002
    for text in ("adam", "adam:", "rmsprop:0.1", "sgd:-1", "sgd:nan"):
        with pytest.raises(InvalidConfig, match="optimizer"):
            workloads.find("lstm").trained_with(text)


def test_data_files_are_read_or_refused(tmp_path) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 1000)
    inputs, targets = next(workloads.find("gpt").data(str(text)).batches(2, 0, 0))
    assert inputs[:, 1:].equal(targets[:, :-1])
    for name in ("gpt", "vgg"):
        with pytest.raises(InvalidConfig, match="data="):
            workloads.find(name).data(str(tmp_path / "absent"))
    with pytest.raises(InvalidConfig, match="npz"):
        workloads.find("vgg").data(str(text))
