"""UNNEST: a row for each element of an array or map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expressions import Expression
from headrace.expressions.types import canonical, sql_name
from headrace.plan.nodes.core import Unary
from headrace.schema import DataType, Schema


@dataclass(frozen=True)
class Unnest(Unary):
    """Each row once for every element of `operand`, in order, with the element in the new columns `names`.

    One name is the element itself; more names are the fields of a struct, or the key and the value of a map.
    `ordinal`, if given, is the number of the element, from 1. A row without elements disappears, or stays
    once with nulls if `outer`.
    """

    operand: Expression
    names: tuple[str, ...]
    ordinal: str | None = None
    outer: bool = False

    @cached_property
    def element_types(self) -> tuple[DataType, ...]:
        """The types of the new columns, without the number."""
        parts = parts_of(self.operand.type(self.input.schema))
        return parts if len(parts) == len(self.names) else self._whole()

    def _whole(self) -> tuple[DataType, ...]:
        of = canonical(self.operand.type(self.input.schema))
        if len(self.names) == 1 and pa.types.is_list(of):
            return (of.value_type,)
        what = f"UNNEST of {sql_name(of)} gives {len(parts_of(of))} columns, not {len(self.names)}"
        raise PlanError("HR-P006", what, place=str(self.operand), hint="name each of them")

    @property
    def takes_apart(self) -> bool:
        """Whether the new columns are the parts of an element."""
        return pa.types.is_map(self.operand_type) or len(self.names) > 1

    @cached_property
    def operand_type(self) -> DataType:
        """The type of the array or map, in Arrow's plain layout."""
        return canonical(self.operand.type(self.input.schema))

    @cached_property
    def _schema(self) -> Schema:
        made = [pa.field(n, of) for n, of in zip(self.names, self.element_types, strict=True)]
        number = [] if self.ordinal is None else [pa.field(self.ordinal, pa.int64())]
        return pa.schema([*self.input.schema, *made, *number])

    @property
    def schema(self) -> Schema:
        return self._schema


def parts_of(of: DataType) -> tuple[DataType, ...]:
    """The columns that the elements of an array or map are taken apart into."""
    of = canonical(of)
    if pa.types.is_map(of):
        return (of.key_type, of.item_type)
    if not pa.types.is_list(of):
        message, hint = f"UNNEST cannot take {sql_name(of)}", "it takes an array or a map"
        raise PlanError("HR-P006", message, place="UNNEST", hint=hint)
    inner = of.value_type
    return tuple(each.type for each in inner) if pa.types.is_struct(inner) else (inner,)
