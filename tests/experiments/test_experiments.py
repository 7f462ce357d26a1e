"""Every experiment in a tiny size: its claim where that is not a timing, and what is written of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import headrace.cli.experiment as command
from experiments import fig7, page, running, store
from experiments.plotting import STYLES
from experiments.result import Conditions, Line, Measure, Panel, Result
from experiments.simulation import Simulation, run_together
from experiments.table import EXPERIMENTS
from experiments.unions import DEMAND, LATENT, engine_for
from headrace.cli.app import app
from headrace.errors import PipelineError

TINY = Conditions("tiny", service=20_000)
"""Steps of 20 µs, whatever they take: the numbers are the same on every machine."""


ON_SPARK = ("spark",)
"""In `tests/spark/test_figures.py`, with the session of the tests."""


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in ON_SPARK])
def test_the_claim_holds_on_the_simulated_clock(name: str) -> None:
    result = EXPERIMENTS[name].run(TINY)
    assert result.holds, [m for m in result.measures if m.floor is not None or m.ceiling is not None]
    assert len({m.name for m in result.measures}) == len(result.measures)
    lines = [line for panel in result.panels for line in panel.lines]
    assert all(len(line.x) == len(line.y) and line.style in STYLES for line in lines)


def test_a_fixed_service_time_finds_the_same_twice() -> None:
    first, again = (fig7.mean_latency(DEMAND, 2.0, TINY) for _ in range(2))
    assert first == again


def test_in_real_time_a_run_begins_when_it_is_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runs before it took is none of its latency."""
    passed = [0]

    def sleep(seconds: float) -> None:
        passed[0] += int(seconds * 1e9) + 100_000

    clock = SimpleNamespace(perf_counter_ns=lambda: passed[0], sleep=sleep)
    monkeypatch.setattr("experiments.simulation.time", clock)
    conditions = Conditions("tiny", real=True)
    prepared = [Simulation(engine_for(way), fig7.streams(2.0), conditions) for way in (DEMAND, LATENT)]
    assert all(trace.mean_ms < 1 for trace in run_together(prepared))


# --- what is written -----------------------------------------------------------------------------------


def test_the_page_is_what_the_recorded_numbers_make() -> None:
    assert page.PAGE.read_text() == page.page(json.loads(store.RECORDED.read_text()))


def test_the_page_tells_of_every_experiment() -> None:
    recorded = list(json.loads(store.RECORDED.read_text())["experiments"])
    assert recorded == [name for name in EXPERIMENTS if name in recorded]
    assert set(EXPERIMENTS) - set(recorded) <= set(ON_SPARK), "make experiments"


def result_of(value: float) -> Result:
    panel = Panel("p", "x", "y", [Line("a", [0.0, 1.0], [1.0, value]), Line("b", [0.0], [2.0], "bars")])
    return Result([Measure("m", value, "ms", ceiling=1.0, paper="1 ms")], [panel], "so it is")


def test_one_file_holds_all_experiments_and_the_last_run_of_each(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["fig7"]
    for name, value in (("one", 0.5), ("two", 0.7), ("one", 2.0)):
        whole = store.keep({name: store.entry(experiment, result_of(value), Conditions(), 1.0)}, tmp_path)
    assert whole == json.loads((tmp_path / store.FILE).read_text())
    assert [(r["name"], r["value"]) for r in whole["results"]] == [("m", 2.0), ("m", 0.7)]
    assert [e["holds"] for e in whole["experiments"].values()] == [False, True]
    recorded = store.record(whole, tmp_path / "recorded.json")
    written = page.page(recorded, tmp_path)
    assert "| **no** | `headrace experiment one` |" in written
    assert "`m` 0.7 ms (≤ 1)" in written


def test_numbers_of_another_machine_are_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store.entry(EXPERIMENTS["fig7"], result_of(0.5), Conditions(), 1.0)
    store.keep({"one": kept}, tmp_path)
    monkeypatch.setattr(store.report, "machine", lambda: {"system": "another"})
    assert list(store.keep({"two": kept}, tmp_path)["experiments"]) == ["two"]


def test_a_run_on_a_busier_machine_keeps_what_was_measured_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the load was taken for another machine, so one experiment alone removed all others."""
    kept = store.entry(EXPERIMENTS["fig7"], result_of(0.5), Conditions(), 1.0)
    for name, load in (("one", 0.1), ("two", 9.9)):
        monkeypatch.setattr(store.report, "machine", lambda load=load: {"system": "this", "load": load})
        whole = store.keep({name: kept}, tmp_path)
    assert list(whole["experiments"]) == ["one", "two"]


def test_pictures_are_drawn_and_the_same_twice(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panels = result_of(0.5).panels
    first, again = (running.draw("title", panels, tmp_path / name) for name in ("a", "b"))
    assert [p.suffix for p in first] == [".png", ".svg"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]


# --- the command ---------------------------------------------------------------------------------------


def test_the_command_lists_and_refuses() -> None:
    listed = CliRunner().invoke(app, ["experiment", "--list"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)
    refused = CliRunner().invoke(app, ["experiment", "fig77"])
    assert refused.exit_code == 1
    assert "did you mean fig7?" in refused.stderr


def test_outside_a_checkout_it_says_where_the_experiments_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "__file__", str(tmp_path / "site-packages" / "headrace" / "cli" / "e.py"))
    with pytest.raises(PipelineError, match="part of the source tree") as told:
        command.checkout()
    assert "make setup" in told.value.hint
