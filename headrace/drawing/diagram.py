"""What is drawn: boxes, the arcs between them, and what their looks mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Look(Enum):
    """How a box looks, and what the legend says of it; an empty legend: the box speaks for itself."""

    PLAIN = ""
    SOURCE = "stream"
    TABLE = "table"
    SINK = "answer"
    ORDER = "puts rows in order"
    NATIVE = "row by row: Spark runs it natively"


@dataclass(frozen=True)
class Box:
    """A box with a name and one line below it. `waits`: it is prone to idle-waiting; `note` is a tooltip."""

    id: str
    title: str
    detail: str = ""
    look: Look = Look.PLAIN
    waits: bool = False
    note: str = ""


@dataclass(frozen=True)
class Arc:
    """From one box to another; `ets`: time-stamps travel along it, not rows."""

    origin: str
    target: str
    ets: bool = False
    note: str = ""


@dataclass(frozen=True)
class Diagram:
    """Boxes and arcs without a cycle. Order matters: what comes first stands to the left."""

    boxes: tuple[Box, ...]
    arcs: tuple[Arc, ...]
