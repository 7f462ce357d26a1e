"""The pictures in the documentation. `python -m tests.drawing.pictures` draws them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from headrace import Engine, Query, Rules, StreamDef, TimerPromise, query

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
BIDS = pa.schema([("item", pa.int64()), ("price", pa.float64())])
ITEMS = pa.schema([("id", pa.int64()), ("name", pa.string())])
STREAMS = {"web": BIDS, "phone": BIDS, "floor": BIDS, "items": ITEMS}
TEXT = """
SELECT i.name, max(b.price) AS top
FROM   (SELECT * FROM web WHERE price > 1
        UNION ALL SELECT * FROM phone
        UNION ALL SELECT * FROM floor) [RANGE 10 MINUTES] AS b
JOIN   items [UNBOUNDED] AS i ON b.item = i.id
GROUP  BY i.name
"""


def tops() -> Query:
    return query(TEXT, STREAMS, name="tops")


def plan() -> str:
    return tops().explain("svg")


def graph() -> str:
    engine = Engine(strategy="dfs")
    phone = StreamDef("phone", BIDS)
    engine.streams.declare(phone.source, promise=TimerPromise(5_000_000), rules=Rules(True, "strict"))
    engine.add("tops", tops())
    return engine.explain("tops", format="svg")


PICTURES: dict[str, Callable[[], str]] = {"plan.svg": plan, "graph.svg": graph}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw() + "\n")
