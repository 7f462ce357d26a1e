"""The rules, in the order in which they are tried. Each is a row; `docs/concepts/planning.md` shows them."""

from __future__ import annotations

from typing import Final

from headrace.plan.nodes import Aggregate, IStream, Join, Project, RStream, Select
from headrace.plan.rewrite import joins, panes, projections, pruning, selections, streams
from headrace.plan.rewrite.order_joins import order_joins
from headrace.plan.rewrite.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    Rule("merge selections", selections.merge, Select),
    Rule("selection below projection", selections.below_projection, Select),
    Rule("selection below union", selections.below_union, Select),
    Rule("selection below window", selections.below_window, Select),
    Rule("selection below granularity", selections.below_granularity, Select),
    Rule("selection below distinct", selections.below_content, Select),
    Rule("selection below except", selections.below_except, Select),
    Rule("selection below aggregate", selections.below_aggregate, Select),
    Rule("selection below stream", selections.below_stream, Select),
    Rule("selection into join", joins.selection_into, Select),
    Rule("conditions below join", joins.conditions_below, Join),
    Rule("remove projection", projections.remove, Project),
    Rule("merge projections", projections.merge, Project),
    Rule("projection below window", projections.below_window, Project),
    Rule("projection below union", projections.below_union, Project),
    Rule("projection below stream", projections.below_stream, Project),
    Rule("panes", panes.choose, Aggregate),
    Rule("nothing to remember", streams.remember_nothing, IStream),
    Rule("report once", streams.report_once, RStream),
    Rule("order joins", order_joins, whole=True),
    Rule("prune columns", pruning.prune, whole=True),
)
