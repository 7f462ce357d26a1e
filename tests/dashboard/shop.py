"""A small live pipeline for the tests and the pictures of the page: a shop with clicks, buys and returns."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

TEXT = '''
[pipeline]
name = "shop"
runtime = "embedded"
clock = "system"
checkpoint = "state"
interval = 0.2

[streams.clicks]
source = { path = "clicks.jsonl", follow = true }
schema = "item STRING, price DOUBLE, at BIGINT"
time = { column = "at", unit = "us" }
bounds = { disorder = "1 s", latency = "2 s" }
guard = "10 s"

[streams.buys]
source = { path = "buys.jsonl", follow = true }
schema = "item STRING, amount BIGINT, at BIGINT"
time = { column = "at", unit = "us" }
bounds = { disorder = "2 s"%(latency)s }

[[queries]]
name = "per_item"
sql = """
SELECT item, count(*) AS clicks, avg(price) AS price, window_end
FROM clicks [RANGE 2 SECONDS SLIDE 2 SECONDS]
GROUP BY item"""
sink = "per_item.jsonl"
rejected = "rejected.jsonl"

[[queries]]
name = "bought"
sql = """
SELECT b.item, b.amount, c.price
FROM clicks [RANGE MIN 5 SECONDS, MAX 60 SECONDS] AS c, buys [RANGE 20 SECONDS] AS b
WHERE c.item = b.item AND b.amount > 1"""
sink = "bought.jsonl"

[memory]
budget = "2 MB"
'''

ITEMS = ("lamp", "chair", "table", "sofa", "shelf", "mirror", "rug", "vase")


class Shop:
    """The pipeline in a directory. `quiet`: a silent stream of buys holds queries back."""

    def __init__(self, root: Path, quiet: bool = False) -> None:
        self.root, self.file = root, root / "pipeline.toml"
        root.mkdir(parents=True, exist_ok=True)
        self.file.write_text(TEXT % {"latency": "" if quiet else ', latency = "3 s"'})
        self._random = random.Random(7)
        for name in ("clicks", "buys"):
            (root / f"{name}.jsonl").touch()

    def clicks(self, rows: int, ago: float = 0.0) -> None:
        """Some clicks whose times are up to half a second before now, or `ago` seconds."""
        self._add("clicks", [{"price": round(self._random.uniform(5, 90), 2)} for _ in range(rows)], ago)

    def buys(self, rows: int) -> None:
        self._add("buys", [{"amount": self._random.randint(1, 5)} for _ in range(rows)], 0.0)

    def nonsense(self) -> None:
        """A row that is not JSON."""
        with (self.root / "clicks.jsonl").open("a") as file:
            file.write('{"item": "lamp", "price": "cheap", "at": }\n')

    def _add(self, stream: str, rows: list[dict[str, object]], ago: float) -> None:
        now = time.time() - ago
        lines = [
            json.dumps(
                {
                    "item": self._random.choice(ITEMS),
                    **row,
                    "at": int((now - self._random.uniform(0, 0.5)) * 1e6),
                }
            )
            for row in rows
        ]
        with (self.root / f"{stream}.jsonl").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


class Customers:
    """Send rows to a shop from a thread, until the end of the block."""

    def __init__(self, shop: Shop, rate: int = 60, buy: bool = True, mistakes: bool = True) -> None:
        self.shop, self.rate, self.buy, self.mistakes = shop, rate, buy, mistakes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Customers:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        step = 0
        while not self._stop.wait(0.25):
            step += 1
            swing = 1 + (step // 40) % 2
            self.shop.clicks(self.rate * swing // 4)
            if self.buy:
                self.shop.buys(max(1, self.rate // 30))
            if self.mistakes and step % 12 == 0:
                self.shop.clicks(2, ago=8.0)
                self.shop.nonsense()
