"""The one file that all experiments write, `experiments/out/experiments.json`, and what the page is made of.

The file names one machine and one set of versions; a run elsewhere starts it anew, a run here replaces what
it measures again. `experiments/recorded.json` is the same without the curves: the page's own source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import report
from experiments.result import Conditions, Experiment, Result, panel_data

HERE = Path(__file__).parent
OUT = HERE / "out"
FILE = "experiments.json"
RECORDED = HERE / "recorded.json"


def entry(experiment: Experiment, result: Result, conditions: Conditions, seconds: float) -> dict[str, Any]:
    """What is kept of one experiment."""
    return {
        "figure": experiment.figure,
        "claim": experiment.claim,
        "method": experiment.method,
        "differs": experiment.differs,
        "verdict": result.verdict,
        "holds": result.holds,
        "size": conditions.size,
        "clock": "real" if conditions.real else "simulated",
        "seconds": round(seconds, 1),
        "results": [m.plain() for m in result.measures],
        "panels": [panel_data(p) for p in result.panels],
    }


def keep(entries: dict[str, dict[str, Any]], out: Path = OUT) -> dict[str, Any]:
    """Put these experiments into the file, beside those measured before on this machine; the whole of it."""
    path = out / FILE
    here = {"machine": report.machine(), "versions": report.versions()}
    before = json.loads(path.read_text()) if path.exists() else {}
    same = _named(before) == _named(here)
    experiments = (before["experiments"] if same else {}) | entries
    results = [r for e in experiments.values() for r in e["results"]]
    whole = here | {"results": results, "experiments": experiments}
    out.mkdir(parents=True, exist_ok=True)
    _write(path, whole)
    return whole


def _named(file: dict[str, Any]) -> dict[str, Any]:
    """The machine and the versions, without how busy it was: that changes from run to run."""
    machine = {k: v for k, v in file.get("machine", {}).items() if k != "load"}
    return {"machine": machine, "versions": file.get("versions")}


def record(whole: dict[str, Any], path: Path = RECORDED) -> dict[str, Any]:
    """Keep the numbers of a whole run, without its curves, for the page."""
    bare = {n: {k: v for k, v in e.items() if k != "panels"} for n, e in whole["experiments"].items()}
    recorded = {"machine": whole["machine"], "versions": whole["versions"], "experiments": bare}
    _write(path, recorded)
    return recorded


def _write(path: Path, data: dict[str, Any]) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    draft.replace(path)
