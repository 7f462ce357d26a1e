"""Which operator runs which plan node: one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.operators.adaptive_order import adaptive_order
from headrace.operators.aggregate import AggregateOperator
from headrace.operators.changelog import ChangelogOperator
from headrace.operators.contract import Operator
from headrace.operators.distinct import DistinctOperator
from headrace.operators.distinct_on import distinct_on
from headrace.operators.early_results import EarlySessionsOperator, EarlyWindowsOperator
from headrace.operators.except_ import ExceptOperator
from headrace.operators.expand import ExpandOperator
from headrace.operators.granularity import granularity
from headrace.operators.join import JoinOperator
from headrace.operators.lag import lag
from headrace.operators.match import MatchOperator
from headrace.operators.order import OrderOperator
from headrace.operators.outer_join import OuterJoinOperator
from headrace.operators.over import over
from headrace.operators.project import ProjectOperator
from headrace.operators.rows_window import rows_window
from headrace.operators.select import SelectOperator
from headrace.operators.sequence import SequenceOperator
from headrace.operators.session_aggregate import MergingSessionsOperator, SessionAggregateOperator
from headrace.operators.sliding_aggregate import SlidingAggregateOperator
from headrace.operators.stamp import StampOperator
from headrace.operators.streams import DStreamOperator, istream, rstream
from headrace.operators.top_n import TopNOperator
from headrace.operators.union import LatentUnionOperator, MergeOperator, UnionOperator
from headrace.operators.unnest import UnnestOperator
from headrace.operators.unsorted_windows import unsorted_windows
from headrace.operators.window import time_window
from headrace.plan.analysis import ordering
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.latent import Stamp, is_latent
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.sequence import Sequence
from headrace.plan.nodes.session import MergingSessions, SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.unsorted import UnsortedWindows
from headrace.plan.nodes.windows import Rows

Build = Callable[[Any], Operator]

OPERATORS: dict[type[Plan], Build] = {
    nodes.Select: SelectOperator,
    nodes.Project: ProjectOperator,
    nodes.Union: lambda plan: LatentUnionOperator(plan) if is_latent(plan) else UnionOperator(plan),
    nodes.Window: lambda plan: rows_window(plan) if isinstance(plan.spec, Rows) else time_window(plan),
    nodes.Granularity: granularity,
    nodes.Join: JoinOperator,
    OuterJoin: OuterJoinOperator,
    nodes.Aggregate: AggregateOperator,
    nodes.SlidingAggregate: SlidingAggregateOperator,
    SessionAggregate: SessionAggregateOperator,
    MergingSessions: MergingSessionsOperator,
    EarlySessions: EarlySessionsOperator,
    UnsortedWindows: unsorted_windows,
    EarlyWindows: EarlyWindowsOperator,
    nodes.Distinct: DistinctOperator,
    TopN: TopNOperator,
    Lag: lag,
    Over: over,
    DistinctOn: distinct_on,
    Unnest: UnnestOperator,
    nodes.Except: ExceptOperator,
    nodes.IStream: istream,
    nodes.DStream: DStreamOperator,
    nodes.RStream: rstream,
    Changelog: ChangelogOperator,
    Sequence: SequenceOperator,
    Match: MatchOperator,
    ordering.Order: OrderOperator,
    ordering.AdaptiveOrder: adaptive_order,
    ordering.Merge: MergeOperator,
    ordering.Expand: ExpandOperator,
}


def build(plan: Plan, now: Callable[[], int]) -> Operator:
    """The operator of a plan node, not yet connected. `now` is for the one that stamps."""
    if isinstance(plan, Stamp):
        return StampOperator(plan, now)
    return OPERATORS[type(plan)](plan)
