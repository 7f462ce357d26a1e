"""Text to statements, with sqlglot's errors turned into ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from headrace.sql.parser.aggregates import in_one_piece, outside
from headrace.sql.parser.clauses import Recognize, ToStream
from headrace.sql.parser.dialect import Cql, CqlParser
from headrace.sql.parser.migrating import phrase_in
from headrace.sql.parser.siddhi import in_cql
from headrace.sql.place import Code, Fault, Span, fail


def parse(text: str) -> list[exp.Expr]:
    """The statements of `text`, in order; raises a `Fault` if it is not valid CQL."""
    found = read(text, CqlParser._parse_statement)
    return [each for each in found if each is not None and not isinstance(each, exp.Semicolon)]


def read(text: str, rule: Callable[[Any], Any]) -> list[Any]:
    """Apply `rule` of the parser to each part of `text`; parts end with a semicolon."""
    dialect, tokens = Cql(), []
    try:
        tokens = in_one_piece(dialect.tokenize(text))
        return dialect.parser(error_level=ErrorLevel.IMMEDIATE)._parse(rule, tokens, text)
    except RecursionError:
        raise
    except Fault as fault:
        _translate(text)
        if (
            fault.code in (Code.SYNTAX, Code.UNKNOWN_TYPE)
            and (phrase := phrase_in(outside(tokens))) is not None
        ):
            fail(Code.SYNTAX, phrase.message, phrase.span, phrase.hint)
        raise
    except ParseError as error:
        _translate(text)
        phrase = phrase_in(outside(tokens))
        if phrase is not None:
            fail(Code.SYNTAX, phrase.message, phrase.span, phrase.hint)
        said = _description(error)
        fail(Code.SYNTAX, said, _place(error, text), HINTS.get(said, ""))
    except TokenError as error:
        at = Span(error.end - 1, error.end) if error.end else None
        fail(Code.SYNTAX, "the text cannot be parsed from here on", at, "is a quote or comment left open?")
    except Exception:
        # On some invalid texts sqlglot fails with an arbitrary Python exception.
        fail(Code.SYNTAX, "this is not valid SQL")


def _translate(text: str) -> None:
    """Fail with the query in CQL if the text has one of Siddhi."""
    found = in_cql(text)
    if found is not None:
        hint = f"write {found}" if found else "write SELECT … FROM s, or FROM SEQ(a AS x, b AS y) EVERY"
        fail(Code.SYNTAX, "this is a query of Siddhi", None, hint)


def _description(error: ParseError) -> str:
    """What sqlglot says, in our words; names of its classes are left out."""
    said = str(error.errors[0].get("description") or "") if error.errors else ""
    first = said.split("\n")[0].split(" but got <")[0].rstrip(".")
    for begin, ours in SAID.items():
        if first.startswith(begin):
            return ours + first[len(begin) :] if ours.endswith(" ") else ours
    return "this is not valid SQL" if not first or "<" in first or "Token" in first else first


SAID: Final = {
    "Invalid expression": "this is not expected here",
    "Required argument": "something is missing here",
    "Required keyword": "something is missing at this place",
    "Expected END after CASE": "CASE needs WHEN … THEN … END",
    "Expected table name": "expected a stream, a table or a view",
    "Expected TYPE after CAST": "this is not a type",
    "Expecting ": "expected ",
}
"""How messages of sqlglot begin, and what we say; a text that ends with a space keeps the rest."""
HINTS: Final = {
    "expected )": "is a ( before it not closed?",
    "something is missing at this place": "write an expression or a condition, or remove the word",
    "CASE needs WHEN … THEN … END": "write CASE WHEN x > 0 THEN 1 ELSE 2 END",
    "expected a stream, a table or a view": "is there a comma too many?",
    "this is not a type": "types: BIGINT, DOUBLE, STRING, TIMESTAMP, …",
}


def _place(error: ParseError, text: str) -> Span | None:
    """The place of the error: sqlglot gives the line and last column of the token, and quotes it."""
    if not error.errors:
        return None
    line, column = error.errors[0].get("line"), error.errors[0].get("col")
    token = str(error.errors[0].get("highlight") or "")
    if not line or column is None:
        return None
    begin = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1])
    end = begin + column
    return (
        Span(end - len(token), end) if token and text[end - len(token) : end] == token else Span(end - 1, end)
    )


# No part of a query is ignored: a part that the binder does not use is an error.
#
# sqlglot parses the SQL of thirty databases. `READ` has an entry for each kind of node that CQL knows, with
# the parts that the binder uses; any other part that is present is an error at its place.


READ: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Select: frozenset({"expressions", "from_", "joins", "where", "group", "having", "distinct", "with_"})
    | {"order", "limit", "qualify", "laterals", "windows"},
    exp.Union: frozenset({"this", "expression", "distinct", "with_"}),
    exp.Except: frozenset({"this", "expression", "distinct", "with_"}),
    ToStream: frozenset({"this", "kind", "with_", "keys"}),
    Recognize: frozenset({"this", "partition", "order", "measures", "define", "alias"}),
    exp.Subquery: frozenset({"this", "alias", "with_"}),
    exp.Table: frozenset({"this", "alias"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Unnest: frozenset({"expressions", "alias", "offset"}),
    exp.Lateral: frozenset({"this", "alias", "view", "outer", "ordinality"}),
    exp.Join: frozenset({"this", "on", "kind", "side"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Group: frozenset({"expressions"}),
    exp.Distinct: frozenset({"expressions", "on"}),
    exp.Window: frozenset({"this", "partition_by", "order", "over", "spec"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Star: frozenset(),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Filter: frozenset({"this", "expression"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Cast: frozenset({"this", "to", "_type"}),
    exp.TryCast: frozenset({"this", "to", "_type", "safe", "requires_string"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
}
CLAUSES: Final[dict[str, tuple[str, str]]] = {
    "order": ("ORDER BY", "answers come in order of time; sort them where they are stored"),
    "sort": ("SORT BY", "answers come in order of time; sort them where they are stored"),
    "limit": ("LIMIT", "a stream does not end; use [ROWS n] for the newest rows"),
    "offset": ("OFFSET", "a stream does not end; use [ROWS n] for the newest rows"),
    "spec": ("a frame for this function", "frames are for aggregates, FIRST_VALUE and LAST_VALUE"),
    "siblings": ("ORDER SIBLINGS BY", ""),
    "with_fill": ("WITH FILL", ""),
    "pivots": ("PIVOT", "use CASE inside aggregates"),
    "sample": ("TABLESAMPLE", ""),
    "recursive": ("WITH RECURSIVE", ""),
    "joins": ("a join in parentheses", "write the joins one after the other"),
    "db": ("a name with a database", "write the name of the stream alone"),
    "query": ("IN (SELECT …) here", "it must be a condition of WHERE, connected with AND"),
    "all": ("GROUP BY ALL", "name the columns"),
    "rollup": ("ROLLUP", "write one query per level and combine them with UNION ALL"),
    "cube": ("CUBE", "write one query per level and combine them with UNION ALL"),
    "grouping_sets": ("GROUPING SETS", "write one query per level and combine them with UNION ALL"),
    "version": (
        "FOR SYSTEM_TIME AS OF",
        "it belongs to a join: FROM orders JOIN rates FOR SYSTEM_TIME AS OF orders.ts ON …",
    ),
    "using": ("USING", "write ON a.k = b.k"),
    "into": ("INTO", "where answers go is set in the pipeline file"),
    "hint": ("hints", "remove it"),
    "cluster": ("CLUSTER BY", "answers come in order of time"),
    "distribute": ("DISTRIBUTE BY", "the planner finds the partition key"),
}


def check_read(node: exp.Expr) -> None:
    """Raise an error if `node` has a part that CQL does not know."""
    known = READ[type(node)]
    for key, value in node.args.items():
        if value and key not in known:
            refuse_part(node, key, value)


def refuse_part(node: exp.Expr, key: str, value: object) -> NoReturn:
    """Raise the error for a part that CQL does not support."""
    name, hint = CLAUSES.get(key, ("this", ""))
    first = value[0] if isinstance(value, list) and value else value
    fail(Code.NOT_CQL, f"CQL does not support {name}", first if isinstance(first, exp.Expr) else node, hint)
