"""Name resolution: the columns of a schema and the functions of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.bound import Bound, Input


class Rule(Protocol):
    """How a function binds its arguments: checks and coerces them, and chooses its kernel."""

    @property
    def name(self) -> str: ...

    def bind(self, args: tuple[Bound, ...]) -> Bound: ...


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint that names the most similar known name."""
    spelled = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return f"did you mean {spelled[close[0]]!r}?" if close else otherwise


@dataclass(frozen=True)
class Scope:
    """The columns and functions that an expression may use."""

    schema: pa.Schema
    functions: Mapping[str, Rule]

    def column(self, name: str) -> Input:
        """The input column called `name`; the name must match exactly one column."""
        indices = self.schema.get_all_field_indices(name)
        if len(indices) == 1:
            return Input(name, indices[0], self.schema.field(indices[0]).type)
        if indices:
            raise ExpressionError(
                "HR-E008", f"column {name!r} is ambiguous", hint="qualify the name, or rename a column"
            )
        hint = nearest(name, self.schema.names, f"columns: {', '.join(self.schema.names)}")
        raise ExpressionError("HR-E001", f"the column {name!r} does not exist", hint=hint)

    def function(self, name: str) -> Rule:
        """The function called `name`, ignoring case."""
        found = self.functions.get(name.lower())
        if found is None:
            raise ExpressionError(
                "HR-E002", f"the function {name!r} does not exist", hint=nearest(name, self.functions)
            )
        return found
