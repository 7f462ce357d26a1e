"""The answers, computed offline by DuckDB, and how late they came in a paced run."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.peer import COLUMNS
from benchmarks.peers.tasks import BASE, KEPT, SECOND, Task

QUERIES = {
    "union": f"SELECT t, k, v FROM a WHERE v < {KEPT} UNION ALL SELECT t, k, v FROM b WHERE v < {KEPT}",
    "tumbling": "SELECT k, (t // {w} + 1) * {w} AS e, count(*) AS n, sum(v)::BIGINT AS s FROM a GROUP BY ALL",
    "sliding": """
        WITH panes AS (SELECT k, t // {s} AS p, count(*) AS n, sum(v) AS s FROM a GROUP BY ALL),
        windows AS (SELECT k, n, s, unnest(range(p + 1, p + 1 + {w} // {s})) AS e FROM panes)
        SELECT k, e * {s} AS e, sum(n)::BIGINT AS n, sum(s)::BIGINT AS s FROM windows GROUP BY k, e""",
    "join": "SELECT a.k AS k, a.t AS ta, b.t AS tb FROM a JOIN b ON a.k = b.k AND a.t // {w} = b.t // {w}",
    "silent": """
        SELECT k, (t // {w} + 1) * {w} AS e, count(*) AS n
        FROM (SELECT t, k FROM a UNION ALL SELECT t, k FROM b) GROUP BY ALL""",
}


def answers(task: Task, paths: dict[str, Path], begin: int = BASE) -> pa.Table:
    """The rows of a task when the time BASE of its streams is `begin`."""
    with duckdb.connect() as connection:
        for stream, path in paths.items():
            text = f"SELECT t - {BASE} + {begin} AS t, k, v FROM '{path}'"
            connection.execute(f"CREATE VIEW {stream} AS {text}")
        query = QUERIES[task.name].format(w=task.window * SECOND, s=task.slide * SECOND)
        return connection.sql(query).to_arrow_table()


def differ(task: Task, given: pa.Table, right: pa.Table) -> str | None:
    """What is wrong with an answer, or nothing."""
    names = list(COLUMNS[task.name])
    mine, its = given.select(names).to_batches(), right.select(names).to_batches()
    with duckdb.connect() as connection:
        connection.register("mine", pa.Table.from_batches(mine, given.select(names).schema))
        connection.register("its", pa.Table.from_batches(its, right.select(names).schema))
        found = [
            connection.sql(
                f"SELECT count(*) FROM (SELECT * FROM {x} EXCEPT ALL SELECT * FROM {y})"
            ).fetchall()
            for x, y in (("its", "mine"), ("mine", "its"))
        ]
    missing, extra = (each[0][0] for each in found)
    return f"{missing} rows missing, {extra} too many" if missing or extra else None


def delays(task: Task, given: pa.Table, paths: dict[str, Path], begin: int, at_close: bool) -> np.ndarray:
    """Milliseconds from the arrival that makes each answer certain to the answer.

    Of a union that is the row's own. Of a window it is the first row of any stream at or after its end;
    windows that only the end of the data closes do not count. Of a join it is the later row of the pair,
    or, `at_close`, for systems that answer a joined window only when it ends, the row that ends it.
    """
    came = given["at"].to_numpy()
    if task.name == "union":
        return (came - given["t"].to_numpy()) / 1000
    if task.name == "join" and not at_close:
        return (came - np.maximum(given["ta"].to_numpy(), given["tb"].to_numpy())) / 1000
    arrivals = (
        np.sort(np.concatenate([pq.read_table(p)["t"].to_numpy() for p in paths.values()])) - BASE + begin
    )
    if task.name == "join":
        width = task.window * SECOND
        ends = (given["ta"].to_numpy() // width + 1) * width
    else:
        ends = given["e"].to_numpy()
    first = np.searchsorted(arrivals, ends)
    closed = first < len(arrivals)
    return (came[closed] - arrivals[first[closed]]) / 1000
