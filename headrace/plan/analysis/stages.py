"""A plan cut into stages, each of which can be partitioned by its own key.

The lower part of a cut outputs what a source above the cut reads. A relation that changes only at the slides
of a window can be cut as a stream: reported in full at each slide and kept for one slide, it is the same
relation at every instant. For all other relations, and if a granularity above rounds the start and end of
each row, the signed intervals themselves cross the cut: an `Inlet` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.plan.analysis.istream_state import has_changing_table, has_no_ticks, reported, ticks_of
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.analysis.partitioning import Partitioning, partition
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Inlet, Plan, Source
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.trees import exchange, minds_order, sources_of, takes_pieces, walk
from headrace.plan.nodes.windows import Range, Sliding, Ticks

STEADY = (
    *(nodes.Select, nodes.Project, nodes.Union, nodes.Join, OuterJoin),
    *(nodes.Aggregate, nodes.Distinct, nodes.Except, TopN),
)


@dataclass(frozen=True)
class Stage:
    """A plan, the partitioning of its streams, and the source that replaces its result in later stages.

    `output` is the source that later stages read; None for the last stage, which has the result of the query.
    `stand_ins` are pairs of a node of this stage and what it stands for, the newest cut first.
    """

    plan: Plan
    partitioning: Partitioning
    output: Source | None = None
    stand_ins: tuple[tuple[Plan, Plan], ...] = ()

    def written(self, node: Plan) -> Plan:
        """The node of the whole plan that became this node of the stage."""
        for stand_in, part in self.stand_ins:
            node = exchange(node, stand_in, part)
        return node


@dataclass(frozen=True)
class Cut:
    """The part below the cut, the source that replaces it, and the part above.

    `stand_in` is the node of the upper part, made from the source, that replaces `part` of the plan.
    """

    lower: Plan
    output: Source
    upper: Plan
    stand_in: Plan
    part: Plan

    def above(self, stage: Stage) -> Stage:
        """A stage of the part above, as a stage of the whole plan."""
        return replace(stage, stand_ins=(*stage.stand_ins, (self.stand_in, self.part)))


def stages(plan: Plan) -> list[Stage]:
    """The plan as stages, in the order of the data flow.

    One stage if the whole plan can be partitioned. Otherwise the highest cut for which both parts can be;
    failing that, the highest cut whose lower part can be, and the rest is tried again. A part that cannot be
    partitioned at all is the last stage, and its `partitioning` has the reason.
    """
    whole = partition(plan)
    if whole.keys is not None:
        return [Stage(plan, whole)]
    best: tuple[Cut, Partitioning] | None = None
    for cut in cuts(plan):
        lower = partition(cut.lower)
        if lower.keys is None or lower.anything:
            continue
        best = best or (cut, lower)
        upper = partition(cut.upper)
        if upper.keys is not None:
            return [Stage(cut.lower, lower, cut.output), cut.above(Stage(cut.upper, upper))]
    if best is None:
        return [Stage(plan, whole)]
    cut, lower = best
    return [Stage(cut.lower, lower, cut.output), *map(cut.above, stages(cut.upper))]


def cuts(plan: Plan) -> Iterator[Cut]:
    """Every place where the plan can be cut, the highest first."""
    taken = {source.name for source in sources_of(plan)}
    name = next(name for n in range(1, len(taken) + 2) if (name := f"stage_{n}") not in taken)
    for part in dict.fromkeys(walk(plan)):
        if part == plan or isinstance(part, Source):
            continue
        cut = _relation_cut(plan, part, name) if part.is_relation else _stream_cut(plan, part, name)
        if cut is not None:
            yield cut


def _stream_cut(plan: Plan, part: Plan, name: str) -> Cut | None:
    """A cut at a stream; simultaneous rows are in order of content, as they would be inside one plan.

    None if they would be in order of arrival, which shards do not know of each other.
    """
    output = Source(name, part.schema)
    stand_in: Plan = output
    if any(map(minds_order, walk(exchange(plan, part, output)))):
        if keeps_arrival_order(part):
            return None
        stand_in = nodes.Union((output,))
    return Cut(part, output, exchange(plan, part, stand_in), stand_in, part)


def _relation_cut(plan: Plan, part: Plan, name: str) -> Cut | None:
    """A cut below which the result is a relation, sent as changes or as a report at every tick."""
    ticks = changes_at(part)
    if ticks is None or (ticks_of(part) != ticks and _is_rounded(plan, part)):
        inlet = Inlet(name, part.schema, relation=True)
        upper = exchange(plan, part, inlet)
        whole = all(map(takes_pieces, walk(upper))) or not any(map(_slides, walk(part)))
        return Cut(part, inlet, upper, inlet, part) if whole else None
    output = Source(name, part.schema)
    stand_in = nodes.Window(output, Range(ticks.slide))
    upper = exchange(plan, part, stand_in)
    if any(map(minds_order, walk(upper))):
        return None
    return Cut(reported(part, ticks), output, upper, stand_in, part)


def _slides(plan: Plan) -> bool:
    """Whether its rows may come in pieces, one for each slide (`headrace.plan.analysis.ordering`)."""
    return isinstance(plan, nodes.Window) and isinstance(plan.spec, Sliding)


def _is_rounded(plan: Plan, part: Plan) -> bool:
    """Whether a granularity above the part depends on the start and end of its rows."""
    grains = (node for node in walk(plan) if isinstance(node, nodes.Granularity))
    return any(part in walk(grain.input) for grain in grains)


def changes_at(plan: Plan) -> Ticks | None:
    """The only ticks at which the relation changes; None if it may change at other times."""
    if isinstance(plan, nodes.SlidingAggregate):
        return plan.window.ticks
    if isinstance(plan, SessionAggregate):
        return Ticks(1)
    if isinstance(plan, nodes.Window):
        return plan.spec.ticks if isinstance(plan.spec, Sliding) else None
    if not isinstance(plan, STEADY) or has_changing_table(plan):
        return None
    found = {changes_at(each) for each in plan.inputs if not has_no_ticks(plan, each)}
    return found.pop() if len(found) == 1 else None
