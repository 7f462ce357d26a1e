"""User-defined functions and aggregates, registered in a catalog or for the whole process.

A query looks in its catalog first. Its plan carries the definitions themselves, so that it also works where
nothing was registered: in another process, or on a Spark worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, TypeVar, get_type_hints

from sqlglot import exp

from headrace.errors import SqlError
from headrace.expressions import FUNCTIONS
from headrace.expressions.functions.rule import UserFunction, user_function
from headrace.plan.nodes.user_aggregates import Result, UserAggregate, user_aggregate
from headrace.schema import DataType
from headrace.sql.binder.aggregate_names import AGGREGATES, MORE
from headrace.sql.parser.parse import parse
from headrace.sql.place import Code, Fault

Definition = UserFunction | UserAggregate
Made = TypeVar("Made")
Type = DataType | str
WORDS: Final = frozenset(
    {"lag", "lead", "rank", "row_number", "seq", "istream", "dstream", "rstream", "changelog"}
    | {"unordered", "headrace_window", "headrace_granularity"}
)
"""Words that look like functions in a query but are not."""

USER: Final = "user defined"
"""The key of a user's definition in the `meta` of a call."""
SEEN: Final = "user defined: seen"


class Definitions:
    """Definitions by name; case does not matter."""

    def __init__(self, known: Mapping[str, Definition] | None = None) -> None:
        self._known: dict[str, Definition] = dict(known or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def find(self, name: str) -> Definition | None:
        """The definition called `name`; None if there is none."""
        return self._known.get(name.lower())

    def add(self, definition: Definition, *, replace: bool = False) -> None:
        """Add a definition; an existing name is an error unless `replace`."""
        check_name(definition.name)
        if definition.name in self._known and not replace:
            message = f"a function or aggregate {definition.name!r} already exists"
            raise SqlError(Code.NAME_TAKEN, message, hint="pass replace=True, or choose another name")
        self._known[definition.name] = definition

    def copy(self) -> Definitions:
        """A copy that can be extended."""
        return Definitions(self._known)

    def merged(self, other: Definitions) -> Definitions:
        """The definitions of both; a name with two different definitions is an error."""
        for name in other:
            if self.find(name) not in (None, other.find(name)):
                message = f"there are two different functions named {name!r}"
                raise SqlError(Code.NAME_TAKEN, message, hint="rename one of them")
        return Definitions({**self._known, **other._known})


GLOBAL: Final = Definitions()
"""Definitions that every query of this process can use."""


def defined(name: str, catalog: Definitions) -> Definition | None:
    """The user's definition of a name: in the catalog, or else in the whole process."""
    found = catalog.find(name) or GLOBAL.find(name)
    if found is not None:
        return found
    known = FUNCTIONS.get(name.lower())
    return known if isinstance(known, UserFunction) else None


def recognise(node: exp.Expr, catalog: Definitions) -> None:
    """Record the user's definition at every call in a query that refers to one."""
    if SEEN in node.meta:
        return
    for each in node.find_all(exp.Anonymous, exp.Query):
        if isinstance(each, exp.Query):
            each.meta[SEEN] = True
        elif (found := defined(each.name, catalog)) is not None:
            each.meta[USER] = found


def is_aggregate(node: object) -> bool:
    """Whether it is a call of an aggregate, built in or user-defined."""
    if not isinstance(node, exp.Anonymous):
        return False
    return isinstance(node.meta.get(USER), UserAggregate) or (
        USER not in node.meta and (node.name.lower() in AGGREGATES or node.name.lower() in MORE)
    )


def check_name(name: str) -> None:
    """Raise an error for a name that is built in, or that a query could not call."""
    if name in AGGREGATES or name in WORDS or _is_built_in(name):
        message = f"{name!r} is the name of a built-in"
        raise SqlError(Code.NAME_TAKEN, message, hint="choose another name")
    if not _is_callable(name):
        message = f"{name!r} cannot be the name of a function"
        raise SqlError(
            Code.DEFINITION, message, hint="use letters, digits and underscores, and not a word of SQL"
        )


def _is_built_in(name: str) -> bool:
    return name in FUNCTIONS and not isinstance(FUNCTIONS[name], UserFunction)


def _is_callable(name: str) -> bool:
    """Whether the parser reads `name(x)` as a call of this name."""
    try:
        (statement,) = parse(f"SELECT {name}(x) FROM s")
    except (Fault, ValueError):
        return False
    (called,) = statement.expressions or (None,)
    return isinstance(called, exp.Anonymous) and called.name.lower() == name


def function_of(
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[Type | None] | None,
    result: Type | None,
    deterministic: bool,
    scalar: bool = False,
) -> UserFunction:
    """A user-defined function over arrays or, if `scalar`, over the values of one row.

    The types of a scalar function may be those of its annotations.
    """
    if not callable(function):
        raise SqlError(
            Code.DEFINITION, f"the function {name!r} is not callable", hint="pass a Python function"
        )
    if scalar:
        arguments, result = _annotated(function, arguments, result)
    if result is None:
        hint = 'pass result="double", or with scalar=True write it as an annotation: def f(x: int) -> float'
        raise SqlError(Code.DEFINITION, f"the type that {name!r} returns is not known", hint=hint)
    return user_function(
        name, function, result, arguments=arguments, deterministic=deterministic, scalar=scalar
    )


ANNOTATIONS: Final[dict[object, str]] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
}


def _annotated(
    function: Callable[..., Any], arguments: Sequence[Type | None] | None, result: Type | None
) -> tuple[Sequence[Type | None] | None, Type | None]:
    """The types as declared, or else as the function is annotated."""
    try:
        hints = get_type_hints(function)
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError, NameError):
        return arguments, result
    found = [ANNOTATIONS.get(hints.get(name)) for name in names]
    return arguments if arguments is not None or None in found else found, result or ANNOTATIONS.get(
        hints.get("return")
    )


def register_aggregate(
    name: str,
    definition: Any = None,
    *,
    arguments: Sequence[Type | None] | None = None,
    result: Result | str | None = None,
    replace: bool = False,
) -> Any:
    """Register a class as an aggregate for every query in this process; without a class, a decorator."""

    def register(made: Made) -> Made:
        GLOBAL.add(user_aggregate(name, made, arguments=arguments, result=result), replace=replace)
        return made

    return register if definition is None else register(definition)


def register_function(
    name: str,
    function: Callable[..., Any] | None = None,
    *,
    result: Type | None = None,
    arguments: Sequence[Type | None] | None = None,
    deterministic: bool = False,
    scalar: bool = False,
    replace: bool = False,
) -> Any:
    """Register a function over Arrow arrays for every query in this process; without one, a decorator.

    `scalar`: the function takes and returns the Python values of one row. It is not called for rows with a
    NULL argument, whose value is NULL. Its types may be annotations.

    `arguments` are the types of its arguments, where None accepts any type; if omitted, any arguments are
    accepted. `deterministic` is an additional promise: equal arguments give equal values and no call raises,
    so that the planner may move it.
    """

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        definition = function_of(name, made, arguments, result, deterministic, scalar)
        GLOBAL.add(definition, replace=replace)
        FUNCTIONS[definition.name] = definition
        return made

    return register if function is None else register(function)
