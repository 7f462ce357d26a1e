"""Injected stalls: what streams send, step by step, and the cause that `why` must name. For both runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.pipeline import Pipeline, parse

BASE = 1_700_000_000_000_000
SECOND = 1_000_000

JOIN = "SELECT c.item FROM clicks [RANGE 1 MINUTE] AS c, buys [RANGE 1 MINUTE] AS b WHERE c.item = b.item"
SEND = [0.0, -0.1]


@dataclass(frozen=True)
class Step:
    """So many seconds pass, then rows come: by stream, their times in seconds relative to the clock."""

    seconds: float = 1.0
    rows: Mapping[str, list[float]] = field(default_factory=dict)


BOTH = Step(1.0, {"clicks": SEND, "buys": SEND})
CLICKS = Step(1.0, {"clicks": SEND})


@dataclass(frozen=True)
class Stall:
    """A stall: the keys of each stream, the query, what happens, and what `why` must say first."""

    cause: str
    says: tuple[str, ...]
    steps: tuple[Step, ...]
    streams: Mapping[str, str] = field(
        default_factory=lambda: {
            "clicks": 'bounds = { disorder = "2 s" }',
            "buys": 'bounds = { disorder = "30 s" }',
        }
    )
    sql: str = JOIN
    stream: str | None = "buys"
    more: str = ""

    def pipeline(self, root: Path) -> Pipeline:
        """The stalled pipeline, over files that grow."""
        return parse(self.text, root=root)

    @property
    def text(self) -> str:
        """The pipeline file."""
        streams = "\n".join(_STREAM.format(name=name, keys=keys) for name, keys in self.streams.items())
        return _PIPELINE.format(streams=streams, sql=self.sql, more=self.more)


_PIPELINE = """
[pipeline]
name = "stalls"
runtime = "embedded"
clock = "system"
{streams}
[[queries]]
name = "q"
sql = "{sql}"
sink = {{ path = "out.jsonl", existing = "replace" }}
{more}
"""

_STREAM = """
[streams.{name}]
source = {{ path = "{name}", format = "json", follow = true, block_bytes = 50 }}
schema = "item BIGINT, at BIGINT"
time = {{ column = "at", unit = "us" }}
{keys}
"""

TWELVE = tuple(f"s{i}" for i in range(12))
ALL_TWELVE = " UNION ALL ".join(f"SELECT item FROM {name}" for name in TWELVE)


def others(name: str) -> dict[str, list[float]]:
    """All of the twelve streams send, except one."""
    return {each: SEND for each in TWELVE if each != name}


STALLS: dict[str, Stall] = {
    "silent stream": Stall(
        "silent stream",
        ("Query q has waited", "for stream buys, silent since", "allowed to be 30 s late", "It goes on at"),
        (BOTH, *[CLICKS] * 8),
        {"clicks": 'bounds = { disorder = "2 s" }', "buys": 'bounds = { latency = "30 s" }'},
    ),
    "a bound that is never proven": Stall(
        "bound not proven",
        (
            "Query q has waited",
            "for stream buys, silent since 22:13:21 and allowed to be 30 s late. It holds",
            '"latency": "30 s" in bounds["buys"]',
        ),
        (BOTH, *[CLICKS] * 8),
    ),
    "a source that never connects": Stall(
        "never connected",
        ("for stream buys, which has not sent a row yet", "To go on without it"),
        (CLICKS, CLICKS, CLICKS),
    ),
    "rows of the future": Stall(
        "wrong clock",
        (
            "Stream buys",
            "rejected, because their times are too far ahead of the clock",
        ),
        (BOTH, Step(1.0, {"clicks": SEND, "buys": [3600.0, 3601.0]})),
        {
            "clicks": 'bounds = { disorder = "2 s" }',
            "buys": 'bounds = { disorder = "2 s" }\nguard = "1 minute"',
        },
    ),
    "a clock that stands still": Stall(
        "times stand still",
        ("for stream buys, which sends rows while its heartbeat stands still at 22:12:50",),
        (BOTH, *[Step(1.0, {"clicks": SEND, "buys": [-float(i), -float(i)]}) for i in range(1, 9)]),
    ),
    "a missing source": Stall(
        "missing source",
        (
            "Query q has waited",
            "for stream buys, of which a group of sources by item has been silent since 22:13:21 while the "
            "other one sends; each is allowed to be 2 s late. It holds",
            'Add "idle": "5 s" to "sources" in bounds["buys"], or "latency": "5 s" in bounds["buys"].',
        ),
        (BOTH, *[Step(1.0, {"clicks": SEND, "buys": [0.0]})] * 8),
        {
            "clicks": 'bounds = { disorder = "2 s" }',
            "buys": 'bounds = { disorder = "2 s" }\nsources = { column = "item", choose = false }',
        },
    ),
    "everything filtered out": Stall(
        "everything filtered out",
        ("Query q has no results: its conditions let none of 6 rows through.",),
        (CLICKS, CLICKS, CLICKS),
        {"clicks": 'bounds = { disorder = "2 s" }'},
        "SELECT item FROM clicks WHERE item > 1000",
        stream=None,
    ),
    "a flood of late rows": Stall(
        "late rows",
        ("Stream buys had 3 of its last 3 rows too late", "allowed to be 2 s late", 'set "disorder": "99 s"'),
        (BOTH, BOTH, Step(1.0, {"clicks": SEND, "buys": [-100.0, -99.0, -98.0]})),
        {"clicks": 'bounds = { disorder = "2 s" }', "buys": 'bounds = { disorder = "2 s" }'},
    ),
    "one of twelve streams is silent": Stall(
        "bound not proven",
        ("Query q has waited", "for stream s7, silent since"),
        (Step(1.0, dict.fromkeys(TWELVE, SEND)), *[Step(1.0, others("s7"))] * 8),
        dict.fromkeys(TWELVE, 'bounds = { disorder = "2 s" }'),
        ALL_TWELVE,
        stream="s7",
    ),
}
"""By name; those that need more than rows are in the tests of each runtime."""
