"""In which order simultaneous rows are taken, where that changes the answer.

Only `[ROWS n]`, `LAG`, `first` and `last` depend on it. The law: on a path of selections, projections and
lags from one source or table, simultaneous rows keep the order in which it delivered them; anywhere else
(after a union, join, aggregate …) they are ordered by content, column by column, nulls first, NaN last. So
the answer depends on the rows alone, never on scheduling, batching or parallelism.
"""

from __future__ import annotations

from headrace.plan.lag import Lag
from headrace.plan.nodes import Plan, Project, Select, Source, Table, Window
from headrace.plan.ordering import Order


def keeps_arrival_order(plan: Plan) -> bool:
    """Whether simultaneous rows of `plan` are taken in the order of their source."""
    while isinstance(plan, (Select, Project, Lag, Window, Order)):
        plan = plan.input
    return isinstance(plan, (Source, Table))
