"""Writes the reference pages that are made from code: commands, keys of pipeline files, and functions.

    python -m scripts.reference        # writes docs/reference/; a test says when it is needed

Help texts are in `headrace/cli/app.py`, keys and their meanings in `headrace/pipeline/spec.py`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headrace.pipeline import spec
from scripts.function_reference import functions

REFERENCE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"


def _table(*heads: str, rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    cells = [[each.replace("|", "\\|") for each in row] for row in rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])


# --- the command line -------------------------------------------------------------------------------------

COMMANDS: Final = """# Commands

Every command of `headrace` with its arguments and options. [The command line](../cli.md) shows them at
work, and has the exit codes. This page is generated: `python -m scripts.reference`.
"""


def commands() -> str:
    """`docs/reference/commands.md`."""
    import typer

    from headrace.cli.app import app

    top = typer.main.get_command(app)
    return "\n".join([COMMANDS, *_commands(top, "headrace", None)])


def _commands(group: Any, name: str, parent: Any) -> Iterator[str]:
    """The commands of a group, those of its groups after it."""
    context = group.make_context(name.rsplit(maxsplit=1)[-1], [], parent=parent, resilient_parsing=True)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        yield from _command(command, f"{name} {each}", context)
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{name} {each}", context)


def _command(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.make_context(name.rsplit(maxsplit=1)[-1], [], parent=parent, resilient_parsing=True)
    words = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS]", "").split()
    yield f"## {name}\n\n{_sentence(command.help)}\n\n```text\n{' '.join([name, *words])} [options]\n```\n"
    records = [each.get_help_record(context) for each in command.params]
    rows = [(f"`{_plain(shown)}`", _sentence(said)) for shown, said in filter(None, records)]
    if rows:
        yield _table("argument or option", "meaning", rows=rows) + "\n"


def _plain(shown: str) -> str:
    """Options without the names of Python types."""
    return re.sub(r"<list\[(.*?)\]>", r"<\1> …", shown).replace("<str>", "<text>")


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


# --- pipeline files ---------------------------------------------------------------------------------------

FILE: Final = """# Keys of pipeline files

Every table and key of a [pipeline file](../pipelines.md), with its type and default. A duration is text,
such as `"5 seconds"` or `"1 hour 30 min"`; a plain number counts ticks. An unknown key is an error that names
the nearest one. This page is generated: `python -m scripts.reference`.
"""
SECTIONS: Final = (
    ("[pipeline]", spec.PipelineTable),
    ("[streams.NAME]", spec.StreamSpec),
    ("time", spec.TimeOf),
    ("bounds", spec.BoundsOf),
    ("bounds.estimate", spec.Estimate),
    ("sources", spec.SourcesOf),
    ("shed", spec.ShedOf),
    ("punctuations", spec.PunctuationsOf),
    ("heartbeats", spec.HeartbeatsOf),
    ("[tables.NAME]", spec.TableSpec),
    ("[functions.NAME]", spec.FunctionSpec),
    ("[aggregates.NAME]", spec.AggregateSpec),
    ("[skew]", spec.SkewTable),
    ("skew.bounds", spec.SkewBound),
    ("skew.estimate", spec.SkewEstimate),
    ("skew.estimate.adjust", spec.AdjustOf),
    ("[[queries]]", spec.QuerySpec),
    ("[memory]", spec.MemoryTable),
    ("[spark]", spec.SparkTable),
)
NAMES: Final = {
    spec.Length: "a duration",
    spec.Seconds: "a duration",
    spec.Wait: 'a duration, or `"10 rows"`',
    spec.Rows: 'a number of rows, or `"10 rows"`',
    spec.Source: "a source",
    spec.Past: "a source that ends",
    spec.Live: "a source",
    spec.Sink: "a sink",
}
"""Types of the file that have a name of their own."""
PLAIN: Final = {str: "text", int: "integer", float: "number", bool: "boolean", Any: "any value"}


def keys() -> str:
    """`docs/reference/keys.md`."""
    parts = [FILE]
    for title, table in SECTIONS:
        level = "##" if title.startswith("[") else "###"
        parts.append(f"{level} {title.strip('[]')}\n\n{_of(table)}\n")
    for title, union in (("Sources", spec.Source), ("Sinks", spec.Sink)):
        parts.append(f"## {title}\n\nThe key `type` says which.\n")
        parts += [f"### {_type(each)} {title[:-1].lower()}\n\n{_of(each)}\n" for each in _members(union)]
    return "\n".join(parts)


def _of(table: type[BaseModel]) -> str:
    """What a table is for, and its keys."""
    said = inspect.cleandoc(table.__doc__ or "").split("\n\n")[0]
    said = re.sub(r"^`\[.*\]`(?:\.|: (\w))", lambda found: (found[1] or "").upper(), said)
    said = f"{said}\n\n" if said else ""
    meanings, hints = meanings_of(table), typing.get_type_hints(table, include_extras=True)
    rows = [
        (
            f"`{field.alias or name}`",
            _words(hints[name]),
            _default(field, hints[name]),
            meanings.get(name, ""),
        )
        for name, field in table.model_fields.items()
        if name != "type" or table is spec.TableSpec
    ]
    return said + _table("key", "type", "default", "meaning", rows=rows)


def meanings_of(table: type[BaseModel]) -> dict[str, str]:
    """By field, the text that follows it in the source, those of base classes first."""
    found: dict[str, str] = {}
    for each in reversed(table.__mro__):
        if each.__module__ != spec.__name__:
            continue
        (tree,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                assert isinstance(field.target, ast.Name)
                assert isinstance(after.value, ast.Constant)
                found[field.target.id] = str(after.value.value)
    return found


def _words(of: Any) -> str:
    for known, words in NAMES.items():
        if of == known:
            return words
    origin, arguments = get_origin(of), get_args(of)
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return ", ".join(f'`"{each}"`' for each in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(_words(each) for each in arguments if each is not types.NoneType))
    if origin is list:
        return f"a list of {_words(arguments[0])}".replace("of a table", "of tables").replace(
            "a pair", "pairs"
        )
    if origin is tuple:
        return "a pair"
    if origin is dict:
        return "a table"
    if isinstance(of, type) and issubclass(of, BaseModel):
        return "a table"
    return PLAIN.get(of, getattr(of, "__name__", str(of)))


def _default(field: FieldInfo, hint: Any) -> str:
    value = field.default
    if field.is_required():
        return "required"
    if value is PydanticUndefined or value is None:
        return ""
    if isinstance(value, bool | str):
        return f"`{json.dumps(value)}`"
    if hint == spec.Seconds:
        return f'`"{value:g} s"`'
    return f"`{value:_}`" if isinstance(value, int) else f"`{value:g}`"


def _members(union: Any) -> list[type[BaseModel]]:
    """The tables of a union of sources or sinks."""
    arguments = get_args(union)
    while not isinstance(arguments[0], type):
        arguments = get_args(arguments[0])
    return list(arguments)


def _type(table: type[BaseModel]) -> str:
    return str(get_args(table.model_fields["type"].annotation)[0])


PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands,
    "functions.md": functions,
    "keys.md": keys,
}


if __name__ == "__main__":
    for name, made in PAGES.items():
        (REFERENCE / name).write_text(made())
