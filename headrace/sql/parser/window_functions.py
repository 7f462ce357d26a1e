"""Flink's windows in FROM: `TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES))`.

They are read as a FROM item with a window, so that the plan is that of `s [RANGE … SLIDE …]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headrace.sql.parser.clauses import TIME, WINDOW, Duration, RangeClause, SessionClause, WindowClause
from headrace.sql.place import Code, Span, fail

if TYPE_CHECKING:
    from headrace.sql.parser.windows import WindowParser

ORDER: Final = {
    "TUMBLE": "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "HOP": "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES): the slide comes first",
    "CUMULATE": "CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '1' HOUR): the step first",
    "SESSION": "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' SECONDS)",
}

Clause = Callable[[list[Duration], tuple[exp.Column, ...] | None, Span], WindowClause]
CLAUSES: Final[dict[str, tuple[int, Clause]]] = {
    "TUMBLE": (1, lambda sizes, keys, span: RangeClause(sizes[0], sizes[0], span)),
    "HOP": (2, lambda sizes, keys, span: RangeClause(sizes[1], sizes[0], span)),
    "CUMULATE": (2, lambda sizes, keys, span: RangeClause(sizes[1], sizes[0], span, grows=True)),
    "SESSION": (1, lambda sizes, keys, span: SessionClause(sizes[0], span, keys or ())),
}
"""How many durations each function takes, and the clause that it means; all but SESSION take an offset."""
PARAMETERS: Final = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
"""The names of the durations, in their order; DATA and TIMECOL come first."""
NAMES: Final = frozenset(CLAUSES)


def opens_window_function(parser: WindowParser) -> bool:
    """Whether `TABLE(TUMBLE(`, or `TUMBLE(TABLE`, comes next."""
    ahead = [each.text.upper() for each in parser._tokens[parser._index : parser._index + 4]]
    if ahead[:2] == ["TABLE", "("]:
        return len(ahead) > 3 and ahead[2] in NAMES and ahead[3] == "("
    return len(ahead) > 2 and ahead[0] in NAMES and ahead[1] == "(" and ahead[2] in ("TABLE", "DATA")


def parse_window_function(parser: WindowParser) -> exp.Expr:
    """The FROM item, with its window and time column in its `meta`."""
    first = parser._curr
    wrapped = parser._match(TokenType.TABLE)
    if wrapped:
        parser._advance()
    called, word = parser._curr, parser._word()
    parser._advance(2)
    item, keys = _parse_input(parser, word)
    time = _parse_descriptor(parser, word)
    count, clause = CLAUSES[word]
    sizes = _parse_sizes(parser, word, count)
    span = Span(first.start, parser._prev.end + 1)
    _close(parser, word)
    if wrapped:
        _close(parser, word)
    if len(sizes) < count:
        fail(Code.WINDOW, f"{word} takes {count} INTERVAL{'s' * (count > 1)}", called, f"write {ORDER[word]}")
    if len(sizes) > count + (word != "SESSION"):
        fail(Code.WINDOW, f"{word} takes fewer durations", sizes[-1].span, f"write {ORDER[word]}")
    if keys is not None and word != "SESSION":
        fail(Code.WINDOW, f"{word} does not take PARTITION BY", keys[0], "write the keys in GROUP BY")
    window = clause(sizes, keys, span)
    if isinstance(window, RangeClause) and len(sizes) > count:
        window = replace(window, offset=sizes[count])
    item.meta[WINDOW], item.meta[TIME] = window, time
    item.set("alias", parser._parse_table_alias())
    return item


def _parse_sizes(parser: WindowParser, word: str, count: int) -> list[Duration]:
    """The durations in the order of `PARAMETERS`; names, if they are written, decide."""
    sizes: list[Duration] = []
    named: dict[str, Duration] = {}
    while parser._match(TokenType.COMMA):
        name, at = _parse_parameter(parser), parser._prev
        if name is None:
            sizes.append(parser._parse_window_offset() if len(sizes) >= count else parser._parse_duration())
        elif name not in PARAMETERS[word] or name in named:
            _refuse(
                parser, word, f"{word} has no {at.text}" if name not in named else f"{name} is written twice"
            )
        else:
            named[name] = parser._parse_window_offset() if name == "OFFSET" else parser._parse_duration()
    return sizes or [named[name] for name in PARAMETERS[word] if name in named]


def _parse_parameter(parser: WindowParser) -> str | None:
    """The name in `NAME => value`, if there is one."""
    if parser._next.token_type != TokenType.FARROW:
        return None
    name = parser._word()
    parser._advance(2)
    return name


def _parse_input(parser: WindowParser, word: str) -> tuple[exp.Expr, tuple[exp.Column, ...] | None]:
    """`TABLE s`, perhaps with `PARTITION BY k`."""
    _parse_parameter(parser)
    if not parser._match(TokenType.TABLE):
        _refuse(parser, word, f"the first argument of {word} is TABLE and the name of a stream")
    item = parser._parse_table_parts()
    if not isinstance(item, exp.Table):
        _refuse(parser, word, f"the first argument of {word} is TABLE and the name of a stream")
    keys: list[exp.Column] = []
    more = parser._match(TokenType.PARTITION_BY)
    while more:
        key = parser._parse_column()
        if not isinstance(key, exp.Column):
            _refuse(parser, word, "PARTITION BY takes only columns")
        keys.append(key)
        more = parser._next.text.upper() not in ("DESCRIPTOR", "TIMECOL") and parser._match(TokenType.COMMA)
    return item, tuple(keys) or None


def _parse_descriptor(parser: WindowParser, word: str) -> exp.Column:
    """`, DESCRIPTOR(ts)`."""
    column = None
    comma = parser._match(TokenType.COMMA)
    _parse_parameter(parser)
    if comma and parser._match_text_seq("DESCRIPTOR"):
        column = parser._parse_wrapped(parser._parse_column)
    if not isinstance(column, exp.Column):
        _refuse(parser, word, f"the second argument of {word} is DESCRIPTOR and the time column")
    return column


def _close(parser: WindowParser, word: str) -> None:
    if not parser._match(TokenType.R_PAREN):
        _refuse(parser, word, f"expected ) at the end of {word}")


def _refuse(parser: WindowParser, word: str, message: str) -> NoReturn:
    fail(Code.WINDOW, message, parser._curr or parser._prev, f"write {ORDER[word]}")
