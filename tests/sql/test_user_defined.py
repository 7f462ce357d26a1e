"""User-defined aggregates and functions in queries: found by name, carried by the plan."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace
from headrace.builder import aggregate, col, fn
from headrace.errors import HeadraceError, PlanError, SqlError, UserCodeError
from headrace.expressions import FUNCTIONS
from headrace.plan.analysis.native import native_parts
from headrace.plan.nodes.core import Aggregate, Select, Source
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.sql import Catalog, query
from headrace.sql.definitions import GLOBAL
from tests.sql.running import STREAMS, answer
from tests.strategies.user_aggregates import Digits, Median, Mixed, TwoLargest, Unknown

BIDS = [(0, 1, 4.0), (1, 1, None), (2, 2, 9.0), (3, 1, 6.0), (7, 1, 1.0), (8, 2, 3.0)]


class Middle:
    """The median of doubles."""

    arguments = (pa.float64(),)
    result = pa.float64()

    def initialize(self) -> list[float]:
        return []

    def iterate(self, state: list[float], values: pa.Array) -> list[float]:
        return state + values.to_pylist()

    def terminate(self, state: list[float]) -> float:
        return float(np.median(state))


class Quantile:
    """A definition with a parameter: the object is what is registered."""

    arguments = ("double",)
    result = "double"

    def __init__(self, at: float) -> None:
        self.at = at

    def initialize(self) -> list[float]:
        return []

    def iterate(self, state: list[float], values: pa.Array) -> list[float]:
        return state + values.to_pylist()

    def merge(self, state: list[float], later: list[float]) -> list[float]:
        return state + later

    def terminate(self, state: list[float]) -> Any:
        return np.quantile(state, self.at, method="lower")


class Values:
    """A list of what there is: the type of the result follows from the argument's."""

    arguments = (None,)
    ordered = True

    @staticmethod
    def result(of: pa.DataType) -> pa.DataType:
        return pa.list_(of)

    def initialize(self) -> list[Any]:
        return []

    def iterate(self, state: list[Any], values: pa.Array) -> list[Any]:
        state += values.to_pylist()
        return state

    def terminate(self, state: list[Any]) -> list[Any]:
        return state


