"""`SEQ(cases AS c, NOT stops AS s, products AS p) RECENT PARTITION BY line WITHIN 1 HOUR STRICT`.

In the modes EVERY and DISJOINT the steps are a pattern: `SEQ(a{2,5} AS x, (b AS y OR c AS z), d AS w) EVERY`,
and a step can be absent for a time: `NOT c AS n FOR 1 SECOND`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headrace.sql.parser.clauses import (
    Duration,
    Seq,
    SeqParts,
    SeqPattern,
    SeqRepeat,
    SeqStep,
    SequenceClause,
)
from headrace.sql.parser.match_recognize import parse_repetition
from headrace.sql.place import CLOSE, Code, fail

if TYPE_CHECKING:
    from headrace.sql.parser.windows import WindowParser

PATTERNS: Final = ("EVERY", "DISJOINT")
"""The modes whose steps are a pattern."""
MODES: Final = ("RECENT", "CHRONICLE", "UNRESTRICTED", "CONSECUTIVE", *PATTERNS)
FORM: Final = "SEQ(a AS x, b AS y) RECENT PARTITION BY k WITHIN 1 HOUR"
OPENS_QUERY: Final = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM})
OUTPUTS: Final = frozenset({"ISTREAM", "DSTREAM", "RSTREAM", "CHANGELOG"})


def parse_sequence(parser: WindowParser) -> Seq:
    """The sequence that begins here, up to its window."""
    word: Any = parser._curr
    parser._advance(2)
    steps = _Steps(parser)
    pattern = steps.listed()
    if not parser._match(TokenType.R_PAREN):
        fail(Code.SYNTAX, "expected ) after the steps", parser._curr or parser._prev, FORM)
    node = Seq(expressions=steps.found).update_positions(word)
    node.meta[CLOSE] = parser._prev.end
    node.meta[Seq.CLAUSE] = _clause(parser, node, pattern, steps)
    return node


class _Steps:
    """Reads the steps of a sequence; `special` is the first place with something that only patterns have."""

    def __init__(self, parser: WindowParser) -> None:
        self._parser = parser
        self.found: list[SeqStep] = []
        self.special: Any = None

    def listed(self) -> SeqPattern:
        """Parts one after the other."""
        parts = [self._choice()]
        while self._parser._match(TokenType.COMMA):
            parts.append(self._choice())
        return parts[0] if len(parts) == 1 else SeqParts(",", tuple(parts))

    def _choice(self) -> SeqPattern:
        """`a OR b`, `a AND b`, or one part."""
        parts, word = [self._part()], ""
        while (token := self._parser._curr).token_type in (TokenType.OR, TokenType.AND):
            if word and token.text.upper() != word:
                fail(Code.SEQUENCE, "AND and OR together", token, "write parentheses: (a AND b) OR c")
            word = token.text.upper()
            self.special = self.special or token
            self._parser._advance()
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else SeqParts(word, tuple(parts))

    def _part(self) -> SeqPattern:
        """A step, or a list of parts in parentheses, and how often it comes."""
        parser = self._parser
        first: Any = parser._curr
        if first.token_type == TokenType.L_PAREN and not self._opens_query():
            self.special = self.special or first
            parser._advance()
            part = self.listed()
            if not parser._match(TokenType.R_PAREN):
                fail(Code.SYNTAX, "expected ) after the steps", parser._curr or parser._prev, FORM)
            repetition = parse_repetition(parser)
            return part if repetition is None else SeqRepeat(part, *repetition)
        return self._step()

    def _opens_query(self) -> bool:
        """Whether the parenthesis here is that of a query."""
        inside = self._parser._tokens[self._parser._index :]
        found = next((each for each in inside if each.token_type != TokenType.L_PAREN), None)
        return found is not None and (found.token_type in OPENS_QUERY or found.text.upper() in OUTPUTS)

    def _step(self) -> SeqPattern:
        """One step: `a`, `NOT a`, `NOT a FOR 1 SECOND`, `a+` or `a{2,5}`, with an alias."""
        parser = self._parser
        first: Any = parser._curr
        missing = parser._match(TokenType.NOT)
        item = parser._parse_table_parts() if parser._next.text in ("*", "?") else parser._parse_table()
        if item is None:
            fail(Code.SYNTAX, "expected a stream", parser._curr or parser._prev, FORM)
        at: Any = parser._curr
        repetition = parse_repetition(parser)
        if missing and repetition is not None:
            fail(Code.SEQUENCE, "a NOT step cannot be repeated", parser._prev, "remove NOT or +")
        if repetition is not None and not item.args.get("alias"):
            item.set("alias", parser._parse_table_alias())
        if repetition is not None and repetition != (1, None):
            self.special = self.special or at
        kind = "NOT" if missing else "+" if repetition is not None else ""
        step = SeqStep(this=item, kind=kind).update_positions(first)
        step.meta[SeqStep.LASTING] = self._lasting(item) if missing else None
        self.found.append(step)
        number = len(self.found) - 1
        return number if repetition is None else SeqRepeat(number, *repetition)

    def _lasting(self, item: exp.Expr) -> Duration | None:
        """`FOR 1 SECOND` after a NOT step; the alias may follow it."""
        parser, word = self._parser, self._parser._curr
        if not parser._match_text_seq("FOR"):
            return None
        self.special = self.special or word
        lasting = parser._parse_duration()
        if not item.args.get("alias"):
            item.set("alias", parser._parse_table_alias())
        return lasting


def _clause(parser: WindowParser, node: Seq, pattern: SeqPattern, steps: _Steps) -> SequenceClause:
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
    if mode in PATTERNS:
        if strict:
            hint = "remove STRICT: a row is one step at most"
            fail(Code.SEQUENCE, f"{mode} does not take STRICT", parser._prev, hint)
        return SequenceClause(mode, tuple(keys), within, strict, pattern)
    if steps.special is not None:
        hint = "write EVERY (a match from each first row) or DISJOINT (matches that share no time)"
        fail(Code.SEQUENCE, f"{mode} takes only a, NOT a and a+", steps.special, hint)
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
