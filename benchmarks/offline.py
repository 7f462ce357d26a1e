"""The same answers computed offline in one go: Polars and DuckDB, one thread each, the data in memory.

Each is asked in the way that suits it best (`merge_sorted`, panes before windows); answers are Arrow tables
with the engine's columns, so that they can be checked equal.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import duckdb
import polars as pl
import pyarrow as pa

from benchmarks.workloads import SECOND, Workload


def polars_tables(work: Workload) -> dict[str, pl.LazyFrame]:
    """The streams as Polars holds them."""
    return {name: pl.from_arrow(pa.table(table)).lazy() for name, table in work.tables.items()}  # type: ignore[union-attr]


def duck_tables(work: Workload) -> duckdb.DuckDBPyConnection:
    """The streams as DuckDB tables of its own."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET preserve_insertion_order = false")
    for name, table in work.tables.items():
        connection.register("arrow_rows", pa.table(table))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow_rows")
    return connection


def polars_union(tables: dict[str, pl.LazyFrame]) -> pa.Table:
    """(a) Filter both, merge the sorted results."""
    kept = [t.filter(pl.col("v") < 95) for t in tables.values()]
    return kept[0].merge_sorted(kept[1], key="t").collect().to_arrow()


def duck_union(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """(a) Filter both, sort the union."""
    query = "SELECT * FROM a WHERE v < 95 UNION ALL SELECT * FROM b WHERE v < 95 ORDER BY t"
    return connection.sql(query).to_arrow_table()


def polars_sliding(tables: dict[str, pl.LazyFrame], size: int = 60) -> pa.Table:
    """(b) Panes of a second by key, then each pane into the windows that hold it."""
    panes = tables["a"].group_by("k", pane=pl.col("t") // SECOND).agg(n=pl.len(), total=pl.col("v").sum())
    windows = panes.with_columns(w=pl.int_ranges(pl.col("pane") + 1, pl.col("pane") + 1 + size)).explode("w")
    summed = windows.group_by("k", "w").agg(n=pl.col("n").sum(), total=pl.col("total").sum())
    ends = summed.select("k", "n", "total", w_start=(pl.col("w") - size) * SECOND, w_end=pl.col("w") * SECOND)
    return ends.sort("w_end").collect().to_arrow()


def duck_sliding(connection: duckdb.DuckDBPyConnection, size: int = 60) -> pa.Table:
    """(b) The same in SQL."""
    query = f"""
        WITH panes AS (
            SELECT k, t // {SECOND} AS pane, count(*) AS n, sum(v) AS total FROM a GROUP BY ALL
        ), windows AS (
            SELECT k, n, total, unnest(range(pane + 1, pane + 1 + {size})) AS w FROM panes
        )
        SELECT k, sum(n)::BIGINT AS n, sum(total)::BIGINT AS total,
               (w - {size}) * {SECOND} AS w_start, w * {SECOND} AS w_end
        FROM windows GROUP BY k, w ORDER BY w_end
    """
    return connection.sql(query).to_arrow_table()


def polars_join(tables: dict[str, pl.LazyFrame], held: int) -> pa.Table:
    """(c) Join on the key, keep the pairs within the window."""
    pairs = tables["a"].join(tables["b"], left_on="k", right_on="k2", coalesce=False)
    return pairs.filter((pl.col("t2") - pl.col("t")).abs() < held).collect().to_arrow()


def duck_join(connection: duckdb.DuckDBPyConnection, held: int) -> pa.Table:
    """(c) The same in SQL."""
    query = f"SELECT * FROM a JOIN b ON k = k2 AND abs(t2 - t) < {held}"
    return connection.sql(query).to_arrow_table()
