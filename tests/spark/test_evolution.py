"""The pipeline file changes between two runs on Spark: the second goes on with what the first knew."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from headrace.cli.check import describe
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceError
from headrace.memory.budget import budget_bytes
from headrace.pipeline import Pipeline, load
from headrace.runtimes.spark.driver.continuing import Start, adopted, empty, outlet_of
from headrace.runtimes.spark.driver.preview import definition_of, preview
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.topology import Level, World, topology
from headrace.runtimes.spark.driver.writing import JobQuery
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT
from headrace.runtimes.spark.worker.packing import to_ipc
from tests.evolution_cases import DIFFERENT, KEPT, NEW, PIPELINE, REFUSED, Change, swap, without, write_inputs
from tests.spark.simulated import Cells, Cluster, MicroBatch, clocks, run_levels
from tests.spark.test_job import in_one_engine
from tests.spark.test_pipeline import lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.runtimes.spark.driver.progress import Progress

# --- without Java: the hosts of a job, before and after ---------------------------------------------------

PART = 80
CUT = 2
"""The restart comes after so many micro-batches, each of so many rows of each stream."""

Rows = Counter[str]


def made(root: Path, change: Change | None = None) -> Pipeline:
    """The pipeline in a new directory, with its inputs, perhaps changed."""
    root.mkdir()
    write_inputs(root)
    (root / "p.toml").write_text(PIPELINE)
    return load(root / "p.toml") if change is None else changed(root, change)


def changed(root: Path, change: Change) -> Pipeline:
    """Change the pipeline in a directory."""
    file = root / "p.toml"
    file.write_text(change.text(file.read_text()))
    change.files(root)
    return load(file)


def micro_batches(pipeline: Pipeline) -> list[MicroBatch]:
    """The rows of both streams, with the columns that the pipeline reads."""
    rows = {
        name: [json.loads(line) for line in (pipeline.root / f"{name}.jsonl").read_text().splitlines()]
        for name in pipeline.streams
    }
    found: list[MicroBatch] = []
    for begin in range(0, len(rows["bids"]), PART):
        arrived = {}
        for name, stream in pipeline.streams.items():
            some = rows[name][begin : begin + PART]
            times = np.array([row["at"] for row in some], object)
            arrived[name] = (pa.RecordBatch.from_pylist(some, schema=stream.schema), times)
        found.append((max(int(times.max()) for _, times in arrived.values()), arrived))
    return found


def inputs_of(pipeline: Pipeline) -> Inputs:
    rules = {name: stream.rules for name, stream in pipeline.read.items()}
    return Inputs(pipeline.heartbeats(), pipeline.promises(), rules=rules)


def tables_of(pipeline: Pipeline) -> dict[str, pa.Table]:
    return {
        table.name: table.data
        for query in pipeline.queries
        for table in query.query.tables
        if table.data is not None
    }


def start(
    pipeline: Pipeline, before: Record | None, change: Change | None = None, shards: int = 3
) -> tuple[list[Level], Record]:
    """The hosts of a start as a job makes them, and the record that it writes; or the error."""
    reset = frozenset(change.reset if change else ())
    reload = frozenset(change.reload if change else ())
    queries = {}
    for each in pipeline.queries:
        outputs = {RESULT: each.spec.sink, LATE: each.spec.late, REJECTED: each.spec.rejected}
        sinks = {kind: lambda rows, batch: None for kind, spec in outputs.items() if spec is not None}
        queries[each.name] = JobQuery(each.query, sinks)
    begun = Start.of(queries, before, reset)
    known, generation, since = begun.before, begun.generation, begun.since
    tables = {name: to_ipc(rows) for name, rows in tables_of(pipeline).items()}
    partitions = known.partitions or shards
    world = World(inputs_of(pipeline), partitions, tables=tables, placed=known.placed)
    laid = topology(begun.plans, world, outlet_of(queries))
    budget = pipeline.spec.memory.budget
    levels = tuple(
        tuple(
            replace(
                host,
                generation=generation,
                since={name: since[name] for name in host.queries},
                reset=reset.intersection(host.queries),
                reload=reload.intersection(host.tables),
                budget=None if budget is None else budget_bytes(budget),
                reoptimize=pipeline.spec.pipeline.reoptimize,
                ticks_per_second=pipeline.ticks_per_second,
            )
            for host in level
        )
        for level in laid.levels
    )
    laid = replace(laid, levels=levels)
    adopted(laid.hosts, known, reset)
    snapshots = tuple(empty(host).snapshot().encode() for host in laid.hosts)
    record = Record(generation, partitions, laid.placed, since, begun.together, snapshots)
    return list(levels), Record.of(record.text(), "record")


def answers(found: dict[str, list[tuple[object, ...]]]) -> dict[str, Rows]:
    return {name: Counter(map(repr, rows)) for name, rows in found.items()}


def uninterrupted(pipeline: Pipeline, begin: int = 0, stop: int | None = None) -> dict[str, Rows]:
    """The answers of one engine over a part of the micro-batches; over the last one, the streams end."""
    plans = {each.name: each.query.plan for each in pipeline.queries}
    batches = micro_batches(pipeline)
    said = clocks(batches)[begin:stop]
    some = batches[begin:stop]
    return in_one_engine(plans, inputs_of(pipeline), some, tables_of(pipeline), stop is None, said=said)[0]


@cache
def first_half() -> tuple[dict[tuple[int, int], Cells], Record, dict[str, Rows]]:
    """The state, the record and the answers of the first run."""
    workers = Cluster(random.Random(11), mishaps=0.05)
    with TemporaryDirectory() as folder:
        pipeline = made(Path(folder) / "here")
        batches = micro_batches(pipeline)
        levels, record = start(pipeline, None)
        outcome = run_levels(levels, batches[:CUT], workers, pa.schema([]), said=clocks(batches)[:CUT])
    before = answers(outcome.by_query)
    assert all(before[each.name] for each in pipeline.queries)
    return dict(workers.states), record, before


@pytest.mark.parametrize("name", [*KEPT, *DIFFERENT])
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_the_hosts_of_a_changed_job_go_on(tmp_path: Path, name: str) -> None:
    """Without Java; a machine with more partitions changes nothing."""
    change = {**KEPT, **DIFFERENT}[name]
    states, record, before = first_half()
    workers = Cluster(random.Random(12), mishaps=0.05)
    workers.go_back_to(states)
    pipeline = made(tmp_path / "here", change)
    batches = micro_batches(pipeline)
    levels, _ = start(pipeline, record, change, shards=5)
    said = clocks(batches)[CUT:]
    later = run_levels(levels, batches[CUT:], workers, pa.schema([]), ends=True, said=said)
    after = answers(later.by_query)
    whole, until = uninterrupted(pipeline), uninterrupted(pipeline, stop=CUT)
    rest = uninterrupted(pipeline, CUT)
    for query in dict.fromkeys([*before, *(each.name for each in pipeline.queries)]):
        was, now = before.get(query, Rows()), after.get(query, Rows())
        expected = {
            "whole": lambda query: whole[query],
            "moved": lambda query: whole[query],
            "rest": lambda query: before[query] + (whole[query] - until[query]),
            "begun": lambda query: rest[query],
            "reset": lambda query: before[query] + rest[query],
            "gone": lambda query: before[query],
        }[change.expect.get(query, "whole")](query)
        assert was + now == expected, query
        assert expected
        if query in ("hot", "best", "pairs") and change.expect.get(query, "whole") == "whole":
            assert expected != was + rest[query], "without its state it would answer differently"


IN_HOSTS = ("window", "key", "filter below", "another stream", "narrower type")
"""Changes that queries themselves refuse; others are refused by the runner."""


@pytest.mark.parametrize("name", IN_HOSTS)
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_hosts_that_cannot_go_on_are_refused(tmp_path: Path, name: str) -> None:
    change = REFUSED[name]
    _, record, _ = first_half()
    pipeline = made(tmp_path / "here", change)
    with pytest.raises(HeadraceError) as caught:
        start(pipeline, record, change)
    refused(caught.value, name)


def recorded(root: Path) -> None:
    """The record of the first run, in the checkpoint of the pipeline in a directory."""
    pipeline = made(root)
    _, record, _ = first_half()
    job = root / "state" / "spark" / "job"
    job.mkdir(parents=True)
    noted = replace(record, definition=definition_of(pipeline))
    (job / "_headrace.job.json").write_text(noted.text())


@pytest.mark.parametrize("name", [*KEPT, *DIFFERENT])
def test_a_preview_says_what_a_start_would_do(tmp_path: Path, name: str) -> None:
    """Without Java."""
    recorded(tmp_path / "here")
    change = {**KEPT, **DIFFERENT}[name]
    pipeline = changed(tmp_path / "here", change)
    before = tree(tmp_path / "here")
    found = preview(pipeline, reset=change.reset, reload=change.reload)
    assert found is not None
    kinds = {"begun": found.begun, "gone": found.freed, "reset": found.reset}
    for query in {each.name for each in pipeline.queries} | change.expect.keys():
        assert query in kinds.get(change.expect.get(query, ""), found.kept), found
    assert tree(tmp_path / "here") == before


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "clock"])
def test_a_preview_refuses_what_a_start_would_refuse(tmp_path: Path, name: str) -> None:
    recorded(tmp_path / "here")
    change = REFUSED[name]
    pipeline = changed(tmp_path / "here", change)
    with pytest.raises(HeadraceError) as caught:
        preview(pipeline, reset=change.reset, reload=change.reload)
    refused(caught.value, name)


def test_check_says_what_the_next_start_on_spark_would_do(tmp_path: Path) -> None:
    here = tmp_path / "here"
    on_spark = Change(swap('runtime = "embedded"', 'runtime = "spark"'))
    assert "next start" not in describe(made(tmp_path / "first", on_spark))
    recorded(here)
    new = Change(lambda text: without("hot")(on_spark.text(text)) + NEW)
    assert "the next start keeps best, pairs, named; begins newcomer; frees hot" in describe(
        changed(here, new)
    )


@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_a_table_that_is_not_reloaded_keeps_its_rows(tmp_path: Path) -> None:
    """A runner refuses that; in Python the rows of the checkpoint stay."""
    states, record, before = first_half()
    workers = Cluster(random.Random(12), mishaps=0)
    workers.go_back_to(states)
    changed_table, old = made(tmp_path / "here", REFUSED["table"]), made(tmp_path / "old")
    batches = micro_batches(changed_table)
    levels, _ = start(changed_table, record)
    later = run_levels(
        levels, batches[CUT:], workers, pa.schema([]), ends=True, said=clocks(batches)[CUT:]
    ).by_query
    assert before["named"] + answers(later)["named"] == uninterrupted(old)["named"]
    assert uninterrupted(changed_table)["named"] != uninterrupted(old)["named"]


@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_late_rows_cannot_be_written_of_state_that_was_built_from_partial_rows(tmp_path: Path) -> None:
    admitted = Change(swap('disorder = "500 ms" }', 'disorder = "500 ms" }\nenforcement = "admit"'))
    only_hot = Change(lambda text: without("best")(without("pairs")(admitted.text(text))))
    _, record = start(made(tmp_path / "here", only_hot), None)
    with pytest.raises(HeadraceError, match="HR-SP33") as caught:
        start(changed(tmp_path / "here", KEPT["late output added"]), record)
    assert "query hot was built from partial rows" in str(caught.value)
    assert "--reset hot" in str(caught.value)


ON_SPARK: dict[str, tuple[str, tuple[str, ...]]] = {
    "key": ("HR-SP33", ("query best", "it was bids by auction, and is bids by price now", "--reset best")),
    "another stream": ("HR-SP33", ("query named", "auctions by id, and is one shard", "--reset named")),
}
"""Refusals that differ from those of the embedded runtime: the code, and what is said."""


def refused(error: HeadraceError, name: str) -> None:
    """The error of a change that is refused has its code, and says what to do."""
    code, said = ON_SPARK.get(name, (REFUSED[name].refused, REFUSED[name].said))
    assert error.code == code, error
    assert all(each in str(error) for each in said), error


# --- on Spark ---------------------------------------------------------------------------------------------

FAR = 1_000_000_000
"""The last row of each stream is so far ahead that everything before it is answered."""
NAMES = ("bids", "auctions")


def inputs() -> dict[str, tuple[list[str], list[str]]]:
    """The rows of each stream, in two halves."""
    found = {}
    with TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        for name in NAMES:
            rows = (Path(folder) / f"{name}.jsonl").read_text().splitlines()
            last = json.loads(rows[-1])
            rows.append(json.dumps(last | {"at": last["at"] + FAR}))
            found[name] = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
    return found


def put(root: Path, half: int) -> None:
    """A file with one half of each stream."""
    for name, halves in inputs().items():
        (root / name).mkdir(exist_ok=True)
        (root / name / f"{half}.json").write_text("".join(f"{row}\n" for row in halves[half]))


def followed(text: str, folder: str = "", more: str = ", follow = true") -> str:
    """The pipeline with directories as sources."""
    source = rf'path = "{folder}\1", format = "json"{more}, block_bytes'
    return re.sub(r'path = "(\w+)\.jsonl", block_bytes', source, text)


def run(here: Path, spark: SparkSession, halves: int, change: Change | None = None) -> list[str]:
    """Run until so many halves of all streams were read, since the first start; returns the messages."""
    from headrace.runtimes.spark.driver.pipeline import Runner

    said: list[str] = []
    reset, reload = (change.reset, change.reload) if change else ((), ())
    runner = Runner(load(here / "p.toml"), spark, reset=reset, reload=reload, say=said.append)
    until = sum(map(len, inputs()["bids"][:halves]))

    def look(progress: Progress) -> None:
        if all(stream.rows >= until for stream in progress.streams.values()):
            runner.stop()

    assert runner.run(look).state == "stopped"
    return said


def outputs(here: Path) -> dict[str, list[str]]:
    """The rows of each output, without the answers of the last rows."""
    found = {}
    for path in sorted(here.glob("*.jsonl")):
        rows = (json.loads(line) for line in lines(path))
        found[path.stem] = [json.dumps(row) for row in rows if row.get("ts", "") < "2023-11-14T22:20"]
    return found


def embedded(here: Path, text: str, change: Change, *halves: int) -> dict[str, list[str]]:
    """The outputs of one run in this process, over one half of the input or both."""
    from headrace.runtimes.embedded import Runner

    here.mkdir()
    write_inputs(here)
    for half in halves:
        put(here, half)
    (here / "p.toml").write_text(followed(change.text(text), more=""))
    change.files(here)
    Runner(load(here / "p.toml")).run()
    return outputs(here)


class FirstRun:
    """A run on Spark that has read the first half of the input, and the second half, which waits.

    A case continues a copy of the checkpoint and of the outputs; the input stays where it is, because the
    checkpoint has its path.
    """

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark, self.here = root, spark, root / "first"
        put(root, 0)
        self.here.mkdir()
        write_inputs(self.here)
        (self.here / "p.toml").write_text(followed(PIPELINE, f"{root}/"))
        run(self.here, spark, 1)
        self.before = outputs(self.here)
        put(root, 1)
        (root / "others").mkdir()

    def copy(self, here: Path, change: Change) -> None:
        """A copy of the first run, with a changed file."""
        shutil.copytree(self.here, here)
        (here / "p.toml").write_text(followed(change.text(PIPELINE), f"{self.root}/"))
        change.files(here)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> FirstRun:
    return FirstRun(tmp_path_factory.mktemp("evolution"), spark)


def several(*changes: Change) -> Change:
    """Changes that come together."""
    expect = {query: what for change in changes for query, what in change.expect.items()}
    return Change(lambda text: reduce(lambda text, each: each.text(text), changes, text), expect=expect)


STREAM = """
[streams.offers]
source = { path = "auctions.jsonl", block_bytes = 1_500 }
schema = "id INT, seller INT, at BIGINT"
time = { column = "at", unit = "us" }

