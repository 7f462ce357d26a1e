"""`headrace bounds`: what each bound on late rows costs, as a table with bars, a plot or JSON."""

from __future__ import annotations

import json
from pathlib import Path

from rich.bar import Bar
from rich.console import Console, Group
from rich.table import Column, Table
from rich.text import Text

from headrace.errors import InputError
from headrace.frames.bound_costs import Asked, BoundCosts, all_bounds
from headrace.sql.place import nearest

WIDE = 12
"""Characters of the longest bar."""
DELAY = "how long after its window an answer comes (mean, p99); count, sum, avg: mean relative error"


def show_bounds(data: Path, asked: Asked, stream: str | None, svg: Path | None, as_json: bool) -> None:
    """Print what the bounds of each stream cost, and write the plots."""
    found = _chosen(all_bounds(data, asked), stream, data)
    if svg is not None:
        for name, costs in found.items():
            path = svg if len(found) == 1 else svg.with_name(f"{svg.stem}-{name}{svg.suffix}")
            path.write_text(costs.svg())
    if as_json:
        print(json.dumps([each.plain() for each in found.values()]))
        return
    console = Console()
    for costs in found.values():
        console.print(as_table(costs))


def _chosen(found: dict[str, BoundCosts], stream: str | None, data: Path) -> dict[str, BoundCosts]:
    """All streams, or the one that is named."""
    if stream in found:
        return {stream: found[stream]}
    if stream is None and found:
        return found
    raise InputError(
        "HR-I083",
        "nothing is known about its rows"
        if stream is None
        else f"there are no rows of the stream {stream!r}",
        place=str(data),
        hint=nearest(stream or "", found)
        if found
        else "run the pipeline first, with a stream that has bounds",
    )


def as_table(costs: BoundCosts) -> Group:
    """The costs on a terminal: a bar shows the share of late rows."""
    shown = costs.shown()
    table = Table(
        *(Column(name, justify="right", no_wrap=True) for name in shown.schema.names),
        Column("late rows", width=WIDE),
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    most = max((each.late_share for each in costs), default=0.0) or 1.0
    for cost, row in zip(costs, shown.to_pylist(), strict=True):
        bar = Bar(most, 0, cost.late_share, width=WIDE)
        table.add_row(*row.values(), bar)
    head = Text(f"{costs.name}: {costs.about}", style="bold")
    return Group(head, table, Text(f"delay: {DELAY}\n{costs.advice}"))
