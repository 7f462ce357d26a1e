"""A relation as a stream of its changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.plan.nodes.core import ToStream
from headrace.schema import Schema

INSERT: Final = "+I"
UPDATE: Final = "+U"
DELETE: Final = "-D"


@dataclass(frozen=True)
class Changelog(ToStream):
    """At τ: the rows that leave the relation, as `-D`, and those that enter it, as `+I`.

    With `keys`, a row that replaces one with the same key is a `+U`, and the row that it replaces is left
    out: the newest change of a key says what it holds. `operation` names the column, after those of the row.
    """

    operation: str = "op"
    keys: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        return pa.schema([*self.input.schema, pa.field(self.operation, pa.string())])
