"""User-defined aggregates for tests: one for each way in which the engine can keep them.

All are exact and, but for `Digits`, blind to the order of rows, so that any two ways of computing them agree.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.aggregates import library
from headrace.plan.nodes.user_aggregates import UserAggregate, UserCall, user_aggregate, user_call
from headrace.schema import Schema
from headrace.sql import Catalog, declare

INT: Final = pa.int64()


class Median:
    """The lower median: no merge, no expire, so that rows are kept."""

    arguments = (INT,)
    result = INT

    def initialize(self) -> list[int]:
        return []

    def iterate(self, state: list[int], values: pa.Array) -> list[int]:
        state.extend(values.to_pylist())
        return state

    def terminate(self, state: list[int]) -> int:
        return sorted(state)[(len(state) - 1) // 2]


class TwoLargest:
    """The greatest two values as text: it merges, and lets nothing go. Its merge changes its first state."""

    arguments = (INT,)
    result = pa.string()

    def initialize(self) -> list[int]:
        return []

    def iterate(self, state: list[int], values: pa.Array) -> list[int]:
        return self.merge(state, values.to_pylist())

    def merge(self, state: list[int], later: list[int]) -> list[int]:
        state += later
        state.sort(reverse=True)
        del state[2:]
        return state

    def terminate(self, state: list[int]) -> str:
        return ", ".join(map(str, state))


class Mixed:
    """The exclusive or of two columns' values: it merges, and rows can be taken away."""

    arguments = (INT, INT)
    result = INT

    def initialize(self) -> int:
        return 0

    def iterate(self, state: int, left: pa.Array, right: pa.Array) -> int:
        found = np.bitwise_xor.reduce(left.to_numpy() * 3 ^ right.to_numpy())
        return state ^ int(found)

    def merge(self, state: int, later: int) -> int:
        return state ^ later

    expire = iterate

    def terminate(self, state: int) -> int:
        return state


class Unknown:
    """How many rows are null and how many are not, of any type: it is given nulls, and cannot merge."""

    arguments = (None,)
    result = pa.string()
    nulls = True

    def initialize(self) -> tuple[int, int]:
        return 0, 0

    def iterate(self, state: tuple[int, int], values: pa.Array) -> tuple[int, int]:
        return state[0] + values.null_count, state[1] + len(values) - values.null_count

    def expire(self, state: tuple[int, int], values: pa.Array) -> tuple[int, int]:
        return state[0] - values.null_count, state[1] - len(values) + values.null_count

    def terminate(self, state: tuple[int, int]) -> pa.Scalar:
        return pa.scalar(f"{state[0]} of {sum(state)}")


class Digits:
    """The values in their order, as text: order counts, and merging keeps it."""

    arguments = (INT,)
    result = "string"
    ordered = True

    def initialize(self) -> str:
        return ""

    def iterate(self, state: str, values: pa.Array) -> str:
        return state + "".join(f"{value}," for value in values.to_pylist())

    def merge(self, state: str, later: str) -> str:
        return state + later

    def terminate(self, state: str) -> str:
        return state


MEDIAN: Final = user_aggregate("median", Median)
TWO_LARGEST: Final = user_aggregate("two_largest", TwoLargest)
MIXED: Final = user_aggregate("mixed", Mixed)
UNKNOWN: Final = user_aggregate("unknown", Unknown)
BY: Final = library.MAX_BY
DIGITS: Final = user_aggregate("digits", Digits)

IN_SQL: Final = """
CREATE AGGREGATE inserted(x BIGINT) : BIGINT {
    TABLE held(v BIGINT);
    INITIALIZE: { INSERT INTO held VALUES (x % 1000); }
    ITERATE:    { INSERT INTO held VALUES (x % 1000); }
    TERMINATE:  { INSERT INTO RETURN SELECT max(v) - min(v) + count(*) * 1000 FROM held; }
};
CREATE AGGREGATE decayed(x BIGINT, y BIGINT) : BIGINT {
    TABLE state(e BIGINT, n INT);
    INITIALIZE: { INSERT INTO state VALUES (x % 1000, 1); }
    ITERATE:    { UPDATE state SET e = (2 * e + x % 1000) % 1009, n = n + 1 WHERE y > 0 OR n < 3; }
    TERMINATE:  { INSERT INTO RETURN SELECT e * 100 + n FROM state; }
};
CREATE AGGREGATE commonest(x BIGINT) : BIGINT {
    TABLE seen(v BIGINT, n INT);
    INITIALIZE: { INSERT INTO seen VALUES (x, 1); }
    ITERATE:    { UPDATE seen SET n = n + 1 WHERE v = x;
                  INSERT INTO seen SELECT x, 1 WHERE NOT EXISTS (SELECT 1 FROM seen WHERE v = x); }
    TERMINATE:  { INSERT INTO RETURN SELECT v FROM seen ORDER BY n DESC, v LIMIT 1; }
    EXPIRE:     { UPDATE seen SET n = n - 1 WHERE v = x; DELETE FROM seen WHERE n = 0; }
};
"""


def _in_sql() -> dict[str, UserAggregate]:
    """The aggregates of `IN_SQL` by name."""
    catalog = Catalog()
    declare(IN_SQL, catalog)
    found = {name: catalog.definitions.find(name) for name in catalog.definitions}
    return {name: each for name, each in found.items() if isinstance(each, UserAggregate)}


SQL: Final = _in_sql()
UNORDERED: Final[tuple[UserAggregate, ...]] = (MEDIAN, TWO_LARGEST, MIXED, UNKNOWN)


def calls_on(schema: Schema, ordered: bool) -> list[UserCall]:
    """Every call of one of these over columns that it takes, where the order is known if it minds that."""
    ints = [field.name for field in schema if field.type == INT]
    found = [(each, (name,)) for each in (MEDIAN, TWO_LARGEST) for name in ints]
    found += [(UNKNOWN, (name,)) for name in schema.names]
    found += [(DIGITS, (name,)) for name in ints if ordered]
    found += [(SQL["inserted"], (name,)) for name in ints]
    found += [(SQL["commonest"], (name,)) for name in ints if ordered]
    found += [(SQL["decayed"], (left, right)) for left in ints for right in ints if ordered]
    found += [(library.percentile(0.3), (name,)) for name in ints]
    found += [(library.listagg("-"), (f.name,)) for f in schema if ordered and f.type == pa.string()]
    pairs = [(each, (left, right)) for each in (MIXED, BY) for left in ints for right in ints]
    return [user_call(each.name, each, columns) for each, columns in (*found, *pairs)]
