"""User-defined aggregates: a Python class over Arrow arrays, carried in the plan itself.

A plan with only the name of a function would be useless where that name is not registered (on a Spark
worker), so the call contains the definition. A definition looks like this:

    class Median:
        arguments = (pa.float64(),)
        result = pa.float64()

        def initialize(self): ...               # the state without rows
        def iterate(self, state, values): ...   # the state with more rows: an Arrow array per argument
        def terminate(self, state): ...         # the result as a Python value; None is NULL
        def merge(self, state, later): ...      # optional: the state of both, so that windows keep panes
        def expire(self, state, values): ...    # optional: the state without these rows

        ordered = nulls = allow_pickle = False  # optional, as `UserAggregate` says

`iterate`, `merge` and `expire` may change their first state in place and return it, but no other argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import pyarrow as pa

from headrace.errors import HeadraceError, PlanError
from headrace.expressions.types import sql_name, type_named
from headrace.plan.nodes.core import AggregateCall
from headrace.schema import DataType

REQUIRED: Final = ("initialize", "iterate", "terminate")
ATTRIBUTES: Final = "arguments = (pa.float64(),) and result = pa.float64(), or names of types"
Result = DataType | Callable[..., DataType]


@dataclass(frozen=True)
class UserAggregate:
    """A definition under a name: a class, or an object with its methods.

    None as an argument type accepts any type; `result` may be a function of the argument types. `ordered`:
    rows come in order of time, simultaneous ones as in `headrace.plan.analysis.ordering`; otherwise in any
    order. `nulls`: rows with a NULL argument are passed too; otherwise they are skipped. Without rows the
    result is NULL and no method is called. `allow_pickle`: states may be objects of any class, which
    snapshots pickle; otherwise they must be plain values (`headrace.state.plain`).
    """

    name: str
    definition: Any
    arguments: tuple[DataType | None, ...]
    result: Result
    ordered: bool = False
    nulls: bool = False
    allow_pickle: bool = False

    def __hash__(self) -> int:
        return hash((self.name, self.arguments))

    def __deepcopy__(self, memo: object) -> UserAggregate:
        return self

    def make(self) -> Any:
        """A new object with the methods."""
        return self.definition() if isinstance(self.definition, type) else self.definition

    @property
    def merges(self) -> bool:
        """Whether partial states can be merged."""
        return callable(getattr(self.definition, "merge", None))

    @property
    def expires(self) -> bool:
        """Whether rows can be removed again."""
        return callable(getattr(self.definition, "expire", None))

    def result_of(self, types: Sequence[DataType]) -> DataType:
        """The result type over columns of these types; raises a PlanError if there is none."""
        if len(types) != len(self.arguments):
            message = f"{self.name} takes {_counted(len(self.arguments))}, not {len(types)}"
            raise PlanError("HR-P031", message, place=self.name, hint=f"{self.name}({self._shown()})")
        for given, wanted in zip(types, self.arguments, strict=True):
            if wanted is not None and given != wanted:
                message = f"{self.name} takes ({self._shown()}), not {sql_name(given)}"
                raise PlanError("HR-P006", message, place=self.name, hint="cast the column first")
        return self.result(*types) if callable(self.result) else self.result

    def _shown(self) -> str:
        return ", ".join("any" if each is None else sql_name(each) for each in self.arguments)


@dataclass(frozen=True)
class UserCall(AggregateCall):
    """A call of a user-defined aggregate with `column` and, if it takes several arguments, `others`."""

    others: tuple[str, ...] = ()
    definition: UserAggregate = field(kw_only=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*super().columns, *self.others)

    def over(self, columns: Sequence[str]) -> Self:
        return replace(self, column=columns[0] if columns else None, others=tuple(columns[1:]))

    @property
    def minds_order(self) -> bool:
        return self.definition.ordered


def user_call(name: str, definition: UserAggregate, columns: Sequence[str]) -> UserCall:
    """`definition(columns …) AS name`."""
    return UserCall(name, definition.name, columns[0], tuple(columns[1:]), definition=definition)


def user_aggregate(
    name: str,
    definition: Any,
    *,
    arguments: Sequence[DataType | str | None] | None = None,
    result: Result | str | None = None,
) -> UserAggregate:
    """The definition under a name, checked; values that are not passed come from its attributes."""
    missing = next((each for each in REQUIRED if not callable(getattr(definition, each, None))), None)
    if missing is not None:
        hint = "an aggregate has initialize(), iterate(state, *columns) and terminate(state)"
        raise PlanError("HR-P030", f"aggregate {name!r} has no method {missing}", place=name, hint=hint)
    taken = getattr(definition, "arguments", None) if arguments is None else arguments
    given = getattr(definition, "result", None) if result is None else result
    if not isinstance(taken, (list, tuple)) or not taken or given is None:
        message = f"aggregate {name!r} does not say its arguments and result"
        raise PlanError("HR-P030", message, place=name, hint=ATTRIBUTES)
    return UserAggregate(
        name.lower(),
        definition,
        tuple(None if each is None else _type(name, each) for each in taken),
        given if callable(given) else _type(name, given),
        bool(getattr(definition, "ordered", False)),
        bool(getattr(definition, "nulls", False)),
        bool(getattr(definition, "allow_pickle", False)),
    )


def _type(name: str, of: object) -> DataType:
    """A declared type, as an Arrow type or by its SQL name."""
    if isinstance(of, pa.DataType):
        return of
    try:
        return type_named(str(of))
    except HeadraceError as error:
        raise PlanError(
            "HR-P030", f"aggregate {name!r}: {error.message}", place=name, hint=ATTRIBUTES
        ) from None


def _counted(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"
