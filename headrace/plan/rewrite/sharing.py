"""Makes the plans of several queries share more: sub-plans that differ only in pruned columns become equal.

Each query was optimized alone, so two queries that read different columns through the same window have two
windows, and two aggregates over one window and key are two nodes. `share` gives both queries the window with
the columns of both, and the aggregate with the calls of both; each query takes its own columns above it. The
engine then finds equal sub-plans and runs them once.

It never costs more state than before: the columns of both, once, are at most the columns of each. So every
sub-plan that can be shared is shared. These are not:

- filters and projections of a stream, unless something above them is shared;
- nodes whose filters, windows, keys or joins differ;
- DISTINCT, ISTREAM and DSTREAM over different columns, because they compare whole rows;
- nodes in which the content of whole rows decides their order, unless they have the same columns;
- aggregates that depend on the order of rows, or are user-defined, with others that are not;
- windows and granularities whose bounds have no common value (Cammert et al., §3.2). Others are shared: each
  plan keeps the bounds that its query wrote, and the graph intersects them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.expressions import Column
from headrace.expressions.substitution import substitute
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Plan, Project
from headrace.plan.nodes.quality import adaptable, bounds_of, without_bounds
from headrace.plan.nodes.trees import over
from headrace.plan.nodes.windows import Rows
from headrace.plan.rewrite import projections
from headrace.plan.rewrite.sharing_rules import (
    RULES,
    WHOLE,
    Found,
    Group,
    Part,
    Rule,
    Use,
    composed,
    places,
    projected,
    whole,
)
from headrace.plan.show import show


def share(plans: Mapping[str, Plan], fixed: Mapping[str, Plan] | None = None) -> dict[str, Plan]:
    """The plans of some queries, by name, with the same answers and columns, and more equal sub-plans.

    `fixed` are the plans of queries that run already and have state. They are not changed: a name in both
    keeps its fixed plan. The others use a sub-plan of a fixed plan if it has all columns that they need, and
    share with each other otherwise.

    A query alone is not changed. The result depends on the plans and not on their order: they are taken in
    the order of their text (`headrace.plan.show`), and by name if that is the same. That order decides only
    how columns are named and ordered inside, and, where not all bounds have a common value, which of them
    are shared.
    """
    fixed = fixed or {}
    sharing = _Sharing()
    for plan in _in_order(fixed).values():
        sharing.provide(Use(plan))
    new = _in_order({name: plan for name, plan in plans.items() if name not in fixed})
    for plan in new.values():
        sharing.part(Use(plan))
    sharing.decide(new)
    return {name: fixed.get(name) or sharing.shared(Use(plan)) for name, plan in plans.items()}


def _in_order(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    return {name: plans[name] for name in sorted(plans, key=lambda name: (show(plans[name]), name))}


class _Sharing:
    """The groups of all plans."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, list[Group]] = {}
        self._order: list[Group] = []
        self._parts: dict[Use, Part] = {}
        self._built: dict[Group, Plan] = {}

    # --- grouping, from the streams up

    def part(self, use: Use) -> Part:
        """The group of a node, and its columns."""
        if use not in self._parts:
            self._parts[use] = self._grouped(use, [self.part(each) for each in use.inputs])
        return self._parts[use]

    def _grouped(self, use: Use, inputs: list[Part]) -> Part:
        plan, rule = use.plan, RULES.get(type(use.plan))
        projection = composed(plan, inputs)
        if projection is not None:
            return projection
        splits = type(plan) is nodes.Aggregate and not use.pieces
        found = None if rule is None or splits else rule.find(plan, inputs)
        if rule is None or found is None:
            rule, found = WHOLE, whole(plan, inputs)
        group = self._group(rule, plan, found, tuple(each.group for each in inputs))
        names = {name: group.name(what, wishes) for name, (what, wishes) in found.columns.items()}
        if rule.passes:
            return Part(group, inputs[0].columns)
        return Part(group, {name: Column(names[name]) for name in plan.schema.names})

    def _group(self, rule: Rule, plan: Plan, found: Found, inputs: tuple[Group, ...]) -> Group:
        """The group with this key, whose bounds, if it has any, have a value in common with the plan's."""
        groups = self._groups.setdefault((type(plan), inputs, found.key), [])
        bounds = bounds_of(plan)
        for group in groups:
            if bounds is None or group.bounds is None:
                return group
            met = group.bounds.meet(bounds)
            if met is not None:
                group.bounds = met
                return group
        groups.append(Group(rule, plan, inputs, found.own, bounds))
        self._order.append(groups[-1])
        return groups[-1]

    def provide(self, use: Use) -> None:
        """Offer the nodes of a fixed plan to others."""
        part = self.part(use)
        if not part.projects and not part.group.rule.free:
            part.group.providers[use.plan] = part.columns
        for each in use.inputs:
            self.provide(each)

    # --- deciding, from the answers down

    def decide(self, plans: Mapping[str, Plan]) -> None:
        """Find the groups that are merged: those above come first, because they decide what they need."""
        for query, plan in plans.items():
            self._enter(Use(plan), {query})
        for group in reversed(self._order):
            self._decide(group)

    def _enter(self, use: Use, queries: set[str], below_merged: bool = False) -> None:
        """Enter a node as a member of its group; a projection belongs to the group of its input."""
        part = self.part(use)
        if part.projects:
            return self._enter(use.inputs[0], queries, below_merged)
        members = part.group.below_merged if below_merged else part.group.alone
        members.setdefault(use, set()).update(queries)
        return None

    def _decide(self, group: Group) -> None:
        """Merge the members of a group that no fixed plan provides, or keep each as it is."""
        members = {use: each for use, each in group.alone.items() if not self._is_provided(use)}
        if group.below_merged:
            group.provided = self._for_merged(group)
        if group.below_merged and group.provided is None:
            members |= {use: each | members.get(use, set()) for use, each in group.below_merged.items()}
            group.merged = len(_readers(members)) > 1 or not all(self.part(use).same for use in members)
        elif not group.rule.free:
            group.merged = len(set(_readers(members))) > 1
        group.needed = self._used(members)
        for use, queries in members.items():
            for below in use.inputs:
                self._enter(below, queries, group.merged)

    def _is_provided(self, use: Use) -> bool:
        part = self.part(use)
        return part.group.provider(part.used) is not None

    def _for_merged(self, group: Group) -> Plan | None:
        """The node of a fixed plan that has all that merged groups need, with the names of the group."""
        needed = self._used(group.below_merged)
        provider = group.provider(needed)
        if provider is None:
            return None
        at = places(group.providers[provider])
        if all(at[name] == Column(name) for name in needed):
            return provider
        return Project(provider, tuple((name, at[name]) for name in group.columns.values() if name in needed))

    def _used(self, members: Iterable[Use]) -> set[str]:
        """The columns of a group that its members need."""
        return set[str]().union(*(self.part(use).used for use in members))

    # --- building

    def shared(self, use: Use) -> Plan:
        """The plan over the nodes of merged groups and of fixed plans, with the same columns."""
        plan, part = use.plan, self.part(use)
        if not part.projects:
            provider = part.group.provider(part.used)
            if provider is not None:
                at = places(part.group.providers[provider])
                columns = {name: substitute(e, at) for name, e in part.columns.items()}
                return projected(_with_bounds(provider, plan), columns)
            if part.group.merged:
                return projected(_with_bounds(self._merged(part.group), plan), part.columns)
        made = over(plan, [self.shared(each) for each in use.inputs])
        return made if made is plan else _simpler(made)

    def _merged(self, group: Group) -> Plan:
        """The node that all members of a group become."""
        if group not in self._built:
            self._built[group] = group.rule.build(group, [self._below(each) for each in group.inputs])
        return self._built[group]

    def _below(self, group: Group) -> Plan:
        """The node of a group for the merged groups above it."""
        if not group.inputs:
            return group.template
        if group.provided is not None:
            return group.provided
        return self._merged(group) if group.merged else self.shared(next(iter(group.below_merged)))


