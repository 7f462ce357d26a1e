"""Runs experiments, says what they found, and writes the file, the pictures and the page."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import table
from experiments import page, store
from experiments.plotting import draw
from experiments.result import Conditions, Experiment, Result
from experiments.table import EXPERIMENTS


def listing() -> str:
    """A line for each experiment."""
    width = max(map(len, EXPERIMENTS))
    return "\n".join(f"{e.name:<{width}}  {e.figure}: {e.claim}" for e in EXPERIMENTS.values())


def run(names: Iterable[str], conditions: Conditions, out: Path = store.OUT) -> bool:
    """Run these; whether every claim holds. All of them at their default size also make the page."""
    chosen = [EXPERIMENTS[name] for name in names]
    entries: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    for experiment in chosen:
        entries[experiment.name] = _run_one(experiment, conditions, out)
        whole = store.keep(entries, out)
    if [e.name for e in chosen] == list(EXPERIMENTS) and conditions == Conditions() and out == store.OUT:
        make_page(whole, out)
    return all(e["holds"] for e in entries.values())


def _run_one(experiment: Experiment, conditions: Conditions, out: Path) -> dict[str, Any]:
    print(f"== {experiment.name}: {experiment.figure}", flush=True)
    began = time.perf_counter()
    result = experiment.run(conditions)
    seconds = time.perf_counter() - began
    paths = _pictures(experiment, result, out)
    print(table(m.plain() for m in result.measures))
    word = "holds" if result.holds else "DOES NOT HOLD"
    print(f"{word}: {result.verdict} ({seconds:.1f} s)\n{paths}\n", flush=True)
    return store.entry(experiment, result, conditions, seconds)


def _pictures(experiment: Experiment, result: Result, out: Path) -> str:
    try:
        paths = draw(experiment.figure, result.panels, out / experiment.name)
    except ImportError:
        return "no picture: pip install 'headrace[plots]'"
    return ", ".join(map(str, paths))


def make_page(whole: dict[str, Any], out: Path = store.OUT) -> None:
    """Record the numbers, take over the pictures, and write the page."""
    store.record(
        whole
        | {"experiments": {n: whole["experiments"][n] for n in EXPERIMENTS if n in whole["experiments"]}}
    )
    page.PICTURES.mkdir(exist_ok=True)
    for name in EXPERIMENTS:
        drawn = out / f"{name}.svg"
        if drawn.exists():
            shutil.copy(drawn, page.PICTURES / drawn.name)
    page.write()
    print(f"{page.PAGE} is written anew")
