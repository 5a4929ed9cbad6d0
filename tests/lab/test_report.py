"""The report and the trace: made from the documented record, shown by a real browser, without a network."""

import json
import math
import shutil
from pathlib import Path

import pytest

from laconic.cli import main
from laconic.lab.records import load
from laconic.lab.report import render
from laconic.lab.report.digest import digest
from laconic.lab.trace import trace_events

LAYERS = {"lstm.weight": {"numel": 40_000, "shape": [200, 200]}, "head.bias": {"numel": 96, "shape": [96]}}
NASTY = "</script><script>document.title='broken'</script>"


def attach_record(steps: int = 40) -> list[dict[str, object]]:
    """What attach(record=...) writes, with a change of plan half way."""
    plan = {"lstm.weight": "TopK(density=0.1)", "head.bias": "Dense"}
    events: list[dict[str, object]] = [
        {"event": "start", "time": 100.0, "version": "0", "world": 2, "plan": plan, "layers": LAYERS}
    ]
    for step in range(steps):
        sent = 12_000 if step < steps // 2 else 3_000
        now = 100.0 + 0.2 * (step + 1)
        events.append(
            {"event": "step", "step": step, "time": now, "wire_bytes": sent, "dense_bytes": 160_384,
             "compress_s": 0.01, "communicate_s": 0.05}
        )  # fmt: skip
        if step == 5:
            events += [
                {"event": "span", "step": 5, "lane": lane, "name": name, "start": 7 + start, "stop": 7 + stop}
                for lane, name, start, stop in (
                    ("backward", "backward", 0.0, 0.1),
                    ("encode", "bucket 0", 0.02, 0.03),
                    ("round 0", "bucket 0", 0.03, 0.08),
                )
            ]
        if step % 10 == 1:
            seen = {"wire_bytes": sent, "error": 0.5, "residual_norm": 0.25}
            events.append({"event": "layers", "step": step, "layers": {"lstm.weight": seen}})
    change = {"lstm.weight": ["TopK(density=0.1)", "TopK(density=0.01)"]}
    events.append({"event": "plan", "step": steps // 2, "changed": change, "why": "the link is slow"})
    return events


def race_record(method: str, ms: float, own: list[dict[str, object]]) -> list[dict[str, object]]:
    """The same as a race keeps it."""
    conditions = {"network": "2 hosts at 50mbit", "machine": NASTY}
    head = {"event": "race", "method": method, "summary": "", "workload": "lstm", "hosts": "2", "rate": "50mbit",
            "network": "paced", "parameters": 40_096, "conditions": conditions}  # fmt: skip
    losses = [
        {"event": "loss", "step": step, "loss": 4 * math.exp(-step / 30), "seconds": ms * step / 1e3,
         "wire_bytes": 1e5 * (step + 1), "time": 100.0 + step}
        for step in range(40)
    ]  # fmt: skip
    judged = [{**losses[step], "event": "evaluation", "accuracy": 0.5} for step in (19, 39)]
    result = {
        "event": "result",
        "method": method,
        "status": "ok",
        "ms_per_step": ms,
        "over_dense": 900 / ms,
        "of_limit": 200 / ms,
        "wire_bytes_per_step": 1e5,
        "loss": 1.2,
        "accuracy": 0.5,
        "failure": None,
    }
    return [head, *own, *losses, *judged, result]


@pytest.fixture
def race_file(tmp_path: Path) -> Path:
    path = tmp_path / "race.jsonl"
    events = race_record("noop", 200, []) + race_record("dense", 900, []) + race_record("auto", 250, attach_record())
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_a_race_record_holds_its_runs(race_file: Path) -> None:
    runs = load(race_file)
    assert [run.name for run in runs] == ["noop", "dense", "auto"]
    shown = digest(runs)
    auto = shown["runs"][2]
    # 250 ms are 200 of compute (the limit), 10 of compression as measured, and 40 of communication left bare.
    assert auto["split"] == pytest.approx({"total": 250, "compute": 200, "compress": 10, "communicate": 40})
    assert [row["plan"] for row in auto["layers"]] == ["TopK(density=0.01)", "Dense"]
    assert auto["changes"][0]["why"] == "the link is slow"


def test_a_torn_last_line_is_dropped_and_any_other_is_named(tmp_path: Path, capsys) -> None:
    path, page = tmp_path / "run.jsonl", tmp_path / "page.html"
    text = "".join(json.dumps(event) + "\n" for event in attach_record())
    path.write_text(text + '{"event": "st')
    assert main(["report", str(path), "-o", str(page)]) == 0
    path.write_text("nonsense\n" + text)
    assert main(["report", str(path), "-o", str(page)]) == 2
    assert "line 1" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "absent"), "-o", str(page)]) == 2
    assert main(["trace", str(path), "-o", str(page)]) == 2


