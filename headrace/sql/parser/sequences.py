"""`SEQ(cases AS c, NOT stops AS s, products AS p) RECENT PARTITION BY line WITHIN 1 HOUR STRICT`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headrace.sql.parser.clauses import Duration, Seq, SeqStep, SequenceClause
from headrace.sql.place import CLOSE, Code, fail

if TYPE_CHECKING:
    from headrace.sql.parser.windows import WindowParser

MODES: Final = ("RECENT", "CHRONICLE", "UNRESTRICTED", "CONSECUTIVE")
FORM: Final = "SEQ(a AS x, b AS y) RECENT PARTITION BY k WITHIN 1 HOUR"


def parse_sequence(parser: WindowParser) -> Seq:
    """The sequence that begins here, up to its window."""
    word: Any = parser._curr
    parser._advance(2)
    steps = [_step(parser)]
    while parser._match(TokenType.COMMA):
        steps.append(_step(parser))
    if not parser._match(TokenType.R_PAREN):
        fail(Code.SYNTAX, "expected ) after the steps", parser._curr or parser._prev, FORM)
    node = Seq(expressions=steps).update_positions(word)
    node.meta[CLOSE] = parser._prev.end
    node.meta[Seq.CLAUSE] = _clause(parser, node)
    return node


def _step(parser: WindowParser) -> SeqStep:
    """One step: `a`, `NOT a` or `a+`, with an alias."""
    first: Any = parser._curr
    missing = parser._match(TokenType.NOT)
    item = parser._parse_table()
    if item is None:
        fail(Code.SYNTAX, "expected a stream", parser._curr or parser._prev, FORM)
    repeated = parser._match(TokenType.PLUS)
    if missing and repeated:
        fail(Code.SEQUENCE, "a NOT step cannot be repeated", parser._prev, "remove NOT or +")
    if repeated and not item.args.get("alias"):
        item.set("alias", parser._parse_table_alias())
    return SeqStep(this=item, kind="NOT" if missing else "+" if repeated else "").update_positions(first)


def _clause(parser: WindowParser, node: Seq) -> SequenceClause:
    """The mode, PARTITION BY, WITHIN and STRICT, in any order."""
    mode, strict = "", False
    keys: list[exp.Expr] = []
    within: Duration | None = None
    while True:
        word = parser._word()
        if word in MODES and not mode:
            parser._advance()
            mode = word
        elif word == "STRICT" and not strict:
            parser._advance()
            strict = True
        elif word == "WITHIN" and within is None:
            parser._advance()
            within = parser._parse_duration()
        elif not keys and parser._match(TokenType.PARTITION_BY):
            keys = _keys(parser)
        else:
            break
    if not mode:
        fail(Code.SEQUENCE, "SEQ needs a mode", node, f"write one of {', '.join(MODES)} after it")
    if parser._curr.token_type == TokenType.ALIAS or parser._curr.token_type == TokenType.VAR:
        fail(Code.SEQUENCE, "SEQ cannot have an alias; give aliases to its steps", parser._curr, FORM)
    return SequenceClause(mode, tuple(keys), within, strict)


def _keys(parser: WindowParser) -> list[exp.Expr]:
    """Columns, or equalities of columns; a bracket after one opens the window of the sequence."""
    found = [_key(parser)]
    while parser._match(TokenType.COMMA):
        found.append(_key(parser))
    return found


def _key(parser: WindowParser) -> exp.Expr:
    """A key: `k`, or `x.a = y.b = …`."""
    key: exp.Expr = _column(parser)
    while parser._match(TokenType.EQ):
        key = exp.EQ(this=key, expression=_column(parser))
    return key


def _column(parser: WindowParser) -> exp.Column:
    name = _name(parser)
    if not parser._match(TokenType.DOT):
        return exp.Column(this=name)
    return exp.Column(this=_name(parser), table=name)


def _name(parser: WindowParser) -> exp.Expr:
    at: Any = parser._curr or parser._prev
    found = parser._parse_id_var(any_token=False)
    if not isinstance(found, exp.Identifier) or not found.name:
        hint = "write PARTITION BY k, or PARTITION BY x.a = y.b"
        fail(Code.SEQUENCE_KEY, "PARTITION BY of a SEQ takes only columns", at, hint)
    return found
