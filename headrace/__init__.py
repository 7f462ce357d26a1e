"""Headrace: continuous queries over streams that are late, skewed, bursty or silent.

The names below are the face of the package; what they are made of lives in the packages they come from.
"""

from headrace import spark
from headrace.builder import stream, table
from headrace.connectors.tables import read_table
from headrace.engine import Engine, Snapshot
from headrace.errors import HeadraceError
from headrace.expressions import col, lit
from headrace.graph.admission import Rules
from headrace.plan.nodes import TimeKind
from headrace.sql import Catalog, Query, StreamDef, TableDef, declare, query
from headrace.time.bounds import Bounds
from headrace.time.ets import TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

__version__ = "0.1.0.dev0"

__all__ = [
    "Bounds",
    "Catalog",
    "Engine",
    "HeadraceError",
    "HeartbeatGenerator",
    "Query",
    "Rules",
    "SkewMatrix",
    "Snapshot",
    "StreamDef",
    "TableDef",
    "TimeKind",
    "TimerPromise",
    "col",
    "declare",
    "lit",
    "query",
    "read_table",
    "spark",
    "stream",
    "table",
]
