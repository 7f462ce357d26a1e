"""Where ISTREAM remembers nothing, no row comes as an equal one goes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace import Engine, StreamDef, TimeKind, query
from headrace.errors import GraphError
from headrace.expressions import col, lit
from headrace.operators.streams import ComingsOperator
from headrace.plan.analysis.istream_state import beginning, never_cancels
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    IStream,
    Join,
    Plan,
    Project,
    Select,
    Source,
    Table,
    Union,
    Window,
)
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded, WindowSpec
from headrace.plan.rewrite import optimize
from tests.laws import effort
from tests.plan.rewriting import assert_optimised_alike
from tests.strategies.plans import Case

INT = pa.int64()
S, R, LOOSE = (
    Source("s", pa.schema([("t", INT), ("k", INT)]), stamp="t"),
    Source("r", pa.schema([("u", INT), ("j", INT)]), stamp="u"),
    Source("l", pa.schema([("u", INT), ("j", INT)])),
)
SIDE = Table("d", pa.schema([("id", INT), ("tax", INT)]))


def kept(plan: Plan, *names: str) -> Plan:
    return Project(plan, tuple((name, col(name)) for name in names))


def window(plan: Plan = S, size: int = 3) -> Plan:
    return Window(plan, Range(size))


TELLING = {
    "range": (window(), {"t"}),
    "slide": (Window(S, Sliding(6, 2)), {"t"}),
    "now": (Window(S, Now()), {"t"}),
    "renamed": (Window(Project(Select(S, col("k") > 1), (("x", col("t")),)), Range(3)), {"x"}),
    "join": (Join(window(), window(R), ("k",), ("j",)), {"t", "u"}),
    "table": (Join(window(), SIDE, ("k",), ("id",)), {"t"}),
    "again": (Window(IStream(window()), Range(2)), {"t"}),
    "union": (Window(Union((S, R)), Range(3)), {"t"}),
    "deep union": (Window(kept(Union((Union((S, R)), Select(S, col("k") > 1))), "t"), Range(3)), {"t"}),
}
SILENT = {
    "left out": kept(window(), "k"),
    "computed": Project(window(), (("t", col("t") + lit(0, INT)), ("k", col("k")))),
    "half a join": kept(Join(window(), window(R), ("k",), ("j",)), "t", "k"),
    "unknown": window(LOOSE),
    "half unknown": Join(window(), window(LOOSE), ("k",), ("j",)),
    "rows": Window(S, Rows(2)),
    "other column": Window(Union((S, Project(R, (("j", col("j")), ("u", col("u")))))), Range(3)),
    "relations": Union((window(), window(R, 5))),
    "late": Window(
        Union((S, Project(IStream(Window(R, Sliding(6, 2))), (("u", col("u")), ("j", col("j")))))), Range(3)
    ),
    "aggregate": Aggregate(window(), ("t",), (AggregateCall("n", "count"),)),
}


@pytest.mark.parametrize("name", TELLING)
def test_columns_tell_when_a_row_begins(name: str) -> None:
    plan, columns = TELLING[name]
    assert beginning(plan) == frozenset(columns)
    assert optimize(IStream(plan)) == IStream(optimize(plan), nets=False)


@pytest.mark.parametrize("name", SILENT)
def test_columns_do_not_tell(name: str) -> None:
    assert beginning(SILENT[name]) is None
    assert not never_cancels(SILENT[name])


def test_what_only_grows_never_cancels() -> None:
    growing = Window(LOOSE, Unbounded())
    assert never_cancels(Join(kept(growing, "j"), SIDE, ("j",), ("id",)))
    assert never_cancels(Distinct(kept(growing, "j")))
    assert not never_cancels(Distinct(window(LOOSE)))


# --------------------------------------------------------------------------------------- random plans


@st.composite
def relations(draw: st.DrawFn) -> Plan:
    """A window or a join of two, with the times or without."""
    specs: st.SearchStrategy[WindowSpec] = st.sampled_from(
        [Range(1), Range(2), Range(3), Sliding(2, 1), Sliding(4, 2), Now(), Rows(1)]
    )
    stream = draw(st.sampled_from([S, Union((S, S)), Union((S, R)), IStream(Window(S, Range(2)))]))
    left = Window(Select(stream, col("k") >= 0), draw(specs))
    if draw(st.booleans()):
        return left
    return Join(left, Window(draw(st.sampled_from([R, LOOSE])), draw(specs)), ("k",), ("j",))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    relation = draw(relations())
    names = draw(st.lists(st.sampled_from(relation.schema.names), unique=True, min_size=1))
    rows = {name: draw(drawn(Source(name, pa.schema([(t, INT), (k, INT)])), t)) for name, t, k in SCHEMAS}
    return Case(IStream(kept(relation, *names)), rows)


SCHEMAS = (("s", "t", "k"), ("r", "u", "j"), ("l", "u", "j"))


@st.composite
def drawn(draw: st.DrawFn, source: Source, stamp: str) -> list[tuple[int, dict[str, int]]]:
    """Rows of few times and keys, so that equal ones come and go at one instant."""
    (key,) = set(source.schema.names) - {stamp}
    found = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.integers(0, 2)), max_size=12))
    told = [(time, {stamp: time if source.name != "l" else u, key: k}) for time, k, u in found]
    return sorted(told, key=lambda each: each[0])


@effort(4, "few of the plans cancel anything")
@given(st.data())
def test_the_answer_is_that_of_the_oracle(data: st.DataObject) -> None:
    plan = assert_optimised_alike(data, data.draw(cases()))
    assert isinstance(plan, IStream)
    event(f"nets: {plan.nets}")


# ------------------------------------------------------------------------------------- times and columns


def ticking(name: str = "a", column: str | None = "t") -> StreamDef:
    return StreamDef(name, pa.schema([("t", INT), ("k", INT)]), time_column=column, ticks_per_second=None)


def batch(t: list[int | None], k: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"t": t, "k": k}, schema=ticking().schema)


def test_the_operator_holds_nothing_and_says_so() -> None:
    asked = query("SELECT t, k FROM a [RANGE 10]", [ticking()], name="q", ticks_per_second=None)
    assert "no row is replaced by an equal one" in str(asked.explain())
    engine = Engine()
    engine.add("q", asked)
    engine.push("a", batch([1, 2, 2], [7, 7, 7]), [1, 2, 2])
    engine.streams.end("a")
    assert sum(len(each) for each in engine.drain()) == 3
    operators = [node.operator for node in engine.graph.nodes]
    assert any(isinstance(each, ComingsOperator) for each in operators)
    assert sum(each.memory.bytes() for each in operators) == 0


def test_a_row_whose_time_is_not_that_of_its_column_is_rejected() -> None:
    engine = Engine()
    engine.add("q", query("SELECT t, k FROM a [RANGE 10]", [ticking()], ticks_per_second=None))
    engine.push("a", batch([1, 5, None, 4], [1, 2, 3, 4]), [1, 2, 3, 4])
    engine.streams.end("a")
    assert [row["k"] for each in engine.drain() for row in each.data.to_pylist()] == [1, 4]
    (rejected,) = engine.drain_rejected()
    assert rejected.code == "HR-R004"
    assert rejected.rows is not None
    assert rejected.rows.column("k").to_pylist() == [2, 3]
    source = engine.graph.sources["a"].admission
    assert (source.rows_in, source.rows_rejected) == (4, 2)


def test_a_stream_is_held_to_its_column_by_the_query_that_says_so() -> None:
    engine = Engine()
    engine.add("p", query("SELECT k FROM a [RANGE 10]", [ticking(column=None)], ticks_per_second=None))
    engine.push("a", batch([9], [1]), [1])
    engine.add("q", query("SELECT t, k FROM a [RANGE 10]", [ticking()], ticks_per_second=None))
    engine.push("a", batch([9], [2]), [2])
    assert [each.code for each in engine.drain_rejected()] == ["HR-R004"]
    with pytest.raises(GraphError, match="HR-G001"):
        engine.add("r", query("SELECT t, k FROM a [RANGE 10]", [ticking(column="k")], ticks_per_second=None))


@pytest.mark.parametrize(
    ("of", "ticks", "kind", "stamped"),
    [
        (pa.timestamp("us"), 1_000_000, TimeKind.EXTERNAL, True),
        (pa.timestamp("us", "UTC"), 1_000_000, TimeKind.EXTERNAL, True),
        (INT, None, TimeKind.EXTERNAL, True),
        (INT, 1_000_000, TimeKind.EXTERNAL, False),
        (pa.timestamp("ms"), 1_000_000, TimeKind.EXTERNAL, False),
        (pa.timestamp("us"), 1_000, TimeKind.EXTERNAL, False),
        (pa.timestamp("us"), 1_000_000, TimeKind.INTERNAL, False),
    ],
)
def test_only_a_column_of_ticks_is_a_stamp(
    of: pa.DataType, ticks: int | None, kind: TimeKind, stamped: bool
) -> None:
    defined = StreamDef("a", pa.schema([("t", of)]), kind, "t", ticks)
    assert defined.source.stamp == ("t" if stamped else None)


def test_timestamps_are_compared_as_ticks() -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    engine = Engine()
    engine.add("q", query("SELECT t FROM a [RANGE 1 SECOND]", [StreamDef("a", schema, time_column="t")]))
    column = pa.array(np.array([1, 2, 3], np.int64)).cast(schema.field("t").type)
    engine.push("a", pa.RecordBatch.from_arrays([column], schema=schema), [1, 2, 4])
    engine.streams.end("a")
    assert sum(len(each) for each in engine.drain()) == 2
    assert [each.code for each in engine.drain_rejected()] == ["HR-R004"]
