"""One pipeline file, two runtimes, the same rows."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from headrace.errors import HeadraceError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from tests.runtimes.embedded.pipelines import joined, replayed, sliding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POISSON = """
[pipeline]
name = "made"
[streams.s]
source = { type = "poisson", rate = 100, rows = 3000, disorder = "1 s" }
schema = "k BIGINT, v DOUBLE, at TIMESTAMP"
time = "at"
bounds = { disorder = "300 ms" }
[[queries]]
name = "mean"
sql = "SELECT k, count(*) AS n, max(v) AS v FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
sink = { path = "mean.jsonl", time = "at" }
late = "late.jsonl"
"""


def lines(path: Path) -> list[str]:
    """The lines of an output: of one file, or of the parts that Spark wrote."""
    files = sorted(path.glob("batch=*/part-*")) if path.is_dir() else [path]
    return [line for each in files for line in each.read_text().splitlines()]


def bag(path: Path) -> Counter[str]:
    return Counter(lines(path))


def on_both(root: Path, pipeline: Path, spark: SparkSession) -> Path:
    """Run a pipeline here, and a copy of it in another directory on Spark; that directory."""
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    there = root.with_name(f"{root.name}-spark")
    shutil.copytree(root, there)
    Runner(load(pipeline)).run()
    assert SparkRunner(load(there / pipeline.name), spark).run().state == "finished"
    return there


def test_files_give_the_same_answers_and_set_the_same_rows_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Disorder within the bounds: which rows are late does not depend on how they are read."""
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    here = tmp_path / "here"
    here.mkdir()
    pipeline = sliding(here, rows=1_000)
    pipeline.write_text(pipeline.read_text().replace("500 ms", "1 s"))
    there = on_both(here, pipeline, spark)
    assert bag(there / "hot.jsonl") == bag(here / "hot.jsonl")
    assert len(lines(there / "rejected.jsonl")) == len(lines(here / "rejected.jsonl")) > 0
    assert lines(there / "late.jsonl") == lines(here / "late.jsonl") == []
    again = SparkRunner(load(there / pipeline.name), spark).run()
    assert (again.state, again.queries["hot"].answers) == ("finished", 0)
    assert bag(there / "hot.jsonl") == bag(here / "hot.jsonl")


def test_generated_rows_come_at_the_same_instants(spark: SparkSession, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "made.toml").write_text(POISSON)
    there = on_both(here, here / "made.toml", spark)
    assert bag(there / "mean.jsonl") == bag(here / "mean.jsonl")
    assert len(lines(here / "late.jsonl")) > 0
    assert _late(there) == _late(here)


def _late(root: Path) -> list[Any]:
    read = [json.loads(line) for line in lines(root / "late.jsonl")]
    return sorted((each["time"], each["heartbeat"], each["missed"]) for each in read)


VOUCHING = """
[pipeline]
name = "vouching"
[streams.s]
source = { type = "poisson", rate = 100, rows = 1000, disorder = "1 s" }
schema = "k BIGINT, v DOUBLE, at TIMESTAMP"
time = "at"
[streams.u]
source = { type = "poisson", rate = 20, rows = 200, seed = 7 }
schema = "k BIGINT, v DOUBLE, at TIMESTAMP"
time = "at"
[skew]
bounds = [
  { of = "u", on = "s", pairs = [["0 s", "500 ms"]] },
  { of = "s", on = "u", pairs = [["0 s", "1500 ms"]] },
]
[[queries]]
name = "mean"
sql = "SELECT k, count(*) AS n, max(v) AS v FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
sink = { path = "mean.jsonl", time = "at" }
late = "late.jsonl"
[[queries]]
name = "others"
sql = "SELECT k, count(*) AS n FROM u [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
sink = { path = "others.jsonl", time = "at" }
"""


@pytest.mark.parametrize("groups", ["", 'groups = [["s", "u"]]'])
def test_a_stream_of_another_query_vouches_for_a_stream(
    spark: SparkSession, tmp_path: Path, groups: str
) -> None:
    """Only `u`, which the first query does not read, says how late the rows of `s` are."""
    here = tmp_path / "here"
    here.mkdir()
    text = VOUCHING.replace("[skew]\n", f"[skew]\n{groups}\n")
    if groups:  # a group promises what holds between all its members
        own = '{ of = "s", on = "s", pairs = [["0 s", "500 ms"]] }, { of = "u", on = "u", pairs = [[0, 1]] },'
        text = text.replace("1500 ms", "500 ms").replace("bounds = [\n", f"bounds = [\n{own}\n")
    (here / "vouching.toml").write_text(text)
    there = on_both(here, here / "vouching.toml", spark)
    for name in ("mean.jsonl", "others.jsonl"):
        assert bag(there / name) == bag(here / name)
    assert len(_late(here)) > 0
    assert _late(there) == _late(here)


