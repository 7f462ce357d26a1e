"""SEQ in FROM: translates its steps, its clauses and WHERE to a `Sequence`.

WHERE is a part of the sequence. A condition on one step filters the rows of that step before any is chosen
(but not in a CONSECUTIVE sequence, where each row counts); a condition on several steps is checked at the
last of them. Aggregates of a repeated step become columns of its run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expressions import Cast, Column, Expression
from headrace.expressions.types import common_type, sql_name
from headrace.plan.nodes.aggregates import result_type
from headrace.plan.nodes.core import PLACED, AggregateCall, Plan, Project
from headrace.plan.nodes.sequence import Mode, Sequence, Step, StepKind
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.plan.nodes.windows import WindowSpec
from headrace.sql.binder.aggregate_names import AGGREGATES, DISTINCT
from headrace.sql.binder.environment import Environment, one_domain
from headrace.sql.binder.from_clause import From, Translate, read_item
from headrace.sql.binder.joins import selected
from headrace.sql.binder.quality_columns import asked, telling
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Scope, SequenceScope
from headrace.sql.binder.sequence_patterns import pattern_plan, place_in_pattern
from headrace.sql.binder.sequence_steps import Condition, Reading
from headrace.sql.binder.typed import conjunction, conjuncts
from headrace.sql.binder.windows import specification, ticks
from headrace.sql.catalog import Relation
from headrace.sql.definitions import USER, is_aggregate
from headrace.sql.parser.clauses import WINDOW, Duration, Seq, SeqStep, SequenceClause
from headrace.sql.place import Code, fail

KINDS: Final = {"": StepKind.ONCE, "NOT": StepKind.MISSING, "+": StepKind.REPEATED}
ALONE: Final = "move it to a subquery: FROM (SELECT … FROM SEQ(…) …) [RANGE …] AS s, other"


def read_sequence(env: Environment, node: exp.Select, translate: Translate) -> From | None:
    """FROM and WHERE of a SELECT over a sequence; None if it is over something else."""
    start = node.args.get("from_")
    places = [start.this if start else None, *(join.this for join in node.args.get("joins") or ())]
    found = next((each for each in places if isinstance(each, Seq)), None)
    if found is None:
        return None
    if len(places) > 1:
        fail(Code.SEQUENCE, "SEQ must be the only item in FROM", found, ALONE)
    clause: SequenceClause = found.meta[Seq.CLAUSE]
    steps = _read_steps(env, found, translate)
    _read_folds(node, steps, clause.pattern is not None)
    _read_keys(clause, steps)
    where = node.args.get("where")
    _place_conditions(steps, clause, where.this if where else None, node)
    relation = _plan(clause, steps, found)
    return From(
        _scope(relation, found, steps, asked(node)), found, relation.ticks_per_second, takes_where=True
    )


# ------------------------------------------------------------------------------------------------ steps


def _read_steps(env: Environment, node: Seq, translate: Translate) -> list[Reading]:
    """The steps of a SEQ; each must be a named stream."""
    steps: list[Reading] = []
    for each in node.expressions:
        item = read_item(env, each.this, translate)
        if WINDOW in each.this.meta or not item.input.is_stream:
            hint = "remove the window; to limit the time of a sequence, use WITHIN"
            fail(Code.SEQUENCE, "a step of SEQ must be a stream, and this is a relation", each.this, hint)
        if not item.name:
            fail(Code.SEQUENCE, "a step of SEQ needs a name", each.this, "write (SELECT …) AS x")
        if any(step.item.name.lower() == item.name.lower() for step in steps):
            hint = f"rename one: {item.of or '(…)'} AS …"
            fail(Code.SAME_ALIAS, f"two steps are named {item.name!r}", each.this, hint)
        if steps:
            one_domain(steps[0].item.input.ticks_per_second, item.input.ticks_per_second, each.this)
        lasting: Duration | None = each.meta[SeqStep.LASTING]
        lasts = None if lasting is None else ticks(lasting, item.input.ticks_per_second)
        steps.append(Reading(item, KINDS[each.args["kind"]], each.this, lasts))
    clause: SequenceClause = node.meta[Seq.CLAUSE]
    if clause.pattern is None:
        _check_kinds(steps, node)
    return steps


def _check_kinds(steps: list[Reading], node: Seq) -> None:
    """Check that the kinds of the steps (single, NOT, repeated) are a supported combination."""
    if sum(step.kind is not StepKind.MISSING for step in steps) < 2:
        fail(Code.SEQUENCE, "a sequence needs at least two steps without NOT", node, "write SEQ(a, b)")
    for step in (steps[0], steps[-1]):
        if step.kind is StepKind.MISSING:
            hint = "write SEQ(a, NOT c, b)"
            fail(Code.SEQUENCE, "a NOT step must be between two other steps", step.place, hint)
    repeated = next((step for step in steps[1:] if step.kind is StepKind.REPEATED), None)
    if repeated is not None:
        fail(Code.SEQUENCE, "only the first step can be repeated", repeated.place, "write SEQ(a+, b)")
    clause: SequenceClause = node.meta[Seq.CLAUSE]
    if steps[0].kind is StepKind.REPEATED and clause.mode == "CONSECUTIVE":
        hint = "use CHRONICLE, which takes all rows since the last match"
        fail(Code.SEQUENCE, "CONSECUTIVE does not support repeated steps", steps[0].place, hint)


def _read_folds(node: exp.Select, steps: list[Reading], is_pattern: bool) -> None:
    """Replace each `first(x.c)` of a repeated step by a column of its run."""
    runs = {step.item.name.lower(): step for step in steps if step.kind is StepKind.REPEATED}
    parts = [*node.expressions, *(node.args.get(key) for key in ("where", "group", "having"))]
    calls = [each for part in parts if part is not None for each in part.find_all(exp.Anonymous)]
    for call in calls:
        offset = _offset(call) if is_pattern else None
        of = _columns(call, offset is not None)
        tables = {each.args["table"].name.lower() for each in of if each.args.get("table")}
        step = runs.get(min(tables)) if len(tables) == 1 and is_aggregate(call) else None
        if step is not None:
            called = _fold(step, call, of, offset or 0)
            table = of[0].args["table"]
            column = exp.Column(this=exp.to_identifier(called, quoted=True), table=table.copy())
            column.meta.update({k: v for k, v in call.meta.items() if k != USER})
            call.replace(column)


def _offset(call: exp.Anonymous) -> int | None:
    """The offset of `first(x.c, 2)` or `last(x.c, 2)`."""
    given = call.expressions
    if AGGREGATES.get(call.name.lower()) not in PLACED or len(given) != 2 or not given[1].is_int:
        return None
    offset = int(given[1].this) if isinstance(given[1], exp.Literal) else -1
    if offset < 0:
        fail(Code.AGGREGATE, "an offset counts rows from 0", given[1], "write first(x.c, 1)")
    return offset


def _columns(call: exp.Anonymous, has_offset: bool) -> list[exp.Column]:
    """The columns that a call is applied to, if its arguments are all columns."""
    given = call.expressions[: -1 if has_offset else None]
    if len(given) == 1 and isinstance(given[0], exp.Distinct):
        given = given[0].expressions
    columns = [each for each in given if isinstance(each, exp.Column)]
    return columns if len(columns) == len(given) else []


def _fold(step: Reading, node: exp.Anonymous, of: list[exp.Column], offset: int) -> str:
    """The name of an aggregate of the run; it is added if it is new."""
    user = node.meta.get(USER)
    if user is None and node.name.lower() not in AGGREGATES:
        hint = f"repeated steps take {', '.join(AGGREGATES)} and user-defined aggregates"
        fail(Code.AGGREGATE, f"{node.name.lower()} does not work on a repeated step of SEQ", node, hint)
    function = node.name.lower() if user is not None else AGGREGATES[node.name.lower()]
    distinct = isinstance(node.expressions[0], exp.Distinct)
    if (distinct and (function not in DISTINCT or user is not None)) or (len(of) > 1 and user is None):
        hint = "DISTINCT works in count, min and max, with one column: count(DISTINCT x.c)"
        fail(Code.AGGREGATE, f"{function} does not support these arguments", node, hint)
    function = DISTINCT[function] if distinct else function
    names: list[str] = []
    if not isinstance(of[0].this, exp.Star):
        scope = Scope((step.item,))
        names = [scope.find(each) or scope.unknown(each) for each in of]
    elif function != "count":
        fail(Code.AGGREGATE, f"{function} needs a column", of[0], "only count(*) takes a star")
    more = f", {offset}" if offset else ""
    written = f"{function}({', '.join(f'{step.item.name}.{name}' for name in names or '*')}{more})"
    call = AggregateCall(written, function) if user is None else UserCall(written, function, definition=user)
    call = call.over([step.internal(name) for name in names])
    step.offsets[written] = offset
    below = pa.schema([pa.field(n.internal, n.type) for n in step.rows()])
    try:
        step.folds.setdefault(written, (call, result_type(call, below)))
    except PlanError as error:
        fail(Code.TYPES, error.message, node, error.hint)
    return written


# ------------------------------------------------------------------------------------------------- keys


def _read_keys(clause: SequenceClause, steps: list[Reading]) -> None:
    """PARTITION BY: a column name that all steps have, or `x.a = y.b = …` with a column of each step."""
    for node in clause.keys:
        columns = list(_equals(node))
        if len(columns) == 1 and not columns[0].args.get("table"):
            found = [_column_of(step, columns[0]) for step in steps]
        else:
            found = _one_each(columns, steps, node)
        _add_key(steps, found, node)


def _equals(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns of `a = b = c`, in order."""
    if isinstance(node, exp.EQ):
        yield from _equals(node.this)
        yield from _equals(node.expression)
    elif isinstance(node, exp.Column):
        yield node
    else:
        hint = "write PARTITION BY k, or PARTITION BY x.a = y.b"
        fail(Code.SEQUENCE_KEY, "PARTITION BY of a SEQ takes only columns", node, hint)


