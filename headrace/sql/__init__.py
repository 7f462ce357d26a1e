"""CQL: SQL over streams, read with sqlglot into `headrace.plan`.

`query(text, streams)` gives a `Query` whose plan the engine runs. A `Catalog` holds streams, tables and
views that several queries share; `declare` fills it from text.

The package can be called: `headrace.sql("SELECT …", clicks=rows)` is `headrace.frames.sql`. Python gives a
package the same name in its parent as a function of that name, and whichever comes last wins; so the package
is both.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from headrace.sql.catalog import MICROSECONDS, Catalog, StreamDef, TableDef
from headrace.sql.place import Code
from headrace.sql.query import Query, declare, query

__all__ = ["MICROSECONDS", "Catalog", "Code", "Query", "StreamDef", "TableDef", "declare", "query"]


class _Callable(ModuleType):
    """This package, which can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The answer of a query over tables: `help(headrace.frames.sql)`."""
        return importlib.import_module("headrace.frames").sql(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