def _readers(members: Mapping[Use, set[str]]) -> list[frozenset[str]]:
    """The queries that use each of the plans that differ in more than bounds."""
    found: dict[Plan, frozenset[str]] = {}
    for use, queries in members.items():
        plan = without_bounds(use.plan)
        found[plan] = found.get(plan, frozenset()) | queries
    return list(found.values())


def _simpler(plan: Plan) -> Plan:
    """Without a projection of a projection, or one that changes nothing."""
    merged = projections.merge(plan)
    plan = plan if merged is None else merged
    removed = projections.remove(plan)
    return plan if removed is None else removed


def _with_bounds(plan: Plan, written: Plan) -> Plan:
    """The plan with the bounds of windows and granularities as in another one of the same form."""
    return _rebound(plan, adaptable(written))


def _rebound(plan: Plan, written: Iterator[Plan]) -> Plan:
    plan = over(plan, [_rebound(each, written) for each in plan.inputs])
    if bounds_of(plan) is None:
        return plan
    like = next(written)
    if isinstance(plan, nodes.Granularity):
        assert isinstance(like, nodes.Granularity)
        return replace(plan, grain=like.grain, coarsest=like.coarsest)
    assert isinstance(plan, nodes.Window)
    assert isinstance(like, nodes.Window)
    if isinstance(plan.spec, Rows) and isinstance(like.spec, Rows):
        return replace(plan, spec=like.spec.over(plan.spec.columns))
    return replace(plan, spec=like.spec)
