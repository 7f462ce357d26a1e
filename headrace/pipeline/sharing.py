"""Queries that start together share windows, joins and aggregates (`plan.rewrite.share`).

The plan of such a query depends on the others. Its state belongs to that plan, so the plan must stay the same
when another query is removed, or added later. So a checkpoint names the queries that started together, with
their text, and the plans follow from these alone. A query whose text has changed since then uses what the
others share as far as it can, so that its state can serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.errors import HeadraceError
from headrace.pipeline.pipeline import Pipeline
from headrace.plan.nodes.core import Plan
from headrace.plan.rewrite import share
from headrace.sql import Query, query

Parse = Callable[[str, str], Query]
"""The query of a name and a text."""


def start_together(pipeline: Pipeline) -> dict[str, str]:
    """The queries, by name, that are there from the start, and their text."""
    return {each.name: each.query.text for each in pipeline.queries if not each.since}


def with_shared_plans(pipeline: Pipeline, together: Mapping[str, str]) -> Pipeline:
    """The pipeline, in which the queries that started `together` have the plans that they share."""
    running = {each.name: each.query for each in pipeline.queries if not each.since}
    plans = shared_plans(running, together, lambda name, text: query(text, pipeline.catalog, name=name))
    queries = tuple(
        replace(each, query=each.query.with_plan(plans[each.name])) if each.name in plans else each
        for each in pipeline.queries
    )
    return replace(pipeline, queries=queries)


def shared_plans(running: Mapping[str, Query], together: Mapping[str, str], parse: Parse) -> dict[str, Plan]:
    """The plans of running queries that started `together`, whether or not their text has changed."""
    started: dict[str, Plan] = {}
    for name, text in together.items():
        now = running.get(name)
        found = now if now is not None and now.text == text else _parsed(name, text, parse)
        if found is not None:
            started[name] = found.optimized_plan
    plans = share(started)
    both = {name: query for name, query in running.items() if name in together}
    changed = {n: query.optimized_plan for n, query in both.items() if query.text != together[n]}
    again = share(changed, {f"{name} as it started": plan for name, plan in plans.items()})
    return {name: again.get(name) or plans[name] for name in both}


def _parsed(name: str, text: str, parse: Parse) -> Query | None:
    """A query that ran once; None if its streams are not there any more."""
    try:
        return parse(name, text)
    except HeadraceError:
        return None
