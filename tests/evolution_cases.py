"""Changes of a pipeline between two runs, and what each query must answer afterwards, for both runtimes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

BASE = 1_700_000_000_000_000
ROWS = 400

PIPELINE = """
[pipeline]
name = "market"
runtime = "embedded"
checkpoint = "state"
clock = "event"

[streams.bids]
source = { path = "bids.jsonl", block_bytes = 1_500 }
schema = "auction INT, price INT, at BIGINT"
time = { column = "at", unit = "us" }
bounds = { disorder = "500 ms" }

[streams.auctions]
source = { path = "auctions.jsonl", block_bytes = 1_500 }
schema = "id INT, seller INT, at BIGINT"
time = { column = "at", unit = "us" }

[tables]
sellers = "sellers.csv"

[[queries]]
name = "hot"
sql = '''SELECT auction, max(price) AS price, count(*) AS n
         FROM bids [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY auction'''
sink = { path = "hot.jsonl", time = "ts" }

[[queries]]
name = "best"
sql = '''SELECT auction, max(price) AS price FROM bids [RANGE 3 SECONDS] GROUP BY auction'''
sink = { path = "best.jsonl", time = "ts" }

[[queries]]
name = "pairs"
sql = '''SELECT a.id, b.price FROM auctions [RANGE 2 SECONDS] AS a, bids [RANGE 1 SECONDS] AS b
         WHERE a.id = b.auction'''
sink = { path = "pairs.jsonl", time = "ts" }