def test_a_loss_that_ran_away_leaves_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = [*attach_record(), {"event": "loss", "step": 0, "loss": math.nan, "time": 100.2}]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert digest(load(path))["runs"][0]["loss"] == [[pytest.approx(0.2), 12_000, None]]
    assert "NaN" not in render(load(path)).partition('id="data">')[2].partition("</script>")[0]


def test_a_trace_is_what_perfetto_reads(race_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    assert main(["trace", str(race_file), "-o", str(out)]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    assert events == trace_events(load(race_file))
    assert {event["ph"] for event in events} == {"M", "X", "C", "i"}
    for event in events:
        assert {"name", "ph", "pid", "tid"} <= set(event)
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] > 0
    spans = {event["cat"]: event for event in events if event["ph"] == "X"}
    assert spans["round 0"]["dur"] == pytest.approx(50_000)
    # The record's spans tell another clock's time; they end when their step was written.
    step = [event for event in events if event["ph"] == "C" and event["name"] == "bytes on the wire"][5]
    assert spans["backward"]["ts"] + spans["backward"]["dur"] == pytest.approx(step["ts"], abs=1)
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"auto", "encode", "round 0", "backward"} <= named


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
ARTEFACTS = Path(__file__).parents[2] / "build" / "artefacts"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's chromium to see the report drawn")
@pytest.mark.timeout(300)
def test_the_report_draws_itself_on_a_phone_and_a_desk(race_file: Path, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    page_file = tmp_path / "report.html"
    assert main(["report", str(race_file), "-o", str(page_file)]) == 0
    assert page_file.stat().st_size < 200_000
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    paper = {}
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        for scheme, width in (("light", 1200), ("dark", 390)):
            context = browser.new_context(
                viewport={"width": width, "height": 844}, color_scheme=scheme, offline=True, has_touch=width < 500
            )
            page = context.new_page()
            troubles: list[str] = []
            page.on("console", lambda message, into=troubles: into.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error, into=troubles: into.append(str(error)))
            page.on(
                "request", lambda request, into=troubles: request.url.startswith("http") and into.append(request.url)
            )
            page.goto(page_file.as_uri())
            page.wait_for_selector("[data-chart=timeline] .span")
            for chart in ("loss-time", "loss-bytes"):
                lines = page.locator(f"[data-chart={chart}] path.series")
                names = sorted(line.get_attribute("data-name") for line in lines.all())
                assert names == ["auto", "dense"]  # the limit trains nothing together
                assert all(line.bounding_box()["height"] > 50 for line in lines.all())
                assert page.locator(f"[data-chart={chart}] circle.dot").count() == 4
            assert page.locator("[data-chart=split] rect.bar").count() == 9
            assert page.locator("#standings tbody tr").count() == 3
            assert page.locator("#plan tbody tr").count() == 2
            assert "the link is slow" in page.locator("#changes").inner_text()
            assert "PACED" in page.locator("#conditions").inner_text()
            assert NASTY in page.locator("#conditions").inner_text()  # text, not markup
            assert page.title() == "laconic report"
            # Nothing sticks out sideways: on a phone one scrolls down only.
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            span = page.locator("[data-chart=timeline] .span[data-lane='round 0']")
            before = span.bounding_box()["width"]
            page.get_by_role("button", name="zoom in").click()
            assert span.bounding_box()["width"] > 1.5 * before
            page.locator("[data-chart=loss-time]").locator("..").get_by_role("button", name="dense").click()
            assert page.locator("[data-chart=loss-time] path.series").count() == 1
            paper[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            page.locator("#theme").click()
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper[scheme]
            page.screenshot(path=ARTEFACTS / f"report-{scheme}-{width}.png", full_page=True)
            assert troubles == []
            context.close()
        browser.close()
    assert paper["light"] != paper["dark"]