def _column_of(step: Reading, node: exp.Column) -> str:
    """The name of a column of one step."""
    found = Scope((step.item,)).find(node)
    if found is None:
        hint = f"write PARTITION BY {step.item.name}.… = …, with a column of each step"
        fail(Code.SEQUENCE_KEY, f"step {step.item.name} has no column {node.name!r}", node, hint)
    return found


def _one_each(columns: list[exp.Column], steps: list[Reading], node: exp.Expr) -> list[str]:
    """The column of each step in a key such as `x.a = y.b`, which must name each step once."""
    names = [step.item.name.lower() for step in steps]
    by_step = {each.args["table"].name.lower(): each for each in columns if each.args.get("table")}
    if sorted(by_step) != sorted(names) or len(columns) != len(steps):
        hint = " = ".join(f"{step.item.name}.…" for step in steps)
        fail(
            Code.SEQUENCE_KEY,
            "PARTITION BY must name one column of each step",
            node,
            f"write PARTITION BY {hint}",
        )
    return [_column_of(step, by_step[name]) for step, name in zip(steps, names, strict=True)]


def _add_key(steps: list[Reading], names: list[str], node: exp.Expr) -> None:
    """Add a key to each step, cast to the common type."""
    types = [step.schema.field(name).type for step, name in zip(steps, names, strict=True)]
    common = types[0]
    for of in types[1:]:
        both = common if common == of else common_type(common, of)
        if both is None:
            shown = f"{sql_name(common)} and {sql_name(of)}"
            fail(
                Code.SEQUENCE_KEY,
                f"cannot partition by {shown} together",
                node,
                "use columns of the same type, or write a CAST",
            )
        common = both
    for step, name, of in zip(steps, names, types, strict=True):
        column = Column(name)
        step.keys.append(column if of == common else Cast(column, common))


