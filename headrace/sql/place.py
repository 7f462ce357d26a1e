"""Places in a query text, and how an error shows them: the line, with carets under the place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from headrace.errors import ExpressionError, SqlError

# The error codes of query texts; headrace/error_codes.py has their meanings.


class Code(StrEnum):
    """Codes are stable across releases: a code never changes its meaning."""

    SYNTAX = "HR-Q001"
    NOT_CQL = "HR-Q002"
    STATEMENT = "HR-Q003"
    TOO_DEEP = "HR-Q004"
    ONE_QUERY = "HR-Q005"
    TOO_LONG = "HR-Q006"

    UNKNOWN_STREAM = "HR-Q010"
    UNKNOWN_COLUMN = "HR-Q011"
    AMBIGUOUS_COLUMN = "HR-Q012"
    UNKNOWN_FUNCTION = "HR-Q013"
    TYPES = "HR-Q014"
    ARGUMENTS = "HR-Q015"
    UNKNOWN_TYPE = "HR-Q016"
    NOT_BOOLEAN = "HR-Q017"
    SAME_ALIAS = "HR-Q018"
    LITERAL = "HR-Q019"

    WINDOW = "HR-Q020"
    DURATION = "HR-Q021"
    WINDOW_ON_RELATION = "HR-Q022"
    TIME_DOMAINS = "HR-Q023"
    SESSION = "HR-Q024"
    QUALITY = "HR-Q025"
    QUALITY_COLUMN = "HR-Q026"

    NO_WINDOW = "HR-Q030"
    NESTED_AGGREGATE = "HR-Q031"
    NOT_GROUPED = "HR-Q032"
    MISPLACED_AGGREGATE = "HR-Q033"
    HAVING = "HR-Q034"
    AGGREGATE = "HR-Q035"
    GROUP_POSITION = "HR-Q036"
    GRANULARITY = "HR-Q037"

    JOIN_KIND = "HR-Q040"
    COLUMN_COUNT = "HR-Q041"

    MEANINGLESS_OUTPUT = "HR-Q050"
    ENDLESS = "HR-Q051"
    SLIDES = "HR-Q052"
    CHANGELOG_KEY = "HR-Q053"

    ORDER_LIMIT = "HR-Q070"
    OVER = "HR-Q071"
    UNBOUNDED_NUMBER = "HR-Q072"

    SEQUENCE = "HR-Q080"
    SEQUENCE_KEY = "HR-Q081"
    SEQUENCE_CONDITION = "HR-Q082"
    PATTERN = "HR-Q083"
    PATTERN_VARIABLE = "HR-Q084"

    DEFINITION = "HR-Q090"

    NAME_TAKEN = "HR-Q060"
    TIME_COLUMN = "HR-Q061"
    SAME_COLUMN = "HR-Q062"
    STREAMS = "HR-Q063"
    TABLE_FORMAT = "HR-Q064"
    TABLE_FILE = "HR-Q065"
    TABLE_COLUMNS = "HR-Q066"
    NO_STREAM = "HR-Q067"
    TABLE_CHANGES = "HR-Q068"


@dataclass(frozen=True)
class Span:
    """The characters [start, end) of the text."""

    start: int
    end: int


CLOSE = "close"
"""The key in a node's `meta` for the end of its text, where its last child does not give it."""

Place = Span | Token | exp.Expr | None


class Fault(Exception):
    """An error at a place in a text; `reporting` turns it into a `SqlError` that quotes the text."""

    def __init__(self, code: Code, message: str, place: Place, hint: str) -> None:
        super().__init__(message)
        self.code, self.message, self.place, self.hint = code, message, place, hint


def fail(code: Code, message: str, place: Place = None, hint: str = "") -> NoReturn:
    """Raise an error about the text at `place`."""
    raise Fault(code, message, place, hint)


@contextmanager
def reporting(text: str) -> Iterator[None]:
    """Turn faults inside into errors that quote `text`; nesting beyond Python's stack is an error too."""
    try:
        yield
    except Fault as fault:
        raise error_at(text, fault.code, fault.message, span_of(fault.place), fault.hint) from None
    except RecursionError:
        hint = "split it into views or WITH queries"
        raise SqlError(Code.TOO_DEEP, "the query is nested too deeply", hint=hint) from None


SHOWN: Final = 400
"""Characters of a line that an error quotes, around its place."""


def error_at(text: str, code: Code, message: str, span: Span | None, hint: str) -> SqlError:
    """The error, with the line quoted if the place is known."""
    if span is None:
        return SqlError(code, message, hint=hint)
    start = min(max(span.start, 0), len(text))
    begin = text.rfind("\n", 0, start) + 1
    line = text[begin:].split("\n", 1)[0].rstrip("\r")
    number, column = text.count("\n", 0, start) + 1, start - begin + 1
    cut = max(0, start - begin - SHOWN // 2) if len(line) > SHOWN else 0
    line = line[cut : cut + SHOWN].replace("\t", " ")
    excerpt = f"  {line}\n  {' ' * (start - begin - cut)}{_carets(span, begin + cut + len(line))}"
    return SqlError(code, message, line=number, column=column, excerpt=excerpt, hint=hint)


def _carets(span: Span, line_end: int) -> str:
    return "^" * max(1, min(span.end, line_end) - span.start)


def span_of(place: Place) -> Span | None:
    """The span from the first to the last character of `place`, or of the node around it."""
    if place is None or isinstance(place, Span):
        return place
    if isinstance(place, Token):
        return Span(place.start, place.end + 1) if place else None
    found = [n.meta for n in place.walk() if n.meta.get("start") is not None]
    if found:
        return Span(min(m["start"] for m in found), max(m.get(CLOSE, m["end"]) for m in found) + 1)
    return span_of(place.parent)


def nearest(name: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.5) -> str:
    """A hint that names the most similar known name, if it is similar enough."""
    spelled = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), spelled, n=1, cutoff=cutoff)
    return f"did you mean {spelled[close[0]]!r}?" if close else otherwise


EXPRESSION_CODES = {"HR-E002": Code.UNKNOWN_FUNCTION, "HR-E003": Code.ARGUMENTS, "HR-E007": Code.LITERAL}


def fail_as(error: ExpressionError, place: Place) -> NoReturn:
    """Raise an expression error at its place in the text."""
    fail(EXPRESSION_CODES.get(error.code, Code.TYPES), error.message, place, error.hint)
