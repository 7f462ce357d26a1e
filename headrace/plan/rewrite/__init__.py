"""Rewrites a plan into one with the same result and a lower cost: rules, the optimizer, sharing."""

from headrace.plan.rewrite.optimizer import Optimized, optimize, optimized, trace
from headrace.plan.rewrite.rule import Fired, Rule
from headrace.plan.rewrite.sharing import share
from headrace.plan.rewrite.table import RULES

__all__ = ["RULES", "Fired", "Optimized", "Rule", "optimize", "optimized", "share", "trace"]
