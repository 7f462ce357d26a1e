"""Text to statements, with sqlglot's errors turned into ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from headrace.sql.codes import Code
from headrace.sql.dialect import Cql, CqlParser
from headrace.sql.place import Fault, Span, fail


def parse(text: str) -> list[exp.Expr]:
    """The statements of `text`, in order; raises a `Fault` where it is none of CQL."""
    found = read(text, CqlParser._parse_statement)
    return [each for each in found if each is not None and not isinstance(each, exp.Semicolon)]


def read(text: str, rule: Callable[[Any], Any]) -> list[Any]:
    """What `rule` of the parser makes of each part of `text` that a semicolon ends."""
    dialect = Cql()
    try:
        tokens = dialect.tokenize(text)
        return dialect.parser(error_level=ErrorLevel.IMMEDIATE)._parse(rule, tokens, text)
    except (Fault, RecursionError):
        raise
    except ParseError as error:
        fail(Code.SYNTAX, _description(error), _place(error, text))
    except TokenError as error:
        at = Span(error.end - 1, error.end) if error.end else None
        fail(Code.SYNTAX, "the text cannot be split into words here", at, "is a quote or comment left open?")
    except Exception as error:
        # sqlglot stumbles over some texts that are no SQL in any dialect, with whatever Python raises there.
        fail(Code.SYNTAX, f"this is no SQL ({type(error).__name__} while reading it)")


def _description(error: ParseError) -> str:
    said = str(error.errors[0].get("description") or "") if error.errors else ""
    return said.split("\n")[0].split(" but got <")[0].rstrip(".") or "this is no SQL"


def _place(error: ParseError, text: str) -> Span | None:
    """Sqlglot says the line and the last column of the token, and quotes it."""
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
