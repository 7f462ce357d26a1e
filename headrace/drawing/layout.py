"""The layout of a diagram: positions of boxes, and arcs as lists of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from typing import Final

from headrace.drawing.diagram import Arc, Box, Diagram

# The row of each box and the order within a row: layers by the longest path, crossings by barycentres.
#
# Sugiyama's scheme in its simplest form. An arc that passes a row gets its own place in it, so that it runs
# between boxes and not behind them.


SWEEPS: Final = 12
Cell = str | tuple[int, int]
"""A box by its id, or the place of an arc in a row: (number of the arc, row)."""

Ranks = list[list[Cell]]


@dataclass(frozen=True)
class Step:
    """A piece of an arc, from one row to the next."""

    arc: int
    lower: Cell
    upper: Cell


@dataclass(frozen=True)
class Ranked:
    """Rows of cells from the streams upwards, and the pieces of arcs between them."""

    rows: Ranks
    steps: tuple[Step, ...]


def ranked(diagram: Diagram) -> Ranked:
    """Assign boxes to rows, with few crossings."""
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
    """The row of each box: the longest path from a box without inputs; all sinks are in the last row."""
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
    """The pieces of an arc, with a cell in each row that it passes."""
    between = range(row[arc.origin] + 1, row[arc.target])
    cells: list[Cell] = [arc.origin, *((number, r) for r in between), arc.target]
    return [Step(number, a, b) for a, b in pairwise(cells)]


def _untangled(rows: Ranks, steps: tuple[Step, ...]) -> Ranks:
    """The best of several sweeps up and down, where each row is sorted by the positions of its neighbours."""
    best, fewest = rows, crossings(rows, steps)
    for sweep in range(SWEEPS):
        rows = _swept(rows, steps, up=sweep % 2 == 0)
        found = crossings(rows, steps)
        if found < fewest:
            best, fewest = rows, found
    return best


def _swept(rows: Ranks, steps: tuple[Step, ...], up: bool) -> Ranks:
    """One sweep: sort each row by the mean position of its neighbours in the previous row."""
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
    """The number of crossings between pieces."""
    place = {cell: (r, i) for r, row in enumerate(rows) for i, cell in enumerate(row)}
    ends = [(place[step.lower], place[step.upper][1]) for step in steps]
    pairs = ((a, b) for n, a in enumerate(ends) for b in ends[n + 1 :] if a[0][0] == b[0][0])
    return sum((a[0][1] - b[0][1]) * (a[1] - b[1]) < 0 for a, b in pairs)


HEIGHT: Final = 42.0
RISE: Final = 40.0
"""The distance between two rows."""
TITLE: Final = 8.4
DETAIL: Final = 6.7
"""The width of a character in each line, estimated generously."""
LONGEST: Final = 36
PASSAGE: Final = 8.0
"""The width of a passing arc."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Placed:
    """A box and its upper left corner."""

    box: Box
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Routed:
    """An arc and the points it goes through, two for each row it leaves and enters."""

    arc: Arc
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Layout:
    """A diagram with positions, and the size of the frame."""

    boxes: tuple[Placed, ...]
    arcs: tuple[Routed, ...]
    width: float
    height: float


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, truncated if it is too long for a box."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def width_of(box: Box) -> float:
    """The width of a box for its lines, with room for its mark."""
    mark = 30 if box.waits else 0
    return max(len(box.title) * TITLE + mark, len(shortened(box.detail)) * DETAIL, 60.0) + 22


def laid_out(diagram: Diagram) -> Layout:
    """The layout: streams at the bottom, answers at the top."""
    rank = ranked(diagram)
    widths: dict[Cell, float] = {cell: PASSAGE for row in rank.rows for cell in row}
    widths.update({box.id: width_of(box) for box in diagram.boxes})
    centre = centres(rank, widths, lambda step: _pull(step, diagram))
    top = {
        cell: (len(rank.rows) - 1 - r) * (HEIGHT + RISE) for r, row in enumerate(rank.rows) for cell in row
    }
    boxes = tuple(Placed(b, centre[b.id] - widths[b.id] / 2, top[b.id], widths[b.id]) for b in diagram.boxes)
    arcs = _routed(diagram, rank, _Ports(rank, centre, widths), top)
    right = max((centre[cell] + widths[cell] / 2 for cell in centre), default=0.0)
    return Layout(boxes, arcs, right, len(rank.rows) * (HEIGHT + RISE) - RISE)


def _pull(step: Step, diagram: Diagram) -> float:
    """How strongly a piece is straightened.

    Long arcs should be straight, arcs of rows more than arcs of heartbeats; bends at boxes matter least.
    """
    ends = (step.lower, step.upper)
    kind = 1.0 if diagram.arcs[step.arc].ets else 4.0
    return kind * (8.0 if all(isinstance(each, tuple) for each in ends) else 1.0 if kind > 1 else 0.15)