def distance(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.abs(pc.subtract(left, right))


@pytest.fixture
def catalog() -> Catalog:
    known = Catalog(STREAMS, ticks_per_second=None)
    known.register_aggregate("median", Middle)
    known.register_aggregate("most", Quantile(1.0))
    known.register_aggregate("mixed", Mixed)
    known.register_aggregate("two_largest", TwoLargest)
    known.register_aggregate("unknown", Unknown)
    known.register_aggregate("digits", Digits)
    known.register_aggregate("all_values", Values)
    known.register_function("distance", distance, arguments=["double", "double"], result="double")
    return known


@pytest.fixture
def nothing_global() -> Iterator[None]:
    known, functions = dict(GLOBAL._known), dict(FUNCTIONS)
    yield
    GLOBAL._known.clear()
    GLOBAL._known.update(known)
    FUNCTIONS.clear()
    FUNCTIONS.update(functions)


# ------------------------------------------------------------------------------------------- aggregates


def test_over_sliding_windows(catalog: Catalog) -> None:
    text = "SELECT item, median(price) AS m, most(price) AS top FROM bids [RANGE 8 SLIDE 4] GROUP BY item"
    assert answer(text, catalog, bids=BIDS) == [
        (3, 1, 5.0, 6.0),
        (3, 2, 9.0, 9.0),
        (7, 1, 4.0, 6.0),
        (7, 2, 9.0, 9.0),
        (11, 1, 1.0, 1.0),
        (11, 2, 3.0, 3.0),
        (15, 2, 3.0, 3.0),
    ]


def test_at_every_instant(catalog: Catalog) -> None:
    text = "SELECT median(price) AS m, most(price) AS top FROM bids [RANGE 4] WHERE item = 1"
    assert answer(text, catalog, bids=BIDS) == [(0, 4.0, 4.0), (3, 5.0, 6.0), (4, 6.0, 6.0), (7, 1.0, 1.0)]


def test_over_all_rows_so_far(catalog: Catalog) -> None:
    text = "SELECT item, median(price) AS m FROM bids [UNBOUNDED] GROUP BY item"
    assert answer(text, catalog, bids=BIDS) == [
        (0, 1, 4.0),
        (2, 2, 9.0),
        (3, 1, 5.0),
        (7, 1, 4.0),
        (8, 2, 6.0),
    ]


def test_over_the_newest_rows(catalog: Catalog) -> None:
    text = "SELECT median(price) AS m FROM bids [ROWS 2]"
    assert answer(text, catalog, bids=BIDS) == [(0, 4.0), (2, 9.0), (3, 7.5), (7, 3.5), (8, 2.0)]


def test_over_sessions(catalog: Catalog) -> None:
    text = "SELECT item, median(price) AS m, window_end AS e FROM bids [SESSION 3] GROUP BY item"
    assert answer(text, catalog, bids=BIDS) == [
        (4, 2, 9.0, 5),
        (5, 1, 5.0, 6),
        (9, 1, 1.0, 10),
        (10, 2, 3.0, 11),
    ]


def test_of_several_columns_which_are_widened(catalog: Catalog) -> None:
    catalog.register_aggregate("gap", Gap)
    text = "SELECT gap(item, price) AS g, gap(price, 1) AS h FROM bids [RANGE 4 SLIDE 4]"
    assert answer(text, catalog, bids=BIDS) == [(3, 15.0, 16.0), (7, 0.0, 0.0), (11, 1.0, 2.0)]


class Gap:
    """The sum of the differences of two columns; rows can be taken away."""

    arguments = ("double", "double")
    result = "double"

    def initialize(self) -> float:
        return 0.0

    def iterate(self, state: float, left: pa.Array, right: pa.Array) -> float:
        return state + pc.sum(distance(left, right)).as_py()

    def expire(self, state: float, left: pa.Array, right: pa.Array) -> float:
        return state - pc.sum(distance(left, right)).as_py()

    def terminate(self, state: float) -> float:
        return state


def test_where_nothing_is_known_the_value_is_null(catalog: Catalog) -> None:
    rows = [(0, 1, None), (1, 1, None)]
    text = "SELECT count(*) AS n, median(price) AS m, unknown(price) AS u FROM bids [RANGE 4 SLIDE 4]"
    assert answer(text, catalog, bids=rows) == [(3, 2, None, "2 of 2")]


def test_filter_having_and_expressions(catalog: Catalog) -> None:
    text = """
        SELECT item, 2 * median(price) AS m, median(price) FILTER (WHERE price > 4) AS dear
        FROM bids [RANGE 4 SLIDE 4] GROUP BY item HAVING median(price) < 9"""
    assert answer(text, catalog, bids=BIDS) == [(3, 1, 10.0, 6.0), (7, 1, 2.0, None), (11, 2, 6.0, None)]


def test_an_aggregate_may_mind_the_order_of_rows(catalog: Catalog) -> None:
    text = "SELECT digits(item) AS d FROM bids [RANGE 4 SLIDE 2]"
    assert answer(text, catalog, bids=BIDS) == [
        (1, "1,1,"),
        (3, "1,1,2,1,"),
        (5, "2,1,"),
        (7, "1,"),
        (9, "1,2,"),
        (11, "2,"),
    ]


def test_a_result_may_be_a_list(catalog: Catalog) -> None:
    found = query("SELECT all_values(item) AS items FROM bids [RANGE 4]", catalog)
    assert found.schema.field("items").type == pa.list_(pa.int64())
    engine = headrace.Engine()
    engine.add("q", found)
    rows = pa.RecordBatch.from_pylist([{"item": i, "price": 1.0} for i in (3, 5, 5)], schema=STREAMS["bids"])
    engine.push("bids", rows, [0, 1, 2])
    engine.streams.end("bids")
    engine.run()
    answers = [row["items"] for batch in engine.drain("q") for row in batch.data.to_pylist()]
    assert answers == [[3], [3, 5], [3, 5, 5], [5, 5], [5]]


def test_in_views_subqueries_and_with(catalog: Catalog) -> None:
    headrace.declare(
        "CREATE VIEW middles AS SELECT item, median(price) AS m FROM bids [RANGE 8] GROUP BY item", catalog
    )
    text = "WITH w AS (SELECT m FROM middles) SELECT max(m) AS m FROM (SELECT m FROM w)"
    assert answer(text, catalog, bids=BIDS[:3]) == [(0, 4.0), (2, 9.0)]


def test_the_plan_carries_the_definition(catalog: Catalog) -> None:
    found = query("SELECT median(price) AS m FROM bids [RANGE 4]", catalog).plan
    (call,) = [call for node in walk(found) for call in getattr(node, "calls", ())]
    assert isinstance(call, UserCall)
    assert call.definition.definition is Middle
    copied = pickle.loads(pickle.dumps(found))
    assert copied == found
    assert hash(copied) == hash(found)


# -------------------------------------------------------------------------------------------- functions


def test_a_function_in_every_clause(catalog: Catalog) -> None:
    text = """
        SELECT distance(item, 3) AS d, sum(distance(price, item)) AS s FROM bids [RANGE 4 SLIDE 4]
        WHERE distance(price, 5) < 3.5 GROUP BY distance(item, 3) HAVING distance(count(*), 2) <= 1"""
    assert answer(text, catalog, bids=BIDS) == [(3, 2.0, 8.0), (11, 1.0, 1.0)]


def test_a_function_stays_where_it_was_written_unless_it_is_deterministic(catalog: Catalog) -> None:
    types = ["double", "double"]
    catalog.register_function("steady", distance, arguments=types, result="double", deterministic=True)
    grouped = "SELECT item, max(price) AS m FROM bids [RANGE 4] GROUP BY item"
    text = f"SELECT item, m FROM ({grouped}) WHERE {{}}(item, 1) < 1"
    assert selects_after_grouping(query(text.format("distance"), catalog).plan)
    assert not selects_after_grouping(query(text.format("steady"), catalog).plan)


def selects_after_grouping(plan: Any) -> bool:
    kinds = [type(each) for each in walk(plan)]
    return kinds.index(Select) < kinds.index(Aggregate)


@pytest.mark.parametrize("deterministic", [False, True])
def test_spark_does_not_run_a_users_function_natively(catalog: Catalog, deterministic: bool) -> None:
    catalog.register_function("mine", distance, result="double", deterministic=deterministic)
    found = query("SELECT mine(price, 1.0) AS d FROM bids", catalog)
    assert not isinstance(native_parts(found.plan).core, Source)


def test_a_function_that_raises_is_named(catalog: Catalog) -> None:
    catalog.register_function("broken", lambda v: v["nothing"], result="double")
    found = query("SELECT broken(price) AS d FROM bids", catalog)
    with pytest.raises(UserCodeError, match=r"HR-U001.*broken raised") as raised:
        run(found, [(0, 1, 1.0)])
    assert raised.value.__cause__ is not None


def run(found: Any, rows: list[tuple[Any, ...]]) -> Any:
    engine = headrace.Engine()
    engine.add("q", found)
    data = [{"item": item, "price": price} for _, item, price in rows]
    engine.push("bids", pa.RecordBatch.from_pylist(data, schema=STREAMS["bids"]), [time for time, *_ in rows])
    engine.streams.end("bids")
    engine.run()
    return engine.drain("q")


# ------------------------------------------------------------------------------------ by name, for whom


def test_a_definition_of_one_catalog_is_unknown_to_another(catalog: Catalog) -> None:
    with pytest.raises(SqlError, match="HR-Q013"):
        query("SELECT most(price) FROM bids [NOW]", Catalog(STREAMS))


def test_what_is_registered_for_all_is_known_to_all(nothing_global: None) -> None:
    headrace.register_aggregate("middle", Middle)
    headrace.register_function("apart", distance, arguments=["double", "double"], result="double")

    @headrace.register_aggregate("longest")
    class Longest(Quantile):
        def __init__(self) -> None:
            super().__init__(1.0)

    text = "SELECT Middle(price) AS m, LONGEST(apart(price, 0)) AS l FROM bids [RANGE 4 SLIDE 4]"
    assert answer(text, bids=BIDS) == [(3, 6.0, 9.0), (7, 1.0, 1.0), (11, 3.0, 3.0)]


def test_a_catalogs_own_definition_comes_first(catalog: Catalog, nothing_global: None) -> None:
    headrace.register_aggregate("median", Quantile(0.0))
    assert answer("SELECT median(price) AS m FROM bids [RANGE 4 SLIDE 4]", catalog, bids=BIDS)[0] == (3, 6.0)
    headrace.register_aggregate("median", Quantile(1.0), replace=True)
    assert answer("SELECT median(price) AS m FROM bids [RANGE 4 SLIDE 4]", bids=BIDS)[0] == (3, 9.0)


def test_the_builder_finds_the_same(catalog: Catalog) -> None:
    bids = headrace.stream("bids", catalog)
    built = (
        bids.where(fn("distance", col("price"), 0) > 1)
        .window("8", slide="4")
        .group_by("item")
        .agg(m=aggregate("median", "price"))
    )
    text = """
        SELECT item, median(price) AS m FROM bids [RANGE 8 SLIDE 4]
        WHERE distance(price, 0) > 1 GROUP BY item"""
    assert built.plan == query(text, catalog).plan


# --------------------------------------------------------------------------------------------- refusals

WRONG = {
    "too many": ("HR-Q015", "SELECT median(price, 2) FROM bids [NOW]"),
    "too few": ("HR-Q015", "SELECT mixed(item) FROM bids [NOW]"),
    "of a wrong type": ("HR-Q014", "SELECT median('x') FROM bids [NOW]"),
    "narrowed": ("HR-Q014", "SELECT two_largest(price) FROM bids [NOW]"),
    "of all columns": ("HR-Q035", "SELECT median(*) FROM bids [NOW]"),
    "of different values": ("HR-Q035", "SELECT median(DISTINCT price) FROM bids [NOW]"),
    "in WHERE": ("HR-Q033", "SELECT item FROM bids [NOW] WHERE median(price) > 1"),
    "in itself": ("HR-Q031", "SELECT median(median(price)) FROM bids [NOW]"),
    "filtered, though it is given nulls": (
        "HR-Q035",
        "SELECT unknown(item) FILTER (WHERE item > 1) FROM bids [NOW]",
    ),
    "no window": ("HR-Q030", "SELECT median(price) FROM bids"),
    "a function of too many": ("HR-Q015", "SELECT distance(1, 2, 3) FROM bids"),
    "a function of a wrong type": ("HR-Q014", "SELECT distance('x', 2) FROM bids"),
    "a grain on a function": ("HR-Q037", "SELECT distance(1, 2) [GRANULARITY 2] FROM bids [NOW]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_call_is_refused_at_its_place(catalog: Catalog, what: str) -> None:
    code, text = WRONG[what]
    with pytest.raises(SqlError) as raised:
        query(text, catalog)
    assert raised.value.code == code
    assert raised.value.line == 1


class Wordless:
    def initialize(self) -> int:
        return 0

    def iterate(self, state: int) -> int:
        return state

    def terminate(self, state: int) -> int:
        return state


@pytest.mark.parametrize(
    ("code", "name", "of"),
    [
        ("HR-Q060", "sum", Middle),
        ("HR-Q060", "Mean", Middle),
        ("HR-Q060", "upper", Middle),
        ("HR-Q060", "lag", Middle),
        ("HR-Q060", "median", Middle),
        ("HR-Q090", "select", Middle),
        ("HR-Q090", "a b", Middle),
        ("HR-Q090", "a)", Middle),
        ("HR-P030", "x", int),
        ("HR-P030", "x", Wordless),
    ],
)
def test_a_wrong_definition_is_refused_at_once(catalog: Catalog, code: str, name: str, of: type) -> None:
    with pytest.raises(HeadraceError) as raised:
        catalog.register_aggregate(name, of)
    assert raised.value.code == code


def test_a_wrong_type_in_a_definition(catalog: Catalog) -> None:
    with pytest.raises(PlanError, match=r"HR-P030.*'nonsense'"):
        catalog.register_aggregate("x", Middle, result="nonsense")
    with pytest.raises(SqlError, match="HR-Q090"):
        catalog.register_function("x", 3, result="double")  # type: ignore[arg-type]


class Breaking(Median):
    """Wrong in the method that is named."""

    arguments = ("bigint",)

    def __init__(self, method: str, how: Any) -> None:
        setattr(self, method, how)


def _raise(*_: object) -> Any:
    raise KeyError("oh")


@pytest.mark.parametrize(
    ("code", "method", "how", "said"),
    [
        ("HR-U001", "iterate", _raise, "odd.iterate raised KeyError: 'oh'"),
        ("HR-U001", "terminate", _raise, "odd.terminate raised KeyError: 'oh'"),
        ("HR-U001", "initialize", _raise, "odd.initialize raised KeyError: 'oh'"),
        ("HR-U002", "iterate", lambda state, values: None, "odd.iterate returned no state"),
        ("HR-U003", "terminate", lambda state: "text", "odd.terminate did not return a value of type int64"),
    ],
)
@pytest.mark.parametrize("window", ["[RANGE 4]", "[RANGE 4 SLIDE 2]", "[UNBOUNDED]", "[SESSION 2]"])
def test_what_goes_wrong_in_an_aggregate_is_told_by_name(
    catalog: Catalog, code: str, method: str, how: Any, said: str, window: str
) -> None:
    catalog.register_aggregate("odd", Breaking(method, how))
    found = query(f"SELECT odd(item) AS o FROM bids {window}", catalog)
    with pytest.raises(UserCodeError) as raised:
        run(found, [(0, 1, 1.0)])
    assert raised.value.code == code
    assert said in raised.value.message


class Unsaved(Median):
    """Its state holds a function."""

    def iterate(self, state: Any, values: pa.Array) -> Any:
        return [lambda: 1]

    def terminate(self, state: Any) -> int:
        return 1


@pytest.mark.parametrize("window", ["[UNBOUNDED]", "[SESSION 2]"])
def test_a_state_that_cannot_be_saved_is_told_by_name(catalog: Catalog, window: str) -> None:
    engine = headrace.Engine()
    catalog.register_aggregate("odd", Unsaved)
    engine.add("q", query(f"SELECT odd(item) AS o FROM bids {window}", catalog))
    engine.push("bids", pa.RecordBatch.from_pylist([{"item": 1, "price": 1.0}], schema=STREAMS["bids"]), [0])
    engine.streams.heartbeat("bids", 0)
    engine.run()
    with pytest.raises(UserCodeError, match=r"HR-U004.*the state of odd cannot be saved"):
        engine.snapshot()


class Bag:
    """An object of the user's own: not plain."""

    def __init__(self) -> None:
        self.values: list[Any] = []


class Bagged(Median):
    """Its state is such an object."""

    def initialize(self) -> Any:
        return Bag()

    def iterate(self, state: Any, values: pa.Array) -> Any:
        state.values += values.to_pylist()
        return state

    def terminate(self, state: Any) -> Any:
        return sum(state.values)


class AllowedBagged(Bagged):
    allow_pickle = True


def _engine(catalog: Catalog, window: str, definition: Any) -> headrace.Engine:
    engine = headrace.Engine()
    catalog.register_aggregate("bagged", definition, replace=True)
    engine.add("q", query(f"SELECT bagged(item) AS b FROM bids {window}", catalog))
    return engine


@pytest.mark.parametrize("window", ["[UNBOUNDED]", "[SESSION 2]", "[RANGE 9 SLIDE 3]"])
def test_07_only_the_users_own_class_can_allow_a_pickle_and_never_the_checkpoint(
    catalog: Catalog, window: str
) -> None:
    class Merging(AllowedBagged):
        def merge(self, state: Any, later: Any) -> Any:
            state.values += later.values
            return state

    class Plain(Merging):
        allow_pickle = False

    one = pa.RecordBatch.from_pylist([{"item": 1, "price": 1.5}], schema=STREAMS["bids"])
    first = _engine(catalog, window, Merging)
    first.push("bids", one, [0])
    first.streams.heartbeat("bids", 0)
    first.run()
    taken = first.snapshot()
    with pytest.raises(UserCodeError, match=r"HR-U004.*is pickled in the checkpoint"):
        _engine(catalog, window, Plain).restore(taken)
    second = _engine(catalog, window, Merging)
    second.restore(taken)
    for engine in (first, second):
        engine.streams.end("bids")
        engine.run()
    answers = [[b.data.to_pylist() for b in engine.drain("q")] for engine in (first, second)]
    assert answers[0] == answers[1] != []
    refused = _engine(catalog, window, Plain)
    refused.push("bids", one, [0])
    refused.streams.heartbeat("bids", 0)
    refused.run()
    with pytest.raises(UserCodeError, match=r"(?s)HR-U004.*allow_pickle"):
        refused.snapshot()


# --- functions over the values of one row


def half(price: float, digits: int) -> float:
    return round(price / 2, digits)


def test_a_scalar_function_gets_python_values_and_is_not_called_for_nulls(nothing_global: None) -> None:
    headrace.register_function("half", half, scalar=True)
    rows = {"price": [1.25, None, 3.0], "t": [1, 2, 3]}
    found = headrace.sql("SELECT half(price, 1) AS h, t FROM s WHERE t < 9", s=rows, time="t")
    assert [row["h"] for row in found] == [0.6, None, 1.5]
    with pytest.raises(HeadraceError, match="half takes"):
        headrace.sql("SELECT half('x', 1) AS h FROM s", s=rows, time="t")


def test_scalar_and_array_functions_agree(catalog: Catalog) -> None:
    rows = [{"v": v, "t": t} for t, v in enumerate([1, None, -4])]
    doubled = Catalog({"s": pa.schema([("v", pa.int64()), ("t", pa.int64())])})
    doubled.register_function("a", lambda v: pc.multiply(v, 2), arguments=["bigint"], result="bigint")
    doubled.register_function("b", lambda v: v * 2, arguments=["bigint"], result="bigint", scalar=True)
    both = query("SELECT a(v) AS a, b(v) AS b FROM s", doubled)
    engine = headrace.Engine()
    engine.add("q", both)
    engine.push("s", pa.RecordBatch.from_pylist(rows), [0, 1, 2])
    (batch,) = engine.drain("q")
    assert batch.data.column(0) == batch.data.column(1)
    assert pickle.loads(pickle.dumps(half)) is half


def test_a_scalar_function_that_returns_another_type_is_named() -> None:
    catalog = Catalog({"s": pa.schema([("v", pa.int64())])})
    catalog.register_function("odd", lambda v: "odd" if v % 2 else v, result="bigint", scalar=True)
    engine = headrace.Engine()
    engine.add("q", query("SELECT odd(v) AS v FROM s", catalog))
    engine.push("s", pa.RecordBatch.from_pydict({"v": [2, 3]}), [0, 1])
    with pytest.raises(UserCodeError, match="it returned 'odd', a str, not bigint"):
        engine.run()


def test_the_type_of_a_function_must_be_known() -> None:
    with pytest.raises(SqlError, match="the type that 'plain' returns is not known"):
        Catalog({}).register_function("plain", lambda v: v, scalar=True)
