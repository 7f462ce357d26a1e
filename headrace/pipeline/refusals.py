"""What is wrong with the tables of a pipeline file, in our words: no text of pydantic is shown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pydantic
import pydantic_core

from headrace.pipeline.spec import Table

Problem = pydantic_core.ErrorDetails
Path_ = tuple[str | int, ...]
MOST: Final = 60
"""Characters of a value that a message shows."""
_TAGS: Final = frozenset(
    {
        "files",
        "poisson",
        "nexmark",
        "tcp",
        "stdin",
        "stdout",
        "python",
        "postgres",
        "sqlite",
        "duckdb",
        "delta",
        "iceberg",
        "kafka",
        "history",
        "spark",
    }
)


@dataclass(frozen=True)
class Refusal:
    """A problem: the path of its key as written in the file, a code, a message and a hint."""

    path: Path_
    code: str
    message: str
    hint: str


def refusals(error: pydantic.ValidationError, tables: Mapping[str, Any], model: type[Table]) -> list[Refusal]:
    """All problems, one for each key; unknown keys come first, because they explain missing ones."""
    found: dict[Path_, Refusal] = {}
    for problem in sorted(error.errors(), key=_order):
        path = _written(problem["loc"], tables)
        code, words = _REASONS.get(problem["type"], ("HR-F004", _wrong))
        found.setdefault(path, Refusal(path, code, *words(problem, path, model)))
    return list(found.values())


def _order(problem: Problem) -> tuple[bool, bool]:
    """Of the alternatives for a value, what is wrong with it says more than that it is of another type."""
    return problem["type"] != "extra_forbidden", problem["type"].endswith("_type")


def _written(loc: tuple[str | int, ...], tables: Any) -> Path_:
    """The path as written in the file: without the names of alternatives that pydantic inserts."""
    path: list[str | int] = []
    here: Any = tables
    for step in loc:
        inside = isinstance(here, dict) and step in here
        inside = inside or (isinstance(here, list) and isinstance(step, int) and step < len(here))
        if inside:
            here = here[step]
        elif step in _TAGS or (isinstance(step, str) and ("[" in step or step in _ALTERNATIVES)):
            continue
        else:
            here = None
        path.append(step)
    return tuple(path)


_ALTERNATIVES: Final = ("str", "int", "float", "bool", "constrained-int", "constrained-str")


# Each kind of problem: a function that gives the message and the hint.


Words = tuple[str, str]


def _shown(problem: Problem) -> str:
    """The value, as it is written in TOML, cut if it is long."""
    value = problem["input"]
    written = str(value).lower() if isinstance(value, bool) else repr(value)
    return written if len(written) <= MOST else f"{written[: MOST - 1]}…"


def _kind_of(problem: Problem) -> str:
    """The value, with its kind if that is a table or a list."""
    value = problem["input"]
    return (
        "a table" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else _shown(problem)
    )


def _key(path: Path_) -> str:
    return str(next((step for step in reversed(path) if isinstance(step, str)), "value"))


def _unknown(problem: Problem, path: Path_, model: type[Table]) -> Words:
    known = _keys_at(model, problem["loc"])
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {str(path[-1])!r}", hint


def _missing(problem: Problem, path: Path_, model: type[Table]) -> Words:
    key = str(path[-1])
    return f"the key {key!r} is missing", _EXAMPLES.get(key, f"add {key} = …")


_EXAMPLES: Final = {
    "pipeline": 'add [pipeline] with name = "…"',
    "streams": "add [streams.NAME] with a source, a schema and a time",
    "queries": "add [[queries]] with a name, sql and a sink",
    "name": 'add name = "…": letters, digits and underscores',
    "source": 'add source = "data.csv", or a table: source = { type = "kafka", … }',
    "schema": 'add schema = "item STRING, price DOUBLE, at TIMESTAMP"',
    "sink": 'add sink = "results.jsonl", or sink = "stdout"',
    "path": 'add path = "…": a file, a directory or a pattern',
    "port": "add port = 9000",
    "rate": "add rate = 100: rows per second",
    "servers": 'add servers = "host:9092"',
    "topic": 'add topic = "…"',
    "function": 'add function = "module:name"',
    "format": 'add format = "…"',
    "table": 'add table = "…"',
    "database": 'add database = "results.db"',
    "url": 'add url = "postgresql://host/database"; a password is ${NAME}',
    "column": 'add column = "…", a column of the stream',
    "class": 'add class = "module:Name"',
    "stream": 'add stream = "bid", "auction" or "person"',
    "horizon": 'add horizon = "1 minute"',
    "above": 'add above = "100000 rows" or "64 MB"',
}


def _own(problem: Problem, path: Path_, model: type[Table]) -> Words:
    """A problem that a validator of ours found: `message: hint`."""
    said = problem["msg"].removeprefix("Value error, ")
    message, separator, hint = said.partition(": ")
    return (message, hint) if separator else (said, "")


def _not(what: str, hint: str = "") -> Callable[[Problem, Path_, type[Table]], Words]:
    """A value of another type."""
    return lambda problem, path, model: (
        f"{_kind_of(problem)} is not {what}",
        hint.format(key=_key(path)),
    )


def _choice(problem: Problem, path: Path_, model: type[Table]) -> Words:
    allowed = problem["ctx"]["expected"]
    near = difflib.get_close_matches(str(problem["input"]), re.findall(r"'([^']*)'", allowed), n=1)
    maybe = f"did you mean {near[0]}? " if near else ""
    return f"{_shown(problem)} is not a value of {_key(path)}", f"{maybe}write {allowed}"


def _kind(problem: Problem, path: Path_, model: type[Table]) -> Words:
    tags = problem["ctx"]["expected_tags"].replace("'", "")
    near = difflib.get_close_matches(problem["ctx"]["tag"], tags.split(", "), n=1)
    hint = f"did you mean {near[0]}?" if near else f"types of a {_key(path)}: {tags}"
    return f"the type {problem['ctx']['tag']!r} does not exist", hint


def _limit(words: str, key: str) -> Callable[[Problem, Path_, type[Table]], Words]:
    """A number beyond a limit."""
    return lambda problem, path, model: (
        f"{_key(path)} must be {words} {problem['ctx'][key]:g}, not {_shown(problem)}",
        "",
    )


def _empty(problem: Problem, path: Path_, model: type[Table]) -> Words:
    what = {"streams": "[streams.NAME]", "queries": "[[queries]]"}.get(_key(path))
    return f"{_key(path)} is empty", f"add {what}" if what else "add at least one"


def _length(problem: Problem, path: Path_, model: type[Table]) -> Words:
    return f"{_key(path)} must be one character, not {_shown(problem)}", 'such as ";" or "\\t"'


def _pattern(problem: Problem, path: Path_, model: type[Table]) -> Words:
    hint = _PATTERNS.get(problem["ctx"]["pattern"], "")
    return f"{_shown(problem)} is not a valid {_key(path)}", hint


_PATTERNS: Final = {
    r"^[A-Za-z0-9_.-]+$": "use letters, digits, and the characters _ . -",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "use letters, digits and underscores, and begin with a letter",
    r"^[^.]+(\.[^.]+)?$": 'write "table" or "schema.table"',
    r"^[^.]+(\.[^.]+)+$": 'write "namespace.table"',
}


def _wrong(problem: Problem, path: Path_, model: type[Table]) -> Words:
    return f"{_shown(problem)} is not valid for {_key(path)}", ""


_TEXT: Final = _not("a string", 'put it in quotes: {key} = "…"')
_WHOLE: Final = _not("a whole number", "write a number without quotes: {key} = 10")
_NUMBER: Final = _not("a number", "write a number without quotes: {key} = 0.5")
_FLAG: Final = _not("true or false", "write {key} = true, without quotes")
_TABLE: Final = _not("a table", "write {key} = {{ … }}, or a table [{key}]")
_LIST: Final = _not("a list", "write {key} = [ … ]; a list of tables is [[{key}]]")
_REASONS: Final[dict[str, tuple[str, Callable[[Problem, Path_, type[Table]], Words]]]] = {
    "extra_forbidden": ("HR-F003", _unknown),
    "missing": ("HR-F005", _missing),
    "value_error": ("HR-F004", _own),
    "literal_error": ("HR-F004", _choice),
    "union_tag_invalid": ("HR-F004", _kind),
    "string_type": ("HR-F004", _TEXT),
    "int_type": ("HR-F004", _WHOLE),
    "int_parsing": ("HR-F004", _WHOLE),
    "int_from_float": ("HR-F004", _WHOLE),
    "float_type": ("HR-F004", _NUMBER),
    "float_parsing": ("HR-F004", _NUMBER),
    "bool_type": ("HR-F004", _FLAG),
    "bool_parsing": ("HR-F004", _FLAG),
    "model_type": ("HR-F004", _TABLE),
    "model_attributes_type": ("HR-F004", _TABLE),
    "dict_type": ("HR-F004", _TABLE),
    "list_type": ("HR-F004", _LIST),
    "tuple_type": ("HR-F004", _LIST),
    "greater_than": ("HR-F004", _limit("greater than", "gt")),
    "greater_than_equal": ("HR-F004", _limit("at least", "ge")),
    "less_than": ("HR-F004", _limit("less than", "lt")),
    "less_than_equal": ("HR-F004", _limit("at most", "le")),
    "too_short": ("HR-F004", _empty),
    "string_too_short": ("HR-F004", _empty),
    "string_too_long": ("HR-F004", _length),
    "string_pattern_mismatch": ("HR-F004", _pattern),
}


def _keys_at(model: type[Table], loc: tuple[str | int, ...]) -> list[str]:
    """The keys that the table at `loc` below `model` may have, by walking the models."""
    found: set[str] = set()
    for table in _models(model, list(loc[:-1])):
        found |= {field.alias or name for name, field in table.model_fields.items()}
    return sorted(found)


def _models(model: Any, steps: list[str | int]) -> list[type[Table]]:
    """The tables that are allowed at the path `steps` below `model`."""
    if isinstance(model, type) and issubclass(model, Table):
        if not steps:
            return [model]
        fields = {f.alias or name: f.annotation for name, f in model.model_fields.items()}
        if steps[0] in fields:
            return _models(fields[str(steps[0])], steps[1:])
        tag = model.model_fields.get("type")
        if tag is not None and steps[0] in getattr(tag.annotation, "__args__", ()):
            return _models(model, steps[1:])
        return []
    inner: tuple[Any, ...] = getattr(model, "__args__", ())
    origin = getattr(model, "__origin__", None)
    if origin in (dict, list) and steps:
        return _models(inner[-1], steps[1:])
    return [each for option in inner for each in _models(option, steps)]