class _Ports:
    """Where arcs leave and enter a box: side by side, ordered by the position of their other ends."""

    def __init__(self, rank: Ranked, centre: dict[Cell, float], width: dict[Cell, float]) -> None:
        self._centre = centre
        self._at: dict[tuple[Cell, bool, Step], float] = {}
        sides: dict[tuple[Cell, bool], list[Step]] = {}
        for step in rank.steps:
            sides.setdefault((step.lower, True), []).append(step)
            sides.setdefault((step.upper, False), []).append(step)
        for (cell, leaving), steps in sides.items():
            other = [(centre[step.upper if leaving else step.lower], step.arc, step) for step in steps]
            room = min(width[cell] - 16, 30.0 * (len(steps) - 1))
            for i, (_, _, step) in enumerate(sorted(other, key=lambda each: each[:2])):
                shift = 0.0 if len(steps) == 1 else room * (i / (len(steps) - 1) - 0.5)
                self._at[cell, leaving, step] = centre[cell] + (shift if isinstance(cell, str) else 0.0)

    def x(self, cell: Cell, leaving: bool, step: Step) -> float:
        """The x coordinate where a piece leaves or enters a cell."""
        return self._at[cell, leaving, step]


def _routed(diagram: Diagram, rank: Ranked, ports: _Ports, top: dict[Cell, float]) -> tuple[Routed, ...]:
    """The points of each arc."""
    points: list[list[Point]] = [[] for _ in diagram.arcs]
    for step in rank.steps:
        start = (ports.x(step.lower, True, step), top[step.lower])
        end = (ports.x(step.upper, False, step), top[step.upper] + HEIGHT)
        points[step.arc] += [start, end]
    return tuple(Routed(arc, tuple(found)) for arc, found in zip(diagram.arcs, points, strict=True))


# The position of each cell in its row: as near to its neighbours above and below as the row allows.
#
# For a given order, the positions nearest to the wanted ones are found exactly by pooling neighbours that
# are in each other's way (weighted isotonic regression); rows take turns until they converge.


GAP: Final = 26.0
ROUNDS: Final = 100
Pull = Callable[[Step], float]
"""The weight with which the two ends of a piece are aligned."""


def centres(ranked: Ranked, width: Mapping[Cell, float], pull: Pull) -> dict[Cell, float]:
    """The centre of each cell; the leftmost edge is at 0."""
    found: dict[Cell, float] = {}
    for row in ranked.rows:
        found.update(zip(row, spread([0.0] * len(row), _apart(row, width)), strict=True))
    near = _neighbours(ranked, pull)
    for turn in range(ROUNDS):
        for row in ranked.rows if turn % 2 == 0 else reversed(ranked.rows):
            wished = [_wish(near.get(cell, []), found, found[cell]) for cell in row]
            weights = [sum(weight for _, weight in near.get(cell, [])) or 1.0 for cell in row]
            found.update(zip(row, spread(wished, _apart(row, width), weights), strict=True))
    _straighten(ranked, width, found)
    left = min((found[cell] - width[cell] / 2 for cell in found), default=0.0)
    return {cell: centre - left for cell, centre in found.items()}


def _straighten(ranked: Ranked, width: Mapping[Cell, float], found: dict[Cell, float]) -> None:
    """Make long arcs vertical if their neighbours leave room for it in every row."""
    room: dict[int, list[tuple[Cell, float, float]]] = {}
    for row in ranked.rows:
        edges = [-inf, *(found[cell] + width[cell] / 2 for cell in row)]
        starts = [*(found[cell] - width[cell] / 2 for cell in row), inf]
        for i, cell in enumerate(row):
            if isinstance(cell, tuple):
                keep = (GAP + width[cell]) / 2
                room.setdefault(cell[0], []).append((cell, edges[i] + keep, starts[i + 1] - keep))
    for cells in room.values():
        least, most = max(low for _, low, _ in cells), min(high for _, _, high in cells)
        mean = sum(found[cell] for cell, _, _ in cells) / len(cells)
        if least <= most:
            found.update({cell: min(max(mean, least), most) for cell, _, _ in cells})


def _neighbours(ranked: Ranked, pull: Pull) -> dict[Cell, list[tuple[Cell, float]]]:
    """For each cell, the cells that it is connected to, and the weights."""
    near: dict[Cell, list[tuple[Cell, float]]] = {}
    for step in ranked.steps:
        near.setdefault(step.lower, []).append((step.upper, pull(step)))
        near.setdefault(step.upper, []).append((step.lower, pull(step)))
    return near


def _wish(pulls: list[tuple[Cell, float]], found: Mapping[Cell, float], otherwise: float) -> float:
    """The weighted mean of the positions of the neighbours."""
    total = sum(weight for _, weight in pulls)
    return sum(found[other] * weight for other, weight in pulls) / total if total else otherwise


def _apart(row: Sequence[Cell], width: Mapping[Cell, float]) -> list[float]:
    """The minimum distance from each cell to the next."""
    return [(width[a] + width[b]) / 2 + GAP for a, b in pairwise(row)]


def spread(
    wished: Sequence[float], apart: Sequence[float], weights: Sequence[float] | None = None
) -> list[float]:
    """The positions nearest to the wanted ones (weighted squares) that keep order and distances."""
    offsets = list(accumulate(apart, initial=0.0))
    pools: list[tuple[float, float, int]] = []
    for wish, offset, weight in zip(wished, offsets, weights or [1.0] * len(wished), strict=False):
        pools.append((wish - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, w, n), (b, v, m) = pools[-2:]
            pools[-2:] = [((a * w + b * v) / (w + v), w + v, n + m)]
    flat = [value for value, _, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]
