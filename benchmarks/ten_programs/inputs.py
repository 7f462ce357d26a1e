"""The inputs of the ten programs, and the rows that each must print."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
MINUTES: Final = 4
BIDS: Final = 4_000
Row = dict[str, Any]


def _at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=int(seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")


def _bids() -> list[Row]:
    chance = random.Random(5)
    weights = {"ann": 9, "bob": 5, "cid": 3, "dee": 2}
    return [
        {
            "item": chance.choice(("lamp", "lamp", "desk")),
            "bidder": chance.choices(list(weights), list(weights.values()))[0],
            "price": round(chance.uniform(1, 100), 2),
            "at": _at(i * 60 * MINUTES / BIDS),
        }
        for i in range(BIDS)
    ]


BID_ROWS: Final = _bids()
OFFERS: Final[list[Row]] = [
    {"item": item, "price": price, "at": _at(second)}
    for item, price, second in (("lamp", 12.5, 3), ("desk", 80.0, 20), ("lamp", 14.5, 70), ("vase", 7.5, 130))
]
SALES: Final[list[Row]] = [
    {"item": item, "amount": amount, "at": _at(second)}
    for item, amount, second in (("lamp", 31, 40), ("lamp", 32, 50), ("desk", 33, 90), ("vase", 34, 170))
]
CLICKS: Final[list[Row]] = [
    {"user": user, "at": _at(second)}
    for second, user in sorted(
        [(second, "ann") for second in (0, 20, 45, 100, 110)] + [(second, "bob") for second in (5, 15, 60)]
    )
]
LOGINS: Final[list[Row]] = [
    {"user": user, "ok": ok, "place": place, "at": _at(second)}
    for second, user, ok, place in (
        (0, "ann", "no", "Oslo"),
        (2, "bob", "yes", "Rome"),
        (5, "ann", "yes", "Lima"),
        (9, "bob", "no", "Cork"),
        (30, "bob", "yes", "Bonn"),
        (40, "ann", "no", "Kyiv"),
        (42, "ann", "no", "Nice"),
        (43, "ann", "yes", "Bern"),
    )
]


def _counts(column: str, rows: Iterable[Row], minutes: int = MINUTES) -> list[tuple[str, ...]]:
    """How many rows each value has in each minute."""
    found = Counter((int(row["at"][14:16]), row[column]) for row in rows)
    return [(value, str(n)) for (minute, value), n in sorted(found.items()) if minute < minutes]


def _tops() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for minute in range(MINUTES):
        rows = [row for row in BID_ROWS if int(row["at"][14:16]) == minute]
        found += [(name, str(n)) for name, n in Counter(row["bidder"] for row in rows).most_common(2)]
    return found


_BANDS: Final = [{**row, "band": "low" if row["price"] < 30 else "high"} for row in BID_ROWS]
_PER_MINUTE: Final = _counts("item", BID_ROWS)
_LIVE: Final = _counts("item", BID_ROWS, MINUTES - 1)
EXPECTED: Final[dict[str, Sequence[tuple[str, ...]]]] = {
    "minute": _PER_MINUTE,
    "join": [("lamp", "12.5", "31"), ("lamp", "12.5", "32"), ("vase", "7.5", "34")],
    "topn": _tops(),
    "session": [("ann", "3"), ("ann", "2"), ("bob", "2"), ("bob", "1")],
    "pattern": [("ann", "Oslo", "Lima"), ("ann", "Nice", "Bern")],
    "socket": _LIVE,
    "kafka": _LIVE,
    "parquet": _PER_MINUTE,
    "database": _PER_MINUTE,
    "function": _counts("band", _BANDS),
}
"""By program, rows of words that lines of its output must contain. Live ones cannot close the last minute."""

LINES: Final = [json.dumps(row) for row in BID_ROWS]
"""The bids as messages of a socket and of Kafka."""


def write(folder: Path) -> None:
    """Write all inputs that are files."""
    tables = {"bids": BID_ROWS, "offers": OFFERS, "sales": SALES, "clicks": CLICKS, "logins": LOGINS}
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            out = csv.DictWriter(file, rows[0], lineterminator="\n")
            out.writeheader()
            out.writerows(rows)
    times = pa.array([datetime.fromisoformat(row["at"]) for row in BID_ROWS], pa.timestamp("us", "UTC"))
    table = pa.Table.from_pylist(BID_ROWS)
    pq.write_table(table.set_column(3, "at", times), folder / "bids.parquet")
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE bids (item TEXT, bidder TEXT, price REAL, at TEXT)")
        database.executemany("INSERT INTO bids VALUES (:item, :bidder, :price, :at)", BID_ROWS)
    database.close()
