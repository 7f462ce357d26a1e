"""Plans that mean the same and cost less: a table of rules, and the optimiser that applies it."""

from headrace.plan.rewrite.optimizer import Optimized, optimize, optimized, trace
from headrace.plan.rewrite.rule import Fired, Rule
from headrace.plan.rewrite.table import RULES

__all__ = ["RULES", "Fired", "Optimized", "Rule", "optimize", "optimized", "trace"]
