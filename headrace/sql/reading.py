"""Nothing that a text says is ignored: what no translator reads is refused.

sqlglot reads the SQL of thirty databases. `READ` has a row for each node of its trees that CQL knows, with
the parts that the translation reads; any other part that is present is an error at its place.
"""

from __future__ import annotations

from typing import Final, NoReturn

from sqlglot import exp

from headrace.sql.clauses import ToStream
from headrace.sql.codes import Code
from headrace.sql.place import fail

READ: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Select: frozenset({"expressions", "from_", "joins", "where", "group", "having", "distinct", "with_"})
    | {"order", "limit", "qualify"},
    exp.Union: frozenset({"this", "expression", "distinct", "with_"}),
    exp.Except: frozenset({"this", "expression", "distinct", "with_"}),
    ToStream: frozenset({"this", "kind", "with_"}),
    exp.Subquery: frozenset({"this", "alias", "with_"}),
    exp.Table: frozenset({"this", "alias"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Join: frozenset({"this", "on", "kind"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Group: frozenset({"expressions"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Window: frozenset({"this", "partition_by", "order", "over"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Star: frozenset(),
    exp.Column: frozenset({"this", "table"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Filter: frozenset({"this", "expression"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Cast: frozenset({"this", "to", "_type"}),
    exp.TryCast: frozenset({"this", "to", "_type", "safe", "requires_string"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
}
CLAUSES: Final[dict[str, tuple[str, str]]] = {
    "order": ("ORDER BY", "answers come in order of time; sort where they are stored"),
    "sort": ("SORT BY", "answers come in order of time; sort where they are stored"),
    "limit": ("LIMIT", "a stream has no end to count from; [ROWS n] keeps the newest rows"),
    "offset": ("OFFSET", "a stream has no end to count from; [ROWS n] keeps the newest rows"),
    "spec": ("a frame in OVER", "aggregate over a window on the FROM item: FROM s [ROWS 10]"),
    "siblings": ("ORDER SIBLINGS BY", ""),
    "with_fill": ("WITH FILL", ""),
    "windows": ("WINDOW", "windows stand on FROM items: FROM s [RANGE 10 MINUTES]"),
    "laterals": ("LATERAL VIEW", ""),
    "pivots": ("PIVOT", "use CASE inside aggregates"),
    "sample": ("TABLESAMPLE", ""),
    "recursive": ("WITH RECURSIVE", ""),
    "joins": ("a join in parentheses", "write the joins one after the other"),
    "db": ("a name with a database", "streams have one name"),
    "query": ("IN with a query", "join with the other stream"),
    "all": ("GROUP BY ALL", "name the columns"),
    "rollup": ("ROLLUP", "write one query per level and UNION ALL them"),
    "cube": ("CUBE", "write one query per level and UNION ALL them"),
    "grouping_sets": ("GROUPING SETS", "write one query per level and UNION ALL them"),
    "on": ("DISTINCT ON", "[PARTITION BY k ROWS 1] keeps the newest row of each k"),
}


def check_read(node: exp.Expr) -> None:
    """An error if `node` has a part that CQL does not know."""
    known = READ[type(node)]
    for key, value in node.args.items():
        if value and key not in known:
            refuse_part(node, key, value)


def refuse_part(node: exp.Expr, key: str, value: object) -> NoReturn:
    """The error of a part that has no place in CQL."""
    name, hint = CLAUSES.get(key, (key.strip("_").replace("_", " ").upper(), ""))
    first = value[0] if isinstance(value, list) and value else value
    fail(Code.NOT_CQL, f"{name} is not part of CQL", first if isinstance(first, exp.Expr) else node, hint)
