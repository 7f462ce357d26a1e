"""The keys by which streams can be partitioned, so that each shard runs the whole plan on its own rows.

The law: with the keys that `partition` returns, the union of the shards' results is the result of the plan,
for any number of shards. A test splits random data by these keys and compares with the oracle.

The search goes from the top down. A node is asked either to put each row into any one shard (`key` is None),
or to put it into the shard that `key`, expressions over its columns, determines. Rows that meet (groups,
joins, row windows) must be in one shard: the key may only use the columns by which they meet. A table is in
every shard, so a join with a table needs nothing. Where equal rows cancel (DISTINCT, EXCEPT, ISTREAM,
DSTREAM) the key must be a function of the content, or a row that leaves in one shard would not cancel an
equal row that enters in another. `headrace.plan.analysis.candidate_keys` suggests keys to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions import Coalesce, Column, Expression, lit
from headrace.expressions.substitution import is_movable, respects_equality, substitute
from headrace.plan.analysis.candidate_keys import Key, candidate_keys, join_keys, read, renaming, row_window
from headrace.plan.analysis.istream_state import never_cancels
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.sequence import Sequence as SequencePlan
from headrace.plan.nodes.sequence import StepKind
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.trees import is_static
from headrace.plan.nodes.unnest import Unnest
from headrace.schema import Schema

Keys = dict[str, Key]
"""By stream, the expressions over its columns that determine the shard; if empty, any shard is right."""

MOST_WAYS: Final = 100


@dataclass(frozen=True)
class Partitioning:
    """How to partition the streams, or why it is impossible.

    `keys`: by stream, the expressions whose values, hashed together, determine the shard of a row. If two
    streams meet, their expressions are in the same order and have the same types: integers as int64, floats
    as float64 without negative zero. An empty tuple means any shard. Tables are not partitioned: every shard
    has all their rows.
    """

    keys: Mapping[str, Key] | None
    reason: str = ""
    hint: str = ""

    @property
    def anything(self) -> bool:
        """Whether any partitioning is right, because no two rows ever meet."""
        return self.keys is not None and not any(self.keys.values())

    def __str__(self) -> str:
        if self.keys is None:
            return f"one shard: {self.reason}" + (f" ({self.hint})" if self.hint else "")
        named = [f"{name} by {', '.join(map(str, key)) or 'anything'}" for name, key in self.keys.items()]
        return ", ".join(named)


@dataclass(frozen=True)
class Refusal:
    """Why a node cannot be partitioned. `needs_all`: by no key at all, not only by the one that was tried."""

    reason: str
    hint: str = ""
    needs_all: bool = False


@dataclass
class Search:
    """One attempt to partition a plan, and the reasons why it failed."""

    refusals: list[Refusal] = field(default_factory=list)

    def refuse(self, reason: str, hint: str = "", needs_all: bool = False) -> Iterator[Keys]:
        """Note why this does not work; returns no ways."""
        self.refusals.append(Refusal(reason, hint, needs_all))
        return iter(())

    def ways(self, plan: Plan, key: Key | None) -> Iterator[Keys]:
        """Every way to partition the streams such that the rows of `plan` are in the shards of `key`."""
        rule = PLACES.get(type(plan))
        if rule is None:
            return self.refuse(f"{type(plan).__name__} is not known to run apart", "", True)
        if key is not None and not all(map(is_movable, key)):
            return self.refuse("a function of the user decides the key", "partition by a column")
        return rule(self, plan, key)

    @property
    def why_not(self) -> Refusal:
        """The reason to show: preferably one that rules out every key."""
        hard = [each for each in self.refusals if each.needs_all]
        return (hard or self.refusals)[0]


def partition(plan: Plan) -> Partitioning:
    """The first way to partition the streams of `plan`; keys with more columns come first."""
    search = Search()
    found = next(search.ways(plan, None), None)
    if found is None:
        return Partitioning(None, search.why_not.reason, search.why_not.hint)
    return Partitioning(found)


def ways(plan: Plan) -> Iterator[Keys]:
    """Every way to partition the streams of `plan`; keys with more columns come first."""
    return Search().ways(plan, None)


# ---------------------------------------------------------------------------------------- rows one by one


def _source(search: Search, plan: nodes.Source, key: Key | None) -> Iterator[Keys]:
    """The key must depend on a column, or all rows would go to one shard."""
    if key is None:
        return iter([{plan.name: ()}])
    if not any(each.columns() for each in key):
        return search.refuse(f"the key of {plan.name} is the same for all rows", "group by a column")
    return iter([{plan.name: tuple(_comparable(each, plan.schema) for each in key)}])


def _comparable(key: Expression, schema: Schema) -> Expression:
    """The same value for any width of the column, and for both zeros."""
    of = key.type(schema)
    if pt.is_floating(of):
        return (key if of == pa.float64() else key.cast(pa.float64())) + lit(0.0, pa.float64())
    return key.cast(pa.int64()) if pt.is_integer(of) and of not in WIDE else key


WIDE: Final = (pa.int64(), pa.uint64())


def _same(search: Search, plan: nodes.Unary, key: Key | None) -> Iterator[Keys]:
    return search.ways(plan.input, key)


def _project(search: Search, plan: nodes.Project, key: Key | None) -> Iterator[Keys]:
    """The key in terms of the columns below the projection."""
    columns = dict(plan.columns)
    return search.ways(plan.input, None if key is None else tuple(substitute(e, columns) for e in key))


def _union(search: Search, plan: nodes.Union, key: Key | None) -> Iterator[Keys]:
    """The key under the column names of each branch."""
    keys = [None if key is None else _renamed(key, plan.schema, b.schema) for b in plan.branches]
    return _together(search, plan.branches, keys)


def _renamed(key: Key, names: Schema, to: Schema) -> Key:
    """The key under the column names of another schema with the same columns."""
    return tuple(each.rename(renaming(names, to)) for each in key)


def _together(search: Search, plans: Sequence[Plan], keys: Sequence[Key | None]) -> Iterator[Keys]:
    """Every way that suits all plans: a stream that two of them read is partitioned once."""
    if not plans:
        yield {}
        return
    for first in islice(search.ways(plans[0], keys[0]), MOST_WAYS):
        for rest in islice(_together(search, plans[1:], keys[1:]), MOST_WAYS):
            clash = [name for name in first.keys() & rest if first[name] != rest[name]]
            real = [name for name in clash if first[name] and rest[name]]
            if not real:
                yield {**first, **rest, **{name: first[name] or rest[name] for name in clash}}
                continue
            name = min(real)
            one, other = (" and ".join(map(str, each[name])) for each in (first, rest))
            search.refuse(f"{name} would have to be divided by {one} and by {other} at once")


# -------------------------------------------------------------------------------------- rows that meet


def _told(search: Search, plan: nodes.Window | nodes.Granularity, key: Key | None) -> Iterator[Keys]:
    """A key cannot use a quality column, which is known only inside the shard."""
    if key is not None and any(plan.quality_column in each.columns() for each in key):
        return search.refuse(f"the quality of a row, {plan.quality_column}, cannot decide where it goes")
    return search.ways(plan.input, key)


def _window(search: Search, plan: nodes.Window, key: Key | None) -> Iterator[Keys]:
    """A time window allows every key; a row window only keys made of its partition columns."""
    spec = row_window(plan)
    if spec is None:
        return _told(search, plan, key)
    if not spec.keys:
        hint = f"write [PARTITION BY … ROWS {spec.count}] if each key may have its own rows"
        return search.refuse(f"[ROWS {spec.count}] takes the newest rows of all", hint, True)
    return _by(search, plan, key, spec.keys, f"[PARTITION BY {', '.join(spec.keys)} ROWS {spec.count}]")


def _aggregate(search: Search, plan: nodes.Aggregate, key: Key | None) -> Iterator[Keys]:
    """Keys made of the grouping columns."""
    names = ", ".join(map(str, plan.calls))
    if not plan.keys:
        hint = "add GROUP BY, or aggregate by a key first and the results then"
        return search.refuse(f"{names} is taken of all rows", hint, True)
    return _by(search, plan, key, plan.keys, f"{names} by {', '.join(plan.keys)}")


def _session(search: Search, plan: SessionAggregate, key: Key | None) -> Iterator[Keys]:
    """Keys made of the columns that sessions are divided by."""
    if not plan.partition_keys:
        hint = "make sessions by a key: [PARTITION BY k SESSION …]"
        return search.refuse("sessions are of all rows", hint, True)
    names = ", ".join(plan.partition_keys)
    return _by(search, plan, key, plan.partition_keys, f"sessions by {names}")


def _top_n(search: Search, plan: TopN, key: Key | None) -> Iterator[Keys]:
    if not plan.keys:
        hint = "write PARTITION BY if each key may have its own first rows"
        return search.refuse(f"the first {plan.count} rows are those of all", hint, True)
    return _by(search, plan, key, plan.keys, f"the first {plan.count} of each {', '.join(plan.keys)}")


def _lag(search: Search, plan: Lag, key: Key | None) -> Iterator[Keys]:
    if not plan.keys:
        hint = "write PARTITION BY if each key may look back among its own rows"
        return search.refuse("LAG looks back among all rows", hint, True)
    return _by(search, plan, key, plan.keys, f"LAG of each {', '.join(plan.keys)}")


def _match(search: Search, plan: Match, key: Key | None) -> Iterator[Keys]:
    if not plan.keys:
        hint = "write PARTITION BY if each key may have matches of its own rows"
        return search.refuse("MATCH_RECOGNIZE looks for matches among all rows", hint, True)
    return _by(search, plan, key, plan.keys, f"matches of each {', '.join(plan.keys)}")


def _over(search: Search, plan: Over, key: Key | None) -> Iterator[Keys]:
    names = ", ".join(map(str, plan.calls))
    if not plan.keys:
        hint = "write PARTITION BY if each key may have frames of its own rows"
        return search.refuse(f"the frame of {names} has rows of all keys", hint, True)
    return _by(search, plan, key, plan.keys, f"{names} of each {', '.join(plan.keys)}")


def _distinct_on(search: Search, plan: DistinctOn, key: Key | None) -> Iterator[Keys]:
    if not plan.keys:
        return search.refuse("DISTINCT ON () takes the first of all rows", "name a key", True)
    return _by(search, plan, key, plan.keys, f"the first row of each {', '.join(plan.keys)}")


def _read(key: Key | None) -> frozenset[str]:
    """The columns that a key reads."""
    return frozenset(name for each in key or () for name in each.columns())


def _unnest(search: Search, plan: Unnest, key: Key | None) -> Iterator[Keys]:
    """Keys of the row: what is in its array is known only in the shard."""
    known = set(plan.input.schema.names)
    made = ", ".join(name for name in plan.schema.names if name not in known and name in _read(key))
    if made:
        hint = "on Spark, explode the array before you pass the stream"
        return search.refuse(f"the elements of an array, {made}, cannot decide where a row goes", hint)
    return search.ways(plan.input, key)


def _by(
    search: Search, plan: nodes.Unary, key: Key | None, allowed: Sequence[str], what: str
) -> Iterator[Keys]:
    """Rows that are equal on `allowed` meet, so keys that use only these columns keep them together."""
    if key is None:
        return _offered(search, plan, what)
    if not _made_of(key, set(allowed), plan.input.schema):
        return search.refuse(f"{what} cannot be divided by {', '.join(map(str, key))}")
    return search.ways(plan.input, key)


def _made_of(key: Key, allowed: set[str], schema: Schema) -> bool:
    """True if the key uses only allowed columns and gives equal values for equal rows."""
    return all(each.columns() <= allowed and respects_equality(each, schema) for each in key)


def _offered(search: Search, plan: Plan, what: str, hint: str = "") -> Iterator[Keys]:
    """Every way with a key that the plan itself suggests."""
    tried = False
    for key in candidate_keys(plan):
        tried = True
        yield from search.ways(plan, key)
    if not tried:
        for below in plan.inputs:
            if next(search.ways(below, None), None) is None:
                return
        search.refuse(f"{what} needs all rows in one place", hint, True)


def _join(search: Search, plan: nodes.Pairing, key: Key | None) -> Iterator[Keys]:
    """Keys made of the join columns, on both sides in the same types."""
    static = [is_static(each) for each in plan.inputs]
    if any(static):
        return _beside_table(search, plan, key, static.index(True))
    if not plan.left_keys:
        hint = "join on an equality of columns"
        return search.refuse("a join without an equality pairs every row with every other", hint, True)
    if key is None:
        return _offered(search, plan, "a join")
    to_left = dict(zip(plan.right_keys, plan.left_keys, strict=True))
    left = tuple(each.rename(to_left) for each in key)
    if not _made_of(left, set(plan.left_keys), plan.left.schema):
        pairs = " and ".join(map(str, plan.equalities))
        return search.refuse(f"the join on {pairs} cannot be divided by {', '.join(map(str, key))}")
    to_right = dict(zip(reversed(plan.left_keys), reversed(plan.right_keys), strict=True))
    right = tuple(each.rename(to_right) for each in left)
    if not all(_agree(a, b, plan) for a, b in zip(left, right, strict=True)):
        return search.refuse("the key is computed in different types on the two sides of a join")
    return _together(search, plan.inputs, (left, right))


def _outer_join(search: Search, plan: OuterJoin, key: Key | None) -> Iterator[Keys]:
    """As for a join, but a row without a partner is in the shard of its own key, where its nulls are not."""
    if any(map(is_static, plan.lasting)):
        reason = "a table is in every shard, and its rows without a partner would be answered by each"
        return search.refuse(reason, "put the stream on the side whose rows are kept", True)
    if plan.kind is JoinKind.FULL:
        if key is not None:
            merged = tuple(_merged(plan, each) for each in key)
            if plan.left_keys and all(merged):
                return _join(search, plan, tuple(Column(each) for each in merged if each))
            names = ", ".join(map(str, key))
            return search.refuse(f"rows without a partner have nulls, and cannot be divided by {names}")
        if plan.left_keys:
            return chain.from_iterable(_join(search, plan, each) for each in join_keys(plan) if each)
    if key is not None and not read(key) <= set(plan.left.schema.names):
        names = ", ".join(map(str, key))
        return search.refuse(f"rows without a partner have nulls in {names}, which cannot divide them")
    return _join(search, plan, key)


def _merged(plan: OuterJoin, key: Expression) -> str | None:
    """The left column of `coalesce(left, right)` over a pair of join columns, which every answer knows."""
    if not isinstance(key, Coalesce) or len(key.operands) != 2:
        return None
    pairs = zip(plan.left_keys, plan.right_keys, strict=True)
    found = (a for a, b in pairs if {*key.operands} == {Column(a), Column(b)})
    return next(found, None)


def _beside_table(search: Search, plan: nodes.Pairing, key: Key | None, table: int) -> Iterator[Keys]:
    """Every shard has all rows of the table, so each row of the stream finds its matches in any shard."""
    stream, keys = plan.inputs[1 - table], (plan.left_keys, plan.right_keys)
    if key is not None:
        key = tuple(each.rename(dict(zip(keys[table], keys[1 - table], strict=True))) for each in key)
        if not _made_of(key, set(stream.schema.names), stream.schema):
            return search.refuse(f"a column of a table decides nothing: {', '.join(map(str, key))}")
    return search.ways(stream, key)


def _table(search: Search, plan: nodes.Table, key: Key | None) -> Iterator[Keys]:
    """Refused: every shard would answer the rows of the table again."""
    reason = f"the table {plan.name} is in every shard, and its rows would be answered by each"
    return search.refuse(reason, "join it with a stream", True)


def _agree(left: Expression, right: Expression, plan: nodes.Pairing) -> bool:
    """Whether both sides compute the same for equal keys; plain columns are made comparable at the source."""
    if isinstance(left, Column):
        return True
    pairs = zip(plan.left_keys, plan.right_keys, strict=True)
    read = [(a, b) for a, b in pairs if a in left.columns()]
    return all(plan.left.schema.field(a).type == plan.right.schema.field(b).type for a, b in read)


def _sequence(search: Search, plan: SequencePlan, key: Key | None) -> Iterator[Keys]:
    """A row extends matches of its partition, so keys may use the partition columns of any bound step."""
    first = plan.steps[0].keys
    if not first:
        return search.refuse("a sequence without PARTITION BY takes all rows in order", "partition it", True)
    if key is None:
        return _offered(search, plan, "a sequence")
    bound = [step for step in plan.steps if step.kind is StepKind.ONCE]
    to_first = {name: one for step in bound for name, one in zip(step.keys, first, strict=True)}
    renamed = tuple(each.rename(to_first) for each in key)
    known = frozenset(to_first).issuperset(frozenset().union(*(each.columns() for each in key)))
    if not known or not _made_of(renamed, set(first), plan.streams[0].schema):
        columns = ", ".join(first)
        return search.refuse(f"a sequence by {columns} cannot be divided by {', '.join(map(str, key))}")
    places = [dict(zip(reversed(first), reversed(step.keys), strict=True)) for step in plan.steps]
    return _together(search, plan.streams, [tuple(e.rename(p) for e in renamed) for p in places])


# ------------------------------------------------------------------------------------ equals that cancel


def _content(search: Search, plan: nodes.Unary, key: Key | None) -> Iterator[Keys]:
    """Keys made of the columns, for nodes that compare whole rows."""
    what = CONTENT[type(plan)]
    if key is None:
        hint = "list the columns that rows are grouped or joined by in SELECT"
        return _offered(search, plan, f"{what} compares whole rows, none of whose columns is a key: it", hint)
    if not _made_of(key, set(plan.schema.names), plan.schema):
        return search.refuse(f"{what} cannot be divided by {', '.join(map(str, key))}")
    return search.ways(plan.input, key)


CONTENT: Final[dict[type[Plan], str]] = {
    nodes.Distinct: "DISTINCT",
    nodes.IStream: "ISTREAM",
    nodes.DStream: "DSTREAM",
}


def _istream(search: Search, plan: nodes.IStream, key: Key | None) -> Iterator[Keys]:
    """If no rows cancel, rows are not compared."""
    free = not plan.nets or never_cancels(plan.input)
    return search.ways(plan.input, key) if free else _content(search, plan, key)


def _changelog(search: Search, plan: Changelog, key: Key | None) -> Iterator[Keys]:
    """Keys made of its own keys: the old and the new row of one must meet. Without any, of the whole row."""
    return _by(search, plan, key, plan.keys or plan.input.schema.names, "CHANGELOG")


def _except(search: Search, plan: nodes.Except, key: Key | None) -> Iterator[Keys]:
    """Keys made of the columns of both sides; a static right side is in every shard."""
    if key is None:
        return _offered(search, plan, "EXCEPT compares whole rows: it")
    if not _made_of(key, set(plan.schema.names), plan.schema):
        return search.refuse(f"EXCEPT cannot be divided by {', '.join(map(str, key))}")
    if is_static(plan.right):
        return search.ways(plan.left, key)
    return _together(search, plan.inputs, (key, _renamed(key, plan.schema, plan.right.schema)))


PLACES: Final[dict[type[Plan], Callable[[Search, Any, Key | None], Iterator[Keys]]]] = {
    nodes.Source: _source,
    nodes.Inlet: _source,
    nodes.Table: _table,
    nodes.Select: _same,
    nodes.Project: _project,
    nodes.Union: _union,
    nodes.Window: _window,
    nodes.Granularity: _told,
    nodes.Join: _join,
    OuterJoin: _outer_join,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _aggregate,
    SessionAggregate: _session,
    nodes.Distinct: _content,
    TopN: _top_n,
    Lag: _lag,
    Match: _match,
    Over: _over,
    DistinctOn: _distinct_on,
    Unnest: _unnest,
    nodes.Except: _except,
    nodes.IStream: _istream,
    nodes.DStream: _content,
    nodes.RStream: _same,
    Changelog: _changelog,
    SequencePlan: _sequence,
}