# -------------------------------------------------------------------------------------------- conditions


def _place_conditions(
    steps: list[Reading], clause: SequenceClause, where: exp.Expr | None, node: exp.Select
) -> None:
    """Give each condition of WHERE to the step that checks it."""
    scope = SequenceScope((), steps=tuple(step.names(step.rows() + step.told()) for step in steps))
    owner = {c.internal: i for i, step in enumerate(scope.steps) for c in step.columns}
    folds = {call.name for step in steps for call, _ in step.folds.values()}
    for each in conjuncts(Resolver(scope, "WHERE"), where):
        read = each.columns()
        rows, runs = {owner[name] for name in read - folds}, {owner[name] for name in read & folds}
        condition = Condition(each, rows, runs, where or node)
        if clause.pattern is None:
            _place(steps, clause, condition)
        else:
            place_in_pattern(steps, clause.pattern, condition)


def _place(steps: list[Reading], clause: SequenceClause, condition: Condition) -> None:
    """Give a condition to the step that it filters, or to the last of the steps that it compares."""
    rows, read = condition.rows, condition.rows | condition.runs
    kinds = {steps[i].kind for i in rows}
    if len(read) == 1 and not condition.runs and (clause.mode != "CONSECUTIVE" or StepKind.MISSING in kinds):
        steps[read.pop()].own.append(condition.expression)
        return
    if StepKind.REPEATED in kinds:
        name = steps[0].item.name
        hint = f"write first({name}.…) or last({name}.…)"
        fail(Code.SEQUENCE_CONDITION, f"{name} matches several rows", condition.place, hint)
    last = max(read, default=len(steps) - 1)
    if last == 0:
        last = next(i for i in range(1, len(steps)) if steps[i].kind is not StepKind.MISSING)
    missing = [i for i in rows if steps[i].kind is StepKind.MISSING]
    if missing and (missing != [last] or condition.runs or clause.mode == "CONSECUTIVE"):
        hint = "filter it in a subquery, or compare it only with steps before it that are not repeated"
        name = steps[missing[0]].item.name
        fail(
            Code.SEQUENCE_CONDITION,
            f"the NOT step {name} cannot be compared like this",
            condition.place,
            hint,
        )
    steps[last].conditions.append(condition.expression)