def test_a_join_of_csv_and_parquet(spark: SparkSession, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    there = on_both(here, joined(here, rows=800), spark)
    found = spark.read.parquet(str(there / "pairs.parquet")).select("item", "amount").collect()
    expected = pq.read_table(here / "pairs.parquet").to_pylist()
    assert Counter((row.item, row.amount) for row in found) == Counter(
        (row["item"], row["amount"]) for row in expected
    )
    assert set(lines(there / "totals.csv")) == set(lines(here / "totals.csv"))  # a header in each part


def test_recorded_arrivals_are_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    """With one query: what `admit` calls late depends on the answers that are wanted."""
    here = tmp_path / "here"
    here.mkdir()
    pipeline = replayed(here, rows=300)
    text = pipeline.read_text().replace("per_key.arrow", "per_key.jsonl")
    pipeline.write_text(text[: text.rindex("[[queries]]")])
    there = on_both(here, pipeline, spark)
    assert bag(there / "per_key.jsonl") == bag(here / "per_key.jsonl")
    assert len(_late(here)) > 0
    assert _late(there) == _late(here)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("rows = 3000, ", ""), "HR-F017"),
        (('type = "poisson", rate = 100, rows = 3000, disorder = "1 s"', 'type = "stdin"'), "HR-F017"),
        (('"made"', '"made"\nrecord = "record"'), "HR-F017"),
        (("mean.jsonl", "mean.arrow"), "HR-F017"),
    ],
)
def test_what_spark_does_not_have_is_said(
    spark: SparkSession, tmp_path: Path, change: tuple[str, str], code: str
) -> None:
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    (tmp_path / "made.toml").write_text(POISSON.replace(*change))
    with pytest.raises(HeadraceError, match=code):
        SparkRunner(load(tmp_path / "made.toml"), spark).run()


def test_nothing_is_shed_on_spark(tmp_path: Path) -> None:
    """A file for the embedded runtime, run on Spark all the same, is refused before a session is made."""
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    shed = POISSON.replace(
        'disorder = "1 s" }', 'disorder = "1 s", pace = "real" }\nshed = { above = "10 rows" }'
    )
    (tmp_path / "made.toml").write_text(shed.replace('"made"', '"made"\nruntime = "embedded"'))
    with pytest.raises(HeadraceError, match=r"HR-F017.*load shedding is not available") as raised:
        SparkRunner(load(tmp_path / "made.toml"))
    assert raised.value.place == "streams.s.shed"


def test_an_output_that_is_there_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    text = POISSON.replace('"made"', '"made"\ncheckpoint = "state"')
    (tmp_path / "made.toml").write_text(text)
    (tmp_path / "mean.jsonl").write_text("precious\n")
    with pytest.raises(HeadraceError, match="HR-C010"):
        SparkRunner(load(tmp_path / "made.toml"), spark).run()
    assert (tmp_path / "mean.jsonl").read_text() == "precious\n"


def test_without_a_checkpoint_an_output_is_replaced_only_if_the_file_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    file = tmp_path / "made.toml"
    file.write_text(POISSON.replace("rows = 3000", "rows = 30"))
    Runner(load(file)).run()  # embedded: a file, where Spark has a directory
    with pytest.raises(HeadraceError, match="HR-C010") as error:
        SparkRunner(load(file), spark).run()
    assert "append" not in error.value.hint
    before = bag(tmp_path / "mean.jsonl")
    text = file.read_text().replace('{ path = "mean.jsonl"', '{ path = "mean.jsonl", existing = "replace"')
    file.write_text(text.replace('"late.jsonl"', '{ path = "late.jsonl", existing = "replace" }'))
    for run in (lambda: SparkRunner(load(file), spark).run(), lambda: Runner(load(file)).run()):
        run()
        assert bag(tmp_path / "mean.jsonl") == before
    (tmp_path / "mean.jsonl").unlink()
    (tmp_path / "mean.jsonl").mkdir()
    (tmp_path / "mean.jsonl" / "notes.txt").write_text("precious")
    with pytest.raises(HeadraceError, match="HR-C013"):
        SparkRunner(load(file), spark).run()
    assert (tmp_path / "mean.jsonl" / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "counted"])
def test_a_run_says_why_rows_were_set_apart_whether_or_not_they_are_kept(
    spark: SparkSession, tmp_path: Path, kept: bool
) -> None:
    from headrace.cli.run import _unused
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    file = sliding(tmp_path, rows=1)
    (tmp_path / "bids.jsonl").write_text('{"auction": "x", "price": 1, "at": null}\n' * 3)
    if not kept:
        kept_lines = [
            line for line in file.read_text().splitlines() if not line.startswith(("late", "rejected"))
        ]
        file.write_text("\n".join(kept_lines))
    result = SparkRunner(load(file), spark).run()
    account = result.queries["hot"]
    assert account.rejected == 3
    assert [(reason.kind, reason.stream, reason.rows) for reason in account.reasons] == [
        ("rejected", "bids", 3)
    ]
    assert account.reasons[0].code.startswith("HR-R")
    assert account.reasons[0].first
    assert _unused(result) == ["bids"]
    assert (
        len(lines(tmp_path / "rejected.jsonl")) == 3 if kept else not (tmp_path / "rejected.jsonl").exists()
    )
