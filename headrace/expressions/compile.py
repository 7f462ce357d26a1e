"""Compilation, once, of an expression to closures over record batches.

A compiled expression gives, for each batch of the schema that it was compiled for, an array of the batch's
length and exactly the expression's type. A bare column costs nothing but the lookup: the batch's own array
is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import methodcaller

import pyarrow as pa

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Datum, Input
from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.scope import Rule, Scope

Program = Callable[[pa.RecordBatch], Datum]


def compile(
    expression: Expression, schema: pa.Schema, functions: Mapping[str, Rule] = FUNCTIONS
) -> Callable[[pa.RecordBatch], pa.Array]:
    """The expression as a function from batches of `schema` to arrays."""
    return column_program(expression.bind(Scope(schema, functions)))


def column_program(bound: Bound) -> Callable[[pa.RecordBatch], pa.Array]:
    """The program with a constant repeated for each row of the batch."""
    if isinstance(bound, Constant):
        return _repeated(pa.scalar(bound.value, bound.type))
    return program(bound)


def _repeated(scalar: pa.Scalar) -> Callable[[pa.RecordBatch], pa.Array]:
    """Slices of the longest column that was asked for so far: 1 µs, where repeating 64k times takes 100."""
    longest = pa.repeat(scalar, 1)

    def run(batch: pa.RecordBatch) -> pa.Array:
        nonlocal longest
        if len(longest) < batch.num_rows:
            longest = pa.repeat(scalar, batch.num_rows)
        return longest.slice(0, batch.num_rows)

    return run


def program(bound: Bound) -> Program:
    """The program of a bound expression; a constant stays a scalar made beforehand."""
    if isinstance(bound, Input):
        column: Program = methodcaller("column", bound.index)
        return column
    if isinstance(bound, Constant):
        scalar = pa.scalar(bound.value, bound.type)
        return lambda batch: scalar
    return _call(bound)


def _call(call: Call) -> Program:
    """A closure of the right arity: no argument list is built for one or two arguments."""
    run, args = arrow.vector(call), [program(each) for each in call.args]
    if len(args) == 1:
        (only,) = args
        return lambda batch: run(only(batch))
    if len(args) == 2:
        left, right = args
        return lambda batch: run(left(batch), right(batch))
    return lambda batch: run(*(each(batch) for each in args))
