"""`on=…` as conditions: a column that both sides have, or any condition."""

from __future__ import annotations

from headrace.builder.expressions import piece
from headrace.builder.statement import Item, SequenceItem
from headrace.builder.windows import Keys, listed
from headrace.errors import SqlError
from headrace.sql.codes import Code
from headrace.sql.fragments import identifier


def conditions(on: Keys | None, left: Item | SequenceItem, right: Item) -> tuple[str, ...]:
    """What connects the two; a bare column stands for its equality on both sides."""
    if on is None:
        return ()
    return tuple(_condition(each, left, right) for each in listed(on))


def _condition(of: object, left: Item | SequenceItem, right: Item) -> str:
    found = piece(of, "a condition")
    if not found.column:
        return f"({found.text})" if found.is_loose else found.text
    if not left.name or not right.name:
        hint = f"name it with alias(…), or write on='a.{found.column} = b.{found.column}'"
        raise SqlError(Code.AMBIGUOUS_COLUMN, f"on={found.text!r}: a side has no name", hint=hint)
    names = (f"{identifier(each.name)}.{identifier(found.column)}" for each in (left, right))
    return " = ".join(names)
