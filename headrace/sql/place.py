"""Where in the text something is, and how an error shows it: the line, and carets under the place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from headrace.errors import ExpressionError, SqlError
from headrace.sql.codes import Code


@dataclass(frozen=True)
class Span:
    """The characters [start, end) of the text."""

    start: int
    end: int


CLOSE = "close"
"""The key in a node's `meta` under which its last character lies, where that is not the last of its parts."""

Place = Span | Token | exp.Expr | None


class Fault(Exception):
    """A `SqlError` that does not know its text yet; `reporting` gives it one."""

    def __init__(self, code: Code, message: str, place: Place, hint: str) -> None:
        super().__init__(message)
        self.code, self.message, self.place, self.hint = code, message, place, hint


def fail(code: Code, message: str, place: Place = None, hint: str = "") -> NoReturn:
    """Refuse the text because of what stands at `place`."""
    raise Fault(code, message, place, hint)


@contextmanager
def reporting(text: str) -> Iterator[None]:
    """Faults inside become errors that quote `text`; nesting beyond Python's stack is an error too."""
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
    """The characters from the first to the last that belong to `place`, or to what is around it."""
    if place is None or isinstance(place, Span):
        return place
    if isinstance(place, Token):
        return Span(place.start, place.end + 1) if place else None
    found = [n.meta for n in place.walk() if n.meta.get("start") is not None]
    if found:
        return Span(min(m["start"] for m in found), max(m.get(CLOSE, m["end"]) for m in found) + 1)
    return span_of(place.parent)


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint that names the most similar known name."""
    spelled = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return f"did you mean {spelled[close[0]]!r}?" if close else otherwise


EXPRESSION_CODES = {"HR-E002": Code.UNKNOWN_FUNCTION, "HR-E003": Code.ARGUMENTS, "HR-E007": Code.LITERAL}


def fail_as(error: ExpressionError, place: Place) -> NoReturn:
    """What an expression has to complain about, at its place in the text."""
    fail(EXPRESSION_CODES.get(error.code, Code.TYPES), error.message, place, error.hint)