# -------------------------------------------------------------------------------------------------- plan


def _plan(clause: SequenceClause, steps: list[Reading], place: Seq) -> Relation:
    """The `Sequence` of all steps, or the `Match` of a pattern of them."""
    per_second = steps[0].item.input.ticks_per_second
    within = None if clause.within is None else ticks(clause.within, per_second)
    if clause.pattern is not None:
        return Relation(pattern_plan(steps, clause.pattern, clause.mode, within, place), per_second)
    streams, specs = zip(*(_step(step) for step in steps), strict=True)
    plan = Sequence(streams, specs, Mode(clause.mode.lower()), within, clause.strict)
    return Relation(plan, per_second)


def _step(step: Reading) -> tuple[Plan, Step]:
    """The rows of a step under internal names, and its specification."""
    back = {named.internal: named.column for named in step.rows()}
    kept = selected(step.item.input.plan, [each.rename(back) for each in step.own])
    columns: list[tuple[str, Expression]] = [(n.internal, Column(n.column)) for n in step.rows()]
    keys = []
    for i, key in enumerate(step.keys):
        name = step.internal(key.name) if isinstance(key, Column) else step.internal(f"key {i}")
        keys.append(name)
        if not isinstance(key, Column):
            columns.append((name, key))
    folds = tuple(call for call, _ in step.folds.values())
    return Project(kept, tuple(columns)), Step(tuple(keys), step.kind, conjunction(step.conditions), folds)


def _scope(relation: Relation, node: Seq, steps: list[Reading], sizes: set[str]) -> Scope:
    """What SELECT sees: the columns of single steps, and the aggregates of repeated ones."""
    visible = {StepKind.ONCE: Reading.rows, StepKind.REPEATED: Reading.told}
    names = tuple(step.names(visible[step.kind](step) if step.kind in visible else ()) for step in steps)
    plain = SequenceScope((Item("SEQ(…)", "", relation, None),), steps=names)
    item = Item("SEQ(…)", "", relation, _window(node, relation, plain))
    return SequenceScope((telling(item, sizes),), steps=names)


def _window(node: Seq, relation: Relation, scope: Scope) -> WindowSpec | None:
    """The window on the whole sequence, if there is one."""
    clause = node.meta.get(WINDOW)
    if clause is None:
        return None
    return specification(clause, relation.ticks_per_second, lambda key: scope.find(key) or scope.unknown(key))
