"""Functions and aggregates that users define: by name, in a catalog or for the whole process.

A query finds them in its catalog first. Its plan carries the definitions themselves, so that it means the
same where nothing was registered: in another process, or on a worker of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlglot import exp

from headrace.errors import SqlError
from headrace.expressions import FUNCTIONS
from headrace.expressions.functions.registry import ArrayFunction, UserFunction, user_function
from headrace.plan.user_aggregates import Result, UserAggregate, user_aggregate
from headrace.schema import DataType
from headrace.sql.aggregate_names import AGGREGATES
from headrace.sql.codes import Code
from headrace.sql.parse import parse
from headrace.sql.place import Fault

Definition = UserFunction | UserAggregate
Made = TypeVar("Made")
Type = DataType | str
WORDS: Final = frozenset({"lag", "row_number", "seq", "istream", "dstream", "rstream"}) | {
    "headrace_window",
    "headrace_granularity",
}
"""What looks like a function in a query and is none."""

USER: Final = "user defined"
"""The key in a call's `meta` under which its definition lies."""
SEEN: Final = "user defined: seen"


class Definitions:
    """Definitions by name; case does not matter."""

    def __init__(self, known: Mapping[str, Definition] | None = None) -> None:
        self._known: dict[str, Definition] = dict(known or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def find(self, name: str) -> Definition | None:
        """What `name` was defined as."""
        return self._known.get(name.lower())

    def add(self, definition: Definition, *, replace: bool = False) -> None:
        """Define; a name that is taken is an error, unless by a definition that is to be replaced."""
        check_name(definition.name)
        if definition.name in self._known and not replace:
            message = f"there is a function or aggregate {definition.name!r} already"
            raise SqlError(Code.NAME_TAKEN, message, hint="pass replace=True, or choose another name")
        self._known[definition.name] = definition

    def copy(self) -> Definitions:
        """The same, to which more can be added."""
        return Definitions(self._known)

    def merged(self, other: Definitions) -> Definitions:
        """The definitions of both; a name in both means the same in both, or it is an error."""
        for name in other:
            if self.find(name) not in (None, other.find(name)):
                message = f"two different functions are called {name!r}"
                raise SqlError(Code.NAME_TAKEN, message, hint="give one of them another name")
        return Definitions({**self._known, **other._known})


GLOBAL: Final = Definitions()
"""What every query of this process may use."""


def defined(name: str, catalog: Definitions) -> Definition | None:
    """What a name in a query means, if a user defined it: in the catalog, or else for all."""
    found = catalog.find(name) or GLOBAL.find(name)
    if found is not None:
        return found
    known = FUNCTIONS.get(name.lower())
    return known if isinstance(known, UserFunction) else None


def recognise(node: exp.Expr, catalog: Definitions) -> None:
    """Note at every call in a query which definition it means."""
    if SEEN in node.meta:
        return
    for each in node.find_all(exp.Anonymous, exp.Query):
        if isinstance(each, exp.Query):
            each.meta[SEEN] = True
        elif (found := defined(each.name, catalog)) is not None:
            each.meta[USER] = found


def is_aggregate(node: object) -> bool:
    """Whether it is a call of an aggregate, whoever defined it."""
    if not isinstance(node, exp.Anonymous):
        return False
    return isinstance(node.meta.get(USER), UserAggregate) or (
        USER not in node.meta and node.name.lower() in AGGREGATES
    )


def check_name(name: str) -> None:
    """Refuse a name that has a meaning already, or that no query could call."""
    if name in AGGREGATES or name in WORDS or _is_built_in(name):
        message = f"{name} is built in"
        raise SqlError(Code.NAME_TAKEN, message, hint="choose another name")
    if not _is_callable(name):
        message = f"{name!r} is no name that a query can call"
        raise SqlError(Code.DEFINITION, message, hint="letters, digits and underscores, and no word of SQL")


def _is_built_in(name: str) -> bool:
    return name in FUNCTIONS and not isinstance(FUNCTIONS[name], UserFunction)


def _is_callable(name: str) -> bool:
    try:
        (statement,) = parse(f"SELECT {name}(x) FROM s")
    except (Fault, ValueError):
        return False
    (called,) = statement.expressions or (None,)
    return isinstance(called, exp.Anonymous) and called.name.lower() == name


def function_of(
    name: str,
    function: ArrayFunction,
    arguments: Sequence[Type | None] | None,
    result: Type,
    deterministic: bool,
) -> UserFunction:
    """A scalar function under its name."""
    if not callable(function):
        raise SqlError(Code.DEFINITION, f"function {name!r} cannot be called", hint="give a Python function")
    return user_function(name, function, result, arguments=arguments, deterministic=deterministic)


def register_aggregate(
    name: str,
    definition: Any = None,
    *,
    arguments: Sequence[Type | None] | None = None,
    result: Result | str | None = None,
    replace: bool = False,
) -> Any:
    """Make a class an aggregate of every query in this process; without one, a decorator of a class."""

    def register(made: Made) -> Made:
        GLOBAL.add(user_aggregate(name, made, arguments=arguments, result=result), replace=replace)
        return made

    return register if definition is None else register(definition)


def register_function(
    name: str,
    function: ArrayFunction | None = None,
    *,
    result: Type,
    arguments: Sequence[Type | None] | None = None,
    deterministic: bool = False,
    replace: bool = False,
) -> Any:
    """Make a function over Arrow arrays one of every query in this process; without one, a decorator.

    `arguments` are the types that it takes, None among them any; left out, it takes what it is given.
    `deterministic` promises more than a function must: equal arguments give equal values and none raises,
    so that the planner may move it.
    """

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        definition = function_of(name, made, arguments, result, deterministic)
        GLOBAL.add(definition, replace=replace)
        FUNCTIONS[definition.name] = definition
        return made

    return register if function is None else register(function)
