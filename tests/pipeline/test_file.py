"""The pipeline file: what it means, and what is said when it means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.pipeline import load, parse
from headrace.pipeline.load import from_tables
from headrace.plan.nodes.core import TimeKind
from headrace.time.skew import Pair
from headrace.time.timestamp import MAX_TIME, MIN_TIME

TEXT = '''
[pipeline]
name = "auction"
runtime = "embedded"
checkpoint = "state"

[streams.bids]
source = { path = "bids.jsonl" }
schema = "auction BIGINT, price DOUBLE, at TIMESTAMP"
time = { column = "at" }
bounds = { disorder = "5 seconds", latency = "1 min" }
guard = "1 hour"

[streams.closings]
source = "closings.csv"
schema = { auction = "BIGINT", at = "BIGINT" }
time = { column = "at", unit = "ms", earliest = 2001-01-01 }
bounds = { estimate = { loss = 0.01, ceiling = "1 min" } }
enforcement = "admit"

[skew]
timeout = "2 min"

[[skew.bounds]]
of = "bids"
on = "closings"
pairs = [["0 s", "2 s"], ["10 s", 0]]

[[queries]]
name = "hot"
sql = """
SELECT b.auction, b.price
FROM bids [RANGE 10 SECONDS] AS b, closings [NOW] AS c WHERE b.auction = c.auction
"""
sink = "hot.jsonl"
late = { type = "stdout" }
'''


def test_every_table_has_its_meaning() -> None:
    pipeline = parse(TEXT, root="/where")
    bids, closings = pipeline.streams["bids"], pipeline.streams["closings"]
    assert pipeline.ticks_per_second == 1_000_000
    assert (bids.lateness.disorder, bids.lateness.latency) == (5_000_000, 60_000_000)
    assert (bids.rules.guard, bids.rules.enforce) == (3_600_000_000, "strict")
    assert (closings.unit, closings.earliest) == (1_000, 978_307_200_000_000)
    assert closings.rules.guard == MAX_TIME
    assert closings.rules.enforce == "admit"
    assert closings.lateness.confidence is not None
    assert closings.lateness.confidence.ceiling == 60_000_000
    assert pipeline.skew.pairs == {("bids", "closings"): (Pair(0, 2_000_000), Pair(10_000_000, 0))}
    assert pipeline.skew.timeout == 120_000_000
    assert pipeline.queries[0].streams == ("bids", "closings")
    assert pipeline.path("hot.jsonl") == Path("/where/hot.jsonl")
    assert not pipeline.warnings


GROUPED = """
[pipeline]
name = "p"
[streams.a]
source = "a.csv"
schema = "k BIGINT, at TIMESTAMP"
time = "at"
bounds = { disorder = "1 second" }
[streams.b]
source = "b.csv"
schema = "k BIGINT, at TIMESTAMP"
time = "at"
bounds = { disorder = "3 seconds" }
[streams.c]
source = "c.csv"
schema = "k BIGINT, at TIMESTAMP"
time = "at"
[skew]
groups = [["a", "b"]]
bounds = [
  { of = "a", on = "b", pairs = [["0 s", "5 s"]] },
  { of = "b", on = "a", pairs = [["0 s", "2 s"]] },
]
[[queries]]
name = "q"
sql = "SELECT k FROM a UNION ALL SELECT k FROM b UNION ALL SELECT k FROM c"
sink = "q.jsonl"
"""


def test_streams_of_a_group_share_the_weakest_of_their_promises() -> None:
    heartbeats = parse(GROUPED).heartbeats()
    assert heartbeats is not None
    assert heartbeats.streams == ("a", "b", "c")
    second = 1_000_000
    heartbeats.arrive([0], [100 * second], 100 * second)
    assert heartbeats.heartbeats(100 * second).tolist() == [95 * second, 95 * second, MIN_TIME]
    heartbeats.arrive([2], [90 * second], 101 * second)
    assert heartbeats.heartbeats(101 * second).tolist() == [95 * second, 95 * second, 90 * second - 1]


@pytest.mark.parametrize(
    ("groups", "code"),
    [('[["a", "b"], ["b"]]', "HR-F016"), ('[["a", "d"]]', "HR-F016"), ('[["a", "c"]]', "HR-T044")],
)
def test_groups_that_cannot_be_are_refused(groups: str, code: str) -> None:
    with pytest.raises(HeadraceError, match=code):
        parse(GROUPED.replace('[["a", "b"]]', groups))


def test_heartbeats_come_from_bounds_estimates_and_the_clock_together() -> None:
    heartbeats = parse(TEXT).heartbeats()
    assert heartbeats is not None
    assert heartbeats.streams == ("bids", "closings")
    second = 1_000_000
    heartbeats.arrive([0], [100 * second], 100 * second)
    bids, closings = heartbeats.heartbeats(100 * second).tolist()
    assert bids == 95 * second - 1  # at most 5 seconds behind the newest, which may come twice
    assert closings == 98 * second  # by the skew bound of bids
    assert heartbeats.heartbeats(110 * second).tolist()[1] == 100 * second
    by_clock = parse(TEXT).promises()
    assert {name: promise.at(200 * second) for name, promise in by_clock.items()} == {"bids": 140 * second}
    again = parse(TEXT).heartbeats()
    assert again is not None
    again.restore(heartbeats.snapshot())
    assert again.heartbeats(300 * second).tolist() == heartbeats.heartbeats(300 * second).tolist()


def test_the_tables_are_the_file(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT auction FROM bids")
    head, _, _ = TEXT.partition("[[queries]]")
    text = head + '[[queries]]\nname = "q"\nsql_file = "q.sql"\nsink = "stdout"\n'
    (tmp_path / "p.toml").write_text(text)
    pipeline = load(tmp_path / "p.toml")
    again = from_tables(pipeline.tables())
    assert again.tables() == pipeline.tables()
    assert again.queries[0].query.text == "SELECT auction FROM bids"
    assert again.streams["closings"].earliest == pipeline.streams["closings"].earliest


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("guard =", "gaurd =", "HR-F003", ("did you mean guard?", "line 12")),
        ("disorder =", "disorde =", "HR-F003", ("did you mean disorder?", "line 11")),
        ("path =", "pth =", "HR-F003", ("did you mean path?", "line 8")),
        ("sink =", "snk =", "HR-F003", ("did you mean sink?", "line 35")),
        ("loss =", "losss =", "HR-F003", ("did you mean loss?", "line 18")),
        ('on = "cl', 'onn = "cl', "HR-F003", ("did you mean on?", "line 26")),
        ("[pipeline]", "[pipelines]", "HR-F003", ("did you mean pipeline?", "line 2")),
        ('"2 min"', '"2 parsecs"', "HR-F004", ("no unit 'parsecs'", "line 22")),
        ('"embedded"', '"embeded"', "HR-F004", ("'spark' or 'embedded'", "line 4")),
        ('column = "at" }', 'column = "att" }', "HR-F011", ("did you mean at?", "line 10")),
        ('of = "bids"', 'of = "bid"', "HR-F016", ("did you mean bids?", "line 25")),
        ("price DOUBLE", "price DUBLE", "HR-Q016", ("line 9",)),
        ('name = "hot"', "", "HR-F005", ("'name' is missing", "line 29")),
        ("b.price", "b.prize", "HR-Q011", ("did you mean",)),
        ('sql = """', 'sql_file = "x.sql"\nsql = """', "HR-F013", ("either sql or sql_file",)),
        ("name =", "name ==", "HR-F002", ("line 3",)),
        ('late = { type = "stdout" }', 'late = "hot.jsonl"', "HR-F015", ("two outputs",)),
        ('unit = "ms"', 'unit = "tick"', "HR-F010", ("the same kind of time",)),
        ("estimate = {", 'disorder = "1 s", estimate = {', "HR-F012", ("line 18",)),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, code: str, said: tuple[str, ...]) -> None:
    assert old in TEXT
    with pytest.raises(HeadraceError) as error:
        parse(TEXT.replace(old, new, 1))
    assert error.value.code == code
    for words in said:
        assert words in str(error.value)


def test_streams_may_count_ticks_and_have_internal_or_latent_time() -> None:
    head, _, tail = TEXT.partition("[streams.closings]")
    one, two = head.partition("[streams.bids]")[0], "[[queries]]" + tail.partition("[[queries]]")[2]
    query = two.partition("sql =")[0] + 'sql = "SELECT a FROM s"\nsink = "stdout"\n'
    stream = '[streams.s]\nsource = "x.csv"\nschema = "a BIGINT"\n'
    counted = parse(one + stream + 'time = {column = "a", unit = "tick"}\nbounds = {disorder = 3}\n' + query)
    assert counted.ticks_per_second is None
    assert counted.streams["s"].lateness.disorder == 3
    latent = parse(one + stream + 'time = "latent"\n' + query)
    assert latent.streams["s"].definition.time is TimeKind.LATENT
    assert latent.heartbeats() is None
    with pytest.raises(HeadraceError, match="count ticks"):
        parse(one + stream + 'time = {column = "a", unit = "tick"}\nguard = "3 s"\n' + query)


def test_memory_without_a_budget_is_not_held_to_in_silence() -> None:
    warnings = parse(TEXT + '\n[memory]\npolicy = "spill"\n').warnings
    assert any("without a budget" in each for each in warnings)
