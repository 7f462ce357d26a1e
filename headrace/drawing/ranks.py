"""Which box stands in which row, and in which order: layers by the longest path, crossings by barycentres.

Sugiyama's scheme in its plainest form. An arc that passes a row has a place of its own there, so that it goes
between boxes and not behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headrace.drawing.diagram import Arc, Diagram

SWEEPS: Final = 12
Cell = str | tuple[int, int]
"""A box by its id, or the place of an arc in a row: (number of the arc, row)."""

Ranks = list[list[Cell]]


@dataclass(frozen=True)
class Step:
    """A piece of an arc, from a row to the next."""

    arc: int
    lower: Cell
    upper: Cell


@dataclass(frozen=True)
class Ranked:
    """Rows of cells from the streams up, and the pieces of arcs between them."""

    rows: Ranks
    steps: tuple[Step, ...]


def ranked(diagram: Diagram) -> Ranked:
    """The boxes in rows, with few crossings."""
    row = _row_of(diagram)
    steps = tuple(step for i, arc in enumerate(diagram.arcs) for step in _steps(i, arc, row))
    rows: Ranks = [[] for _ in range(max(row.values(), default=-1) + 1)]
    for box in diagram.boxes:
        rows[row[box.id]].append(box.id)
    for step in steps:
        if isinstance(step.upper, tuple):
            rows[step.upper[1]].append(step.upper)
    return Ranked(_untangled(rows, steps), steps)


def _row_of(diagram: Diagram) -> dict[str, int]:
    """The longest path from a box without inputs; sinks all stand in the last row."""
    before: dict[str, list[str]] = {box.id: [] for box in diagram.boxes}
    for arc in diagram.arcs:
        before[arc.target].append(arc.origin)
    row: dict[str, int] = {}

    def find(box: str) -> int:
        if box not in row:
            row[box] = 1 + max((find(each) for each in before[box]), default=-1)
        return row[box]

    for box in diagram.boxes:
        find(box.id)
    return row


def _steps(number: int, arc: Arc, row: Mapping[str, int]) -> list[Step]:
    between = range(row[arc.origin] + 1, row[arc.target])
    cells: list[Cell] = [arc.origin, *((number, r) for r in between), arc.target]
    return [Step(number, a, b) for a, b in pairwise(cells)]


def _untangled(rows: Ranks, steps: tuple[Step, ...]) -> Ranks:
    """The best of several sweeps up and down, each row ordered by where its neighbours stand."""
    best, fewest = rows, crossings(rows, steps)
    for sweep in range(SWEEPS):
        rows = _swept(rows, steps, up=sweep % 2 == 0)
        found = crossings(rows, steps)
        if found < fewest:
            best, fewest = rows, found
    return best


def _swept(rows: Ranks, steps: tuple[Step, ...], up: bool) -> Ranks:
    place = {cell: float(i) for row in rows for i, cell in enumerate(row)}
    near: dict[Cell, list[Cell]] = {}
    for step in steps:
        here, there = (step.upper, step.lower) if up else (step.lower, step.upper)
        near.setdefault(here, []).append(there)
    found: dict[int, list[Cell]] = {}
    for r in range(len(rows)) if up else reversed(range(len(rows))):
        found[r] = sorted(
            rows[r], key=lambda cell: _mean([place[n] for n in near.get(cell, ())], place[cell])
        )
        place.update({cell: float(i) for i, cell in enumerate(found[r])})
    return [found[r] for r in range(len(rows))]


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def crossings(rows: Ranks, steps: tuple[Step, ...]) -> int:
    """How often two pieces cross."""
    place = {cell: (r, i) for r, row in enumerate(rows) for i, cell in enumerate(row)}
    ends = [(place[step.lower], place[step.upper][1]) for step in steps]
    pairs = ((a, b) for n, a in enumerate(ends) for b in ends[n + 1 :] if a[0][0] == b[0][0])
    return sum((a[0][1] - b[0][1]) * (a[1] - b[1]) < 0 for a, b in pairs)