[tables]"""
OFFERED = NEW.replace("FROM auctions", "FROM offers")

TOGETHER: dict[str, Change] = {
    "queries, bounds, sink": several(
        DIFFERENT["query replaced"],
        DIFFERENT["filter above"],
        KEPT["larger disorder"],
        Change(swap('"pairs.jsonl"', '"moved.jsonl"'), expect={"pairs": "moved"}),
    ),
    "types, columns, late rows": several(
        KEPT["wider types"],
        Change(swap("price BIGINT, at BIGINT", "price BIGINT, at BIGINT, note STRING")),
        KEPT["late output added"],
    ),
    "stream added": Change(
        lambda text: swap("[tables]", STREAM.lstrip())(text) + OFFERED, expect={"newcomer": "whole"}
    ),
    "window, reset": DIFFERENT["window, reset"],
    "table, reloaded": DIFFERENT["table, reloaded"],
}
"""The changes that differ most."""


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [*TOGETHER, *(pytest.param(n, marks=pytest.mark.slow) for n in [*KEPT, *DIFFERENT] if n not in TOGETHER)],
)
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_a_changed_pipeline_goes_on(first_run: FirstRun, tmp_path: Path, name: str) -> None:
    change = {**KEPT, **DIFFERENT, **TOGETHER}[name]
    here, before = tmp_path / "here", first_run.before
    first_run.copy(here, change)
    previewed = preview(load(here / "p.toml"), reset=change.reset, reload=change.reload)
    partitions = first_run.spark.conf.get("spark.sql.shuffle.partitions")
    first_run.spark.conf.set("spark.sql.shuffle.partitions", 5)  # another machine
    try:
        said = run(here, first_run.spark, 2, change)
    finally:
        first_run.spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert f"this start {previewed}" in said
    found = outputs(here)
    whole = embedded(tmp_path / "whole", PIPELINE, change, 0, 1)
    rest = embedded(tmp_path / "rest", PIPELINE, change, 1)
    for query in {**before, **whole}.keys() - {"moved", "late"}:
        expected = {
            "whole": lambda query: whole[query],
            "rest": lambda query: before[query] + _after(whole[query], before[query]),
            "begun": lambda query: rest[query],
            "reset": lambda query: before[query] + rest[query],
            "moved": lambda query: before[query],
            "gone": lambda query: before[query],
        }[change.expect.get(query, "whole")](query)
        assert Counter(found[query]) == Counter(expected), query
        assert expected
    for query, what in change.expect.items():
        if what == "moved":
            assert Counter(found["moved"]) == Counter(_after(whole["moved"], before[query])) != Counter()


def _after(rows: list[str], others: list[str]) -> list[str]:
    """The rows that are later than all others."""
    last = max(json.loads(row)["ts"] for row in others)
    return [row for row in rows if json.loads(row)["ts"] > last]


GOES_ON = ("clock",)
"""What the embedded runtime refuses and Spark does not: there the event clock is the system clock."""


def tree(root: Path) -> dict[str, bytes]:
    """All files below a directory, without those of locks."""
    files = (path for path in root.rglob("*") if path.is_file() and "lock" not in path.name.lower())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
@pytest.mark.parametrize("name", [name for name in REFUSED if name not in GOES_ON])
def test_what_cannot_go_on_is_refused_and_changes_nothing(
    first_run: FirstRun, tmp_path: Path, name: str
) -> None:
    here, change = tmp_path / "here", REFUSED[name]
    first_run.copy(here, change)
    before = tree(here)
    with pytest.raises(HeadraceError) as caught:
        run(here, first_run.spark, 2, change)
    refused(caught.value, name)
    assert tree(here) == before


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_a_refused_start_leaves_outputs_that_it_would_replace(first_run: FirstRun, tmp_path: Path) -> None:
    """A new query, whose output exists, and a query that cannot go on."""
    here, sink = tmp_path / "here", '"newcomer.jsonl", existing = "replace"'
    new = Change(lambda text: text + NEW.replace('"newcomer.jsonl"', sink))
    change = several(new, REFUSED["window"])
    first_run.copy(here, change)
    (here / "newcomer.jsonl").write_text("of another run\n")
    with pytest.raises(HeadraceError, match="HR-G022"):
        run(here, first_run.spark, 2, change)
    assert (here / "newcomer.jsonl").read_text() == "of another run\n"


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_another_sink_does_not_write_into_an_output_that_exists(first_run: FirstRun, tmp_path: Path) -> None:
    here, change = tmp_path / "here", DIFFERENT["another sink"]
    first_run.copy(here, change)
    (here / "moved.jsonl").write_text("of another run\n")
    before = tree(here)
    with pytest.raises(HeadraceError, match="HR-C010"):
        run(here, first_run.spark, 2, change)
    assert tree(here) == before


# A checkpoint that an earlier version of the code wrote is kept, with its pipeline and its outputs.

KEPT_CHECKPOINT = Path(__file__).parents[1] / "data" / "checkpoints" / "spark-1"
TWO = without("pairs")(without("named")(PIPELINE))
ELSEWHERE = Path("/where/it/was/written")


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_a_kept_checkpoint_is_opened_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """`python -m tests.spark.test_evolution` writes one, after a change of the format."""
    here = tmp_path / "here"
    shutil.copytree(KEPT_CHECKPOINT, here)
    _rewrite(here, ELSEWHERE, here)
    write_inputs(here)
    before = outputs(here)
    for half in (0, 1):
        put(here, half)
    said = run(here, spark, 2)
    assert any("keeps hot, best" in each for each in said), said
    found, whole = outputs(here), embedded(tmp_path / "whole", TWO, Change(), 0, 1)
    for query in ("hot", "best"):
        assert Counter(found[query]) == Counter(whole[query])
        assert len(whole[query]) > len(before[query]) > 0


def _rewrite(here: Path, old: Path, new: Path) -> None:
    """Spark notes the paths of files that were read, and of the schema of its state: move them."""
    state = here / "state"
    for file in [*state.rglob("sources/**/*"), *state.rglob("_metadata/**/*")]:
        if file.is_file():
            file.write_text(file.read_text().replace(f"{old}/", f"{new}/"))


def _keep_a_checkpoint() -> None:
    import headrace
    from tests.spark.conftest import QUICK

    here = KEPT_CHECKPOINT
    here.mkdir(parents=True)
    write_inputs(here)
    put(here, 0)
    (here / "p.toml").write_text(followed(TWO))
    spark = headrace.spark.session("headrace", "local[2]", **QUICK)
    run(here, spark, 1)
    spark.stop()
    for file in [*here.rglob("*.crc"), *here.rglob("*lock*"), *here.glob("*/*.json"), *here.glob("*.csv")]:
        file.unlink()
    for name in NAMES:
        (here / f"{name}.jsonl").unlink()
        shutil.rmtree(here / name, ignore_errors=True)
    _rewrite(here, here, ELSEWHERE)


if __name__ == "__main__":
    _keep_a_checkpoint()
