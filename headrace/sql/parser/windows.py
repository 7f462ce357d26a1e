"""Windows on FROM items, such as `[RANGE 10 MINUTES SLIDE 1 MINUTE]`.

A table maps the word that opens a window to the method that parses the rest. Words for operators that do not
exist yet are in the table too, so that the error can name them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, TypeVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headrace.sql.parser.clauses import (
    GRANULARITY,
    WINDOW,
    Duration,
    GranularityClause,
    NowClause,
    RangeClause,
    RowsClause,
    Seq,
    SessionClause,
    UnboundedClause,
    WindowClause,
)
from headrace.sql.parser.match_recognize import opens_match_recognize, parse_match_recognize
from headrace.sql.parser.sequences import parse_sequence
from headrace.sql.parser.window_functions import opens_window_function, parse_window_function
from headrace.sql.place import Code, Span, fail, nearest
from headrace.time.durations import UNITS, Parts, split

FORMS: Final = "[RANGE 10 MINUTES], [RANGE 10 MINUTES SLIDE 1 MINUTE], [ROWS 100], [NOW], [UNBOUNDED]"
AMOUNT: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?", re.ASCII)
AMOUNT_TOKENS: Final = (TokenType.NUMBER, TokenType.INTERVAL)
CLOSE_UP: Final = re.compile(r"([0-9]{1,18}[a-z]+)+", re.ASCII | re.IGNORECASE)
COUNT: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
AFTER_DURATION: Final = frozenset({"SLIDE", "OFFSET", "DEFINE", "SUBSET"})
"""Words that may follow a number without a unit."""
LATER: Final = "not yet in this version of Headrace"
Bound = TypeVar("Bound", Duration, int)


class WindowParser(SparkParser):
    """Parses a window wherever a FROM item may have one, before or after its alias."""

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if self._next.text.upper() == "GRANULARITY" and self._curr.token_type == TokenType.L_BRACKET:
            return self._parse_granularity(this)
        if isinstance(this, exp.Table):
            self._attach_window(this)
            return this
        return super()._parse_bracket(this)

    def _parse_subquery(self, this: exp.Expr | None, parse_alias: bool = True) -> exp.Subquery | None:
        clause = self._parse_stream_window() if this and parse_alias else None
        subquery = super()._parse_subquery(this, parse_alias)
        if subquery is not None and clause is not None:
            subquery.meta[WINDOW] = clause
        return subquery

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        sequence = self._curr.text.upper() == "SEQ" and self._next.token_type == TokenType.L_PAREN
        if opens_window_function(self):
            found: exp.Expr | None = parse_window_function(self)
        else:
            found = parse_sequence(self) if sequence else super()._parse_table(*args, **kwargs)
        if isinstance(found, (exp.Table, exp.Subquery, Seq)):
            self._attach_window(found)
        if isinstance(found, (exp.Table, exp.Subquery)) and opens_match_recognize(self):
            found = parse_match_recognize(self, found)
            self._attach_window(found)
        return found

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
        """MATCH_RECOGNIZE before a parenthesis is no alias."""
        return None if opens_match_recognize(self) else super()._parse_table_alias(*args, **kwargs)

    def _attach_window(self, item: exp.Expr) -> None:
        """Parse a window after a FROM item and store it in its `meta`."""
        opening = self._curr
        clause = self._parse_stream_window()
        if clause is not None and WINDOW in item.meta:
            fail(
                Code.WINDOW,
                "a FROM item can have only one window",
                opening,
                "remove one, or move it to a subquery",
            )
        if clause is not None:
            item.meta[WINDOW] = clause

    def _parse_stream_window(self) -> WindowClause | None:
        """Parse the window that opens here; None if there is none."""
        if not self._match(TokenType.L_BRACKET):
            return None
        opening, word = self._prev, self._word()
        read = WINDOWS.get(word)
        if read is None:
            hint = ELSEWHERE.get(word) or nearest(word, WINDOWS, f"windows: {FORMS}", cutoff=0.7)
            fail(Code.WINDOW, f"{word or 'this'} is not a window", self._curr or opening, hint)
        self._advance()
        clause = read(self, opening)
        if not self._match(TokenType.R_BRACKET):
            fail(
                Code.WINDOW,
                "expected ] at the end of the window",
                self._curr or self._prev,
                f"windows: {FORMS}",
            )
        return clause

    def _word(self) -> str:
        """The current token in upper case, with single spaces."""
        return " ".join(self._curr.text.upper().split())

    def _parse_range_window(self, opening: Token) -> WindowClause:
        least: Duration | None = None
        if self._match_text_seq("UNBOUNDED"):
            return UnboundedClause(self._span_from(opening))
        if self._word() in ("MIN", "MAX"):
            least, size = self._parse_bounds("MIN", "MAX")
        else:
            size = self._parse_duration()
        slide = self._parse_duration() if self._match_text_seq("SLIDE") else None
        offset = self._parse_window_offset() if slide and self._match_text_seq("OFFSET") else None
        return RangeClause(size, slide, self._span_from(opening), least, offset)

    def _parse_window_offset(self) -> Duration:
        """A duration that may be negative: `1 HOUR`, `- 1 HOUR`, `INTERVAL '-1' HOUR`."""
        first = self._curr
        minus = self._match(TokenType.DASH)
        self._match(TokenType.INTERVAL)
        token = self._curr
        if minus or not (token.token_type == TokenType.STRING and token.text.startswith("-")):
            found = self._parse_duration()
            parts = tuple((-amount if minus else amount, unit) for amount, unit in found.parts)
            return Duration(parts, self._span_from(first))
        self._advance()
        if not AMOUNT.fullmatch(token.text[1:]):
            fail(Code.DURATION, "an offset must start with a number", token, "write INTERVAL '-1' HOUR")
        return Duration(((Fraction(token.text), self._parse_unit()),), self._span_from(first))

    def _parse_bounds(self, *words: str) -> list[Duration]:
        """`MIN 2 HOURS, MAX 5 HOURS`: both, in either order; returned in the order of `words`."""
        return self._parse_pair(words, self._parse_duration, f"write {words[0]} 2 HOURS, {words[1]} 5 HOURS")

    def _parse_pair(self, words: tuple[str, ...], read: Callable[[], Bound], hint: str) -> list[Bound]:
        """The words in either order, each with a value; the values in the order of `words`."""
        found: dict[str, Bound] = {}
        while len(found) < len(words):
            word = self._word()
            if word not in words or word in found or (found and self._prev.token_type != TokenType.COMMA):
                fail(Code.QUALITY, f"expected {' or '.join(words)}", self._curr or self._prev, hint)
            self._advance()
            found[word] = read()
            if len(found) < len(words) and not self._match(TokenType.COMMA):
                fail(Code.QUALITY, "the second bound is missing", self._curr or self._prev, hint)
        return [found[word] for word in words]

    def _parse_granularity(self, this: exp.Expr | None) -> exp.Expr | None:
        """Parse the granularity clause after an aggregate and store it in the aggregate's `meta`."""
        opening = self._curr
        self._advance(2)
        if not isinstance(this, (exp.Anonymous, exp.Filter)) or GRANULARITY in this.meta:
            hint = "write avg(x) [GRANULARITY 10 SECONDS]"
            fail(Code.GRANULARITY, "GRANULARITY must follow an aggregate, once", self._prev, hint)
        if self._word() in ("COARSEST", "FINEST"):
            finest, coarsest = self._parse_bounds("FINEST", "COARSEST")
            clause = GranularityClause(finest, coarsest, self._span_from(opening))
        else:
            clause = GranularityClause(self._parse_duration(), None, self._span_from(opening))
        if not self._match(TokenType.R_BRACKET):
            fail(Code.GRANULARITY, "expected ] at the end of GRANULARITY", self._curr or self._prev)
        this.meta[GRANULARITY] = clause
        return this

    def _parse_rows_window(self, opening: Token) -> WindowClause:
        if self._match_text_seq("UNBOUNDED"):
            return UnboundedClause(self._span_from(opening))
        return self._parse_rows_clause((), opening)

    def _parse_partition_window(self, opening: Token) -> WindowClause:
        nothing = self._match_pair(TokenType.L_PAREN, TokenType.R_PAREN)
        keys = [] if nothing else self._parse_csv(self._parse_column)
        columns = tuple(each for each in keys if isinstance(each, exp.Column))
        if len(columns) < len(keys) or not (columns or nothing):
            fail(Code.WINDOW, "PARTITION BY takes only columns", self._prev, "write [PARTITION BY k ROWS 5]")
        if self._match_text_seq("SESSION"):
            return replace(self._parse_session(opening), keys=columns)
        if nothing or not self._match_text_seq("ROWS"):
            hint = "write [PARTITION BY k ROWS 5] or [PARTITION BY k SESSION 30 SECONDS]"
            fail(Code.WINDOW, "PARTITION BY needs ROWS or SESSION", self._curr or self._prev, hint)
        return self._parse_rows_clause(columns, opening)

    def _parse_rows_clause(self, keys: tuple[exp.Column, ...], opening: Token) -> RowsClause:
        """`100`, `100 SLIDE 10` or `MIN 50, MAX 100`: all are numbers of rows."""
        if self._word() in ("MIN", "MAX"):
            least, most = self._parse_pair(("MIN", "MAX"), self._parse_count, "write [ROWS MIN 50, MAX 100]")
            return RowsClause(most, keys, self._span_from(opening), least=least)
        count = self._parse_count()
        slide = self._parse_count() if self._match_text_seq("SLIDE") else 1
        return RowsClause(count, keys, self._span_from(opening), slide)

    def _parse_count(self) -> int:
        token = self._curr
        if not self._match(TokenType.NUMBER) or not COUNT.fullmatch(token.text):
            at = token or self._prev
            fail(Code.WINDOW, "ROWS takes a whole number, at least 1", at, "write [ROWS 100]")
        return int(token.text)

    def _parse_duration(self) -> Duration:
        """A duration of one or more amounts, such as `1 HOUR 30 MINUTES`."""
        first = self._curr
        parts = self._parse_amounts()
        while self._match_set(AMOUNT_TOKENS, advance=False) or self._is_written_close():
            parts += self._parse_amounts()
        return Duration(parts, self._span_from(first))

    def _is_written_close(self) -> bool:
        """Whether amount and unit are written as one word, as in `5m` and `1h30m`."""
        return self._curr.token_type == TokenType.VAR and CLOSE_UP.fullmatch(self._curr.text) is not None

    def _parse_amounts(self) -> Parts:
        """`10 MINUTES`, `INTERVAL '10' MINUTES`, `1h30m`, or a plain number of ticks."""
        self._match(TokenType.INTERVAL)
        if self._is_written_close():
            token = self._curr
            self._advance()
            parts = split(token.text) or ()
            for _, unit in parts:
                if unit not in UNITS:
                    fail(Code.DURATION, f"{unit.lower()!r} is not a unit of time", token, _units_like(unit))
            return parts
        return (self._parse_amount(),)

    def _parse_amount(self) -> tuple[Fraction, str]:
        token = self._curr
        if not self._match_set((TokenType.NUMBER, TokenType.STRING)) or not AMOUNT.fullmatch(token.text):
            hint = "write a number and a unit: [RANGE 10 MINUTES], [SESSION 30 SECONDS]"
            fail(Code.DURATION, "a duration must start with a number", token or self._prev, hint)
        return Fraction(token.text), self._parse_unit()

    def _parse_unit(self) -> str:
        """A unit of time; '' if there is none."""
        self._match(TokenType.DCOLON)  # Spark's tokenizer reads 5s and 90d as typed numbers: 5::s, 90::d
        word = self._word()
        if word in UNITS:
            self._advance()
            return word
        if self._curr.token_type in self.ID_VAR_TOKENS and word not in AFTER_DURATION:
            fail(Code.DURATION, f"{self._curr.text!r} is not a unit of time", self._curr, _units_like(word))
        return ""

    def _parse_session(self, opening: Token) -> SessionClause:
        return SessionClause(self._parse_duration(), self._span_from(opening))

    def _span_from(self, first: Token) -> Span:
        """The characters from a token to the last one that was read."""
        return Span(first.start, max(first.end, self._prev.end) + 1)


