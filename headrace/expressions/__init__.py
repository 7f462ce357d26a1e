"""Typed expression trees and their compilation to Arrow kernels.

An expression is data (`nodes`), written by hand with `col`, `lit` and `fn`. `expression.type(schema)` types
it, `compile` makes an array function of it, `compile_predicate` a mask function, and `evaluate` is the
naive reference. Every expression is total: what has no value (overflow, division by zero, an impossible
cast) is NULL.
"""

from __future__ import annotations

from headrace.expressions.compile import compile, compile_predicate
from headrace.expressions.evaluate import evaluate, evaluator
from headrace.expressions.expression import Expression, as_expression
from headrace.expressions.functions import FUNCTIONS, register
from headrace.expressions.nodes import (
    And,
    Arithmetic,
    Between,
    Case,
    Cast,
    Coalesce,
    Column,
    Comparison,
    Element,
    Field,
    Function,
    In,
    IsNotNull,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    UserFunctionCall,
    coalesce,
    col,
    fn,
    lit,
    when,
)
from headrace.expressions.scope import Scope

__all__ = [
    "FUNCTIONS",
    "And",
    "Arithmetic",
    "Between",
    "Case",
    "Cast",
    "Coalesce",
    "Column",
    "Comparison",
    "Element",
    "Expression",
    "Field",
    "Function",
    "In",
    "IsNotNull",
    "IsNull",
    "Like",
    "Literal",
    "Negate",
    "Not",
    "Or",
    "Scope",
    "UserFunctionCall",
    "as_expression",
    "coalesce",
    "col",
    "compile",
    "compile_predicate",
    "evaluate",
    "evaluator",
    "fn",
    "lit",
    "register",
    "when",
]
