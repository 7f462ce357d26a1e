"""`experiments/README.md`, made of `recorded.json` and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.report import Result as Number
from benchmarks.report import verdict
from experiments.store import HERE, RECORDED

PAGE = HERE / "README.md"
PICTURES = HERE / "pictures"

HEAD = """# The papers' experiments

<!-- Made by `make experiments`; change experiments/*.py and run that, not this page. -->

The figures of the papers that Headrace implements, measured on Headrace: the real engine and its
operators, Poisson arrivals with fixed seeds, and a simulated clock that advances by the CPU time that
each step really took and skips idle time; on Spark, real micro-batches and their time. The column "ours"
is one run on one machine: {machine}.

The papers' terms: an ETS (Enabling Time-Stamp) is a watermark that an idle source makes on demand or
periodically; idle-waiting is the time in which an operator waits for an idle source; a heartbeat is a
watermark. The [glossary](../docs/architecture.md#glossary) has more.

`headrace experiment NAME` runs one experiment, with its picture in `experiments/out/`; `make experiments`
runs all of them, in less than fifteen minutes, and rewrites this page. The sections below the table describe
how each number is measured, and where it differs from the paper and why.

`--full` runs longer: ten times the seconds, or more sources and rows: ten seconds of work for
`memory_granularity`, forty for `grouping`, minutes for `fig16` and the larger ones. `--real` runs in real
time, with every run cut to a minute: nine minutes for `fig7`, seven for `idle`, eight for `fig8`, three
for `fig14`, five for `fig15`, nearly all of it waiting. That needs an otherwise idle machine: if the
engine cannot run when a row arrives, that counts as latency, and the claims about it do not hold.
`estimation`, `grouping` and the memory experiments use no clock, and are the same.

| figure | claim | paper | ours | differs | holds | command |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page(recorded: dict[str, Any], pictures: Path = PICTURES) -> str:
    """The whole page."""
    machine = recorded["machine"]
    words = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, " + (
        f"Python {recorded['versions']['python']}, pyarrow {recorded['versions']['pyarrow']}"
    )
    rows = [_row(name, e) for name, e in recorded["experiments"].items()]
    sections = [_section(name, e, pictures) for name, e in recorded["experiments"].items()]
    return HEAD.format(machine=words) + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def _row(name: str, e: dict[str, Any]) -> str:
    told = [r for r in e["results"] if verdict(r) or r.get("paper")]
    ours = "<br>".join(f"`{r['name']}` {_value(r)}{_held(r)}" for r in told) or e["verdict"]
    papers = [r.get("paper", "") for r in told]
    paper = "<br>".join(papers) if any(papers) else "no number"
    differs = f"[why](#{name})" if e["differs"] or _differences(e) else ""
    holds = "yes" if e["holds"] else "**no**"
    link = f"[{e['figure']}](#{name})"
    cells = [link, e["claim"], paper, ours, differs, holds, f"`headrace experiment {name}`"]
    return f"| {' | '.join(cells)} |"


def _section(name: str, e: dict[str, Any], pictures: Path) -> str:
    lines = [f"## {name}", "", f"{e['figure']}. {e['claim'][0].upper()}{e['claim'][1:]}.", ""]
    if (pictures / f"{name}.svg").exists():
        lines += [f"![{e['figure']}](pictures/{name}.svg)", ""]
    lines += [f"Found: {e['verdict']}.", "", f"Measured: {e['method']}."]
    differs = [*([e["differs"]] if e["differs"] else []), *_differences(e)]
    if differs:
        lines += ["", "Differs from the paper: " + " ".join(differs)]
    lines += ["", "| number | value | bound | paper |", "| --- | ---: | --- | --- |"]
    lines += [f"| `{r['name']}` | {_value(r)} | {_bound(r)} | {r.get('paper', '')} |" for r in e["results"]]
    return "\n".join(lines)


def _differences(e: dict[str, Any]) -> list[str]:
    return [f"`{r['name']}`: {r['differs']}." for r in e["results"] if r.get("differs")]


def _value(r: Number) -> str:
    value = r["value"]
    shown = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return f"{shown} {r['unit']}".strip()


def _held(r: Number) -> str:
    return f" ({_bound(r)})" if _bound(r) else ""


def _bound(r: Number) -> str:
    floor = [f"≥ {r['floor']:,g}"] if "floor" in r else []
    ceiling = [f"≤ {r['ceiling']:,g}"] if "ceiling" in r else []
    return ", ".join([*floor, *ceiling])


def write(recorded: Path = RECORDED, path: Path = PAGE) -> None:
    """Write the page anew."""
    path.write_text(page(json.loads(recorded.read_text())))