[[queries]]
name = "named"
sql = '''SELECT a.id, s.name FROM auctions [NOW] AS a, sellers AS s WHERE a.seller = s.seller'''
sink = { path = "named.jsonl", time = "ts" }
"""

NEW = """
[[queries]]
name = "newcomer"
sql = '''SELECT id, count(*) AS n FROM auctions [RANGE 2 SECONDS SLIDE 1 SECONDS] GROUP BY id'''
sink = { path = "newcomer.jsonl", time = "ts" }
"""


def write_inputs(root: Path, skip: dict[str, int] | None = None) -> None:
    """The rows of both streams, without the first `skip` of each, and the table."""
    rng = np.random.default_rng(7)
    bids, auctions = [], []
    for i in range(ROWS):
        at = BASE + i * 50_000
        late = int(rng.integers(0, 400_000))
        bid = {"auction": int(rng.integers(6)), "price": int(rng.integers(100)), "at": at - late}
        bids.append(bid | {"note": "x"})
        auctions.append({"id": int(rng.integers(6)), "seller": int(rng.integers(4)), "at": at})
    for name, rows in (("bids", bids), ("auctions", auctions)):
        rest = rows[(skip or {}).get(name, 0) :]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rest))
    (root / "sellers.csv").write_text("seller,name\n0,ann\n1,bob\n2,cid\n")


@dataclass(frozen=True)
class Change:
    """A change, and what becomes of each query.

    `whole`: with what it answered before, it has answered as one run of the changed pipeline. `rest`: from
    the restart on, it answers as one run of the changed pipeline. `begun`: it answers as a run over the rest
    of the input; `reset`: the same, after what it answered before. `moved`: its answers go on in another
    output, and the old one stays. `gone`: its output stays as it is. A query that is not named is `whole`.
    With `refused`, the restart stops with that code, says `said`, and changes nothing.
    """

    text: Callable[[str], str] = lambda text: text
    files: Callable[[Path], None] = lambda root: None
    expect: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    said: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()


def swap(old: str, new: str) -> Callable[[str], str]:
    """Replace a piece of the file, which must be there."""

    def change(text: str) -> str:
        assert old in text, old
        return text.replace(old, new)

    return change


def without(query: str) -> Callable[[str], str]:
    """Remove a query."""

    def change(text: str) -> str:
        head, *queries = text.split("[[queries]]")
        kept = [each for each in queries if f'name = "{query}"' not in each]
        assert len(kept) < len(queries)
        return "[[queries]]".join([head, *kept])

    return change


def turned(text: str) -> str:
    """The queries in the opposite order."""
    head, *queries = text.split("[[queries]]")
    return "[[queries]]".join([head, *(each.rstrip("\n") + "\n" for each in reversed(queries))])


def widened(text: str) -> str:
    return text.replace("auction INT, price INT", "auction BIGINT, price BIGINT").replace(
        "id INT", "id BIGINT"
    )


def new_sellers(root: Path) -> None:
    (root / "sellers.csv").write_text("seller,name\n0,ann\n1,bea\n3,dan\n")


BEST = "SELECT auction, max(price) AS price FROM bids [RANGE 3 SECONDS] GROUP BY auction"

HOT = "max(price) AS price, count(*) AS n"
SINK = 'sink = { path = "hot.jsonl", time = "ts" }'
WINDOW = "bids [RANGE 3 SECONDS]"
AUCTIONS = 'schema = "id INT, seller INT, at BIGINT"\ntime = { column = "at", unit = "us" }'

KEPT: dict[str, Change] = {
    "nothing": Change(),
    "larger disorder": Change(swap('disorder = "500 ms"', 'disorder = "2 s"')),
    "smaller disorder": Change(swap('disorder = "500 ms"', 'disorder = "450 ms"')),
    "latency": Change(swap('disorder = "500 ms"', 'disorder = "500 ms", latency = "20000 days"')),
    "guard": Change(swap("[streams.auctions]\n", '[streams.auctions]\nguard = "1 day"\n')),
    "budget": Change(swap("[tables]", '[memory]\nbudget = "64 MB"\n\n[tables]')),
    "strategy": Change(swap('clock = "event"', 'clock = "event"\nstrategy = "bfs"')),
    "reoptimize": Change(swap('clock = "event"', 'clock = "event"\nreoptimize = true')),
    "block size": Change(swap("block_bytes = 1_500", "block_bytes = 900")),
    "order of queries": Change(turned),
    "wider types": Change(widened),
    "stream column added": Change(swap("price INT, at BIGINT", "price INT, at BIGINT, note STRING")),
    "late output added": Change(swap(SINK, SINK + '\nlate = "late.jsonl"')),
}
"""Every query goes on."""

DIFFERENT: dict[str, Change] = {
    "query added": Change(lambda text: text + NEW, expect={"newcomer": "begun"}),
    "query added first": Change(
        lambda text: text.replace("[[queries]]", NEW.strip() + "\n\n[[queries]]", 1),
        expect={"newcomer": "begun"},
    ),
    "query removed": Change(without("hot"), expect={"hot": "gone"}),
    "two queries removed": Change(
        lambda text: without("best")(without("named")(text)), expect={"best": "gone", "named": "gone"}
    ),
    "query replaced": Change(
        lambda text: without("hot")(text) + NEW, expect={"hot": "gone", "newcomer": "begun"}
    ),
    "filter above": Change(swap(BEST, BEST + " HAVING max(price) > 70"), expect={"best": "rest"}),
    "column renamed": Change(swap(HOT, "max(price) AS top, count(*) AS n"), expect={"hot": "rest"}),
    "column added": Change(swap(HOT, HOT + ", max(price) * 2 AS twice"), expect={"hot": "rest"}),
    "column removed": Change(swap(HOT, "max(price) AS price"), expect={"hot": "rest"}),
    "join column renamed": Change(swap("b.price FROM", "b.price AS bid FROM"), expect={"pairs": "rest"}),
    "another sink": Change(swap('"best.jsonl"', '"moved.jsonl"'), expect={"best": "moved"}),
    "window, reset": Change(
        swap("auctions [RANGE 2 SECONDS]", "auctions [RANGE 1 SECONDS]"),
        expect={"pairs": "reset"},
        reset=("pairs",),
    ),
    "table, reloaded": Change(files=new_sellers, expect={"named": "rest"}, reload=("sellers",)),
}
"""Some queries begin, end, or answer differently from the restart on."""

REFUSED: dict[str, Change] = {
    "window": Change(
        swap(WINDOW, "bids [RANGE 5 SECONDS]"),
        refused="HR-G022",
        said=("query best", "RANGE 5 SECONDS", "--reset best", "new name"),
    ),
    "key": Change(
        swap(BEST, f"SELECT price, max(auction) AS a FROM {WINDOW} GROUP BY price"),
        refused="HR-G022",
        said=("query best", "by price"),
    ),
    "filter below": Change(
        swap(WINDOW, f"{WINDOW} WHERE price > 5"), refused="HR-G022", said=("query best", "price > 5")
    ),
    "another stream": Change(
        swap(
            "FROM auctions [NOW] AS a, sellers",
            "FROM bids [RANGE 1 SECONDS] AS b, auctions [NOW] AS a, sellers",
        ),
        refused="HR-G022",
        said=("query named",),
    ),
    "narrower type": Change(swap("price INT", "price SMALLINT"), refused="HR-G022", said=("not wider",)),
    "source": Change(
        swap('path = "bids.jsonl"', 'path = "others.jsonl"'),
        files=lambda root: (root / "others.jsonl").touch(),
        refused="HR-D005",
        said=("streams.bids.source.path", "new name"),
    ),
    "time": Change(
        swap(AUCTIONS, AUCTIONS.replace(" }", ', earliest = "2001-01-01" }')),
        refused="HR-D005",
        said=("streams.auctions.time", "stream auctions"),
    ),
    "clock": Change(swap('clock = "event"', 'clock = "system"'), refused="HR-D005", said=("event clock",)),
    "table": Change(files=new_sellers, refused="HR-D005", said=("table sellers", "--reload sellers")),
    "unknown reset": Change(refused="HR-D012", said=("'worst'", "best"), reset=("worst",)),
    "unknown reload": Change(refused="HR-D012", said=("'buyers'", "sellers"), reload=("buyers",)),
}
"""The restart stops and changes nothing."""