WINDOWS: Final[dict[str, Callable[[WindowParser, Token], WindowClause]]] = {
    "RANGE": WindowParser._parse_range_window,
    "ROWS": WindowParser._parse_rows_window,
    "PARTITION BY": WindowParser._parse_partition_window,
    "NOW": lambda parser, opening: NowClause(parser._span_from(opening)),
    "UNBOUNDED": lambda parser, opening: UnboundedClause(parser._span_from(opening)),
    "SESSION": WindowParser._parse_session,
}
ELSEWHERE: Final[dict[str, str]] = {
    "SLIDE": "write the length of the window before it: [RANGE 10 MINUTES SLIDE 1 MINUTE]",
    "TUMBLE": "[RANGE 10 MINUTES SLIDE 10 MINUTES] is a tumbling window",
    "TUMBLING": "[RANGE 10 MINUTES SLIDE 10 MINUTES] is a tumbling window",
    "HOP": "[RANGE 10 MINUTES SLIDE 1 MINUTE] is a hopping window",
    "HOPPING": "[RANGE 10 MINUTES SLIDE 1 MINUTE] is a hopping window",
    "SLIDING": "[RANGE 10 MINUTES SLIDE 1 MINUTE] is a hopping window",
}
"""Words for windows in other languages, and what to write instead."""


def _units_like(word: str) -> str:
    return nearest(word, UNITS, "units: MICROSECONDS to WEEKS")
