"""Headrace: continuous queries over streams that are late, skewed, bursty or silent.

The names below are the face of the package; what they are made of lives in the packages they come from. They
are imported when first used: a Spark worker, which needs the engine alone, does not wait for the language.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace import spark
    from headrace.builder import stream, table
    from headrace.connectors.tables import read_table
    from headrace.engine import Engine, Snapshot
    from headrace.errors import HeadraceError
    from headrace.expressions import col, lit
    from headrace.frames import Result, Run, bounds, run, sql
    from headrace.graph.admission import Rules
    from headrace.plan.nodes.core import TimeKind
    from headrace.sql import Catalog, StreamDef, TableDef, declare
    from headrace.sql.definitions import register_aggregate, register_function
    from headrace.sql.query import Query, query
    from headrace.time.bounds import Bounds
    from headrace.time.ets import TimerPromise
    from headrace.time.heartbeat import HeartbeatGenerator
    from headrace.time.skew import SkewMatrix

__version__ = "0.1.0.dev0"

# Name → where it is defined. A new name also goes in the imports above.
_HOMES = {
    "Bounds": "headrace.time.bounds",
    "Catalog": "headrace.sql",
    "Engine": "headrace.engine",
    "HeadraceError": "headrace.errors",
    "HeartbeatGenerator": "headrace.time.heartbeat",
    "Query": "headrace.sql",
    "Result": "headrace.frames",
    "Rules": "headrace.graph.admission",
    "Run": "headrace.frames",
    "SkewMatrix": "headrace.time.skew",
    "Snapshot": "headrace.engine",
    "StreamDef": "headrace.sql",
    "TableDef": "headrace.sql",
    "TimeKind": "headrace.plan.nodes.core",
    "TimerPromise": "headrace.time.ets",
    "bounds": "headrace.frames",
    "col": "headrace.expressions",
    "declare": "headrace.sql",
    "lit": "headrace.expressions",
    "query": "headrace.sql",
    "read_table": "headrace.connectors.tables",
    "register_aggregate": "headrace.sql.definitions",
    "register_function": "headrace.sql.definitions",
    "run": "headrace.frames",
    "stream": "headrace.builder",
    "table": "headrace.builder",
}

_PACKAGES = ("spark", "sql")
"""Packages that are part of the face. `headrace.sql` can be called: see `headrace/sql/__init__.py`."""

__all__ = [
    "Bounds",
    "Catalog",
    "Engine",
    "HeadraceError",
    "HeartbeatGenerator",
    "Query",
    "Result",
    "Rules",
    "Run",
    "SkewMatrix",
    "Snapshot",
    "StreamDef",
    "TableDef",
    "TimeKind",
    "TimerPromise",
    "bounds",
    "col",
    "declare",
    "lit",
    "query",
    "read_table",
    "register_aggregate",
    "register_function",
    "run",
    "spark",
    "sql",
    "stream",
    "table",
]


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"headrace.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
