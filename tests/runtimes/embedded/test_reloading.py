"""Lookup tables that are reloaded by a run: by command, on a schedule, from a file or a database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headrace import tuning
from headrace.control import Log, Reload, log_of, submit
from headrace.control.commands import describe
from headrace.errors import ControlError, HeadraceError, PipelineError
from headrace.pipeline import load
from headrace.runtimes.embedded import Progress, Runner
from headrace.runtimes.embedded.runner import replay
from headrace.runtimes.reloading import Reloader

FILE = """
[pipeline]
name = "lookup"
runtime = "embedded"
checkpoint = "state"
every_rows = 1
{more}
[streams.bids]
source = {{ path = "bids.jsonl", block_bytes = 8 }}
schema = "item BIGINT, at BIGINT"
time = {{ column = "at", unit = "tick" }}
[tables.items]
{table}
schema = "id BIGINT, name STRING"
reload = {reload}
[[queries]]
name = "named"
sql = "SELECT at, name FROM bids [NOW], items WHERE item = id"
sink = "named.jsonl"
"""
LAST = 12
CSV = 'path = "items.csv"'


@pytest.fixture(autouse=True)
def _always_looking() -> Iterator[None]:
    with tuning.using(control_seconds=0):
        yield


def written(root: Path, table: str = CSV, reload: str = "true", more: str = "") -> Path:
    """A pipeline with one bid of each tick."""
    rows = (json.dumps({"item": 1, "at": t}) for t in range(LAST))
    (root / "bids.jsonl").write_text("\n".join(rows) + "\n")
    items(root, "old")
    file = root / "pipeline.toml"
    file.write_text(FILE.format(table=table, reload=reload, more=more))
    return file


def items(root: Path, name: str) -> None:
    (root / "items.csv").write_text(f"id,name\n1,{name}\n2,other\n")


def names(root: Path) -> list[str]:
    lines = (root / "named.jsonl").read_text().splitlines()
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [each["at"] for each in found] == list(range(LAST))
    return [each["name"] for each in found]


def test_a_command_reloads_a_table_from_a_given_time_on(tmp_path: Path) -> None:
    file = written(tmp_path)
    items(tmp_path, "new")
    pipeline = load(file)
    items(tmp_path, "old")
    first = Runner(load(file))
    first.run(max_steps=3)
    items(tmp_path, "new")
    entry = submit(pipeline, Reload("items", 7))
    items(tmp_path, "newer still")  # what counts is what was read when the command was written
    assert describe(entry.command) == "reload: table = 'items', since = 7"
    Runner(load(file)).run()
    assert names(tmp_path) == ["old"] * 7 + ["new"] * 5


def test_a_restart_uses_the_rows_of_the_checkpoint(tmp_path: Path) -> None:
    """The file may change at any time: it is read by a reload, not by a restart."""
    file = written(tmp_path)
    Runner(load(file)).run(max_steps=4)
    items(tmp_path, "new")
    Runner(load(file)).run(max_steps=3)
    submit(load(file), Reload("items", 9))
    Runner(load(file)).run(max_steps=2)
    items(tmp_path, "newest")
    Runner(load(file)).run()
    assert names(tmp_path) == ["old"] * 9 + ["new"] * 3


def test_rows_of_reloads_are_deleted_when_no_checkpoint_needs_them(tmp_path: Path) -> None:
    file = written(tmp_path)
    for i in range(4):
        Runner(load(file)).run(max_steps=2)
        items(tmp_path, f"v{i}")
        submit(load(file), Reload("items"))
    Runner(load(file)).run()
    assert len(list((log_of(load(file)).path / "tables").glob("*.arrow"))) == 1
    assert names(tmp_path)[-1] == "v3"


def test_a_recorded_run_has_the_rows_of_its_reloads(tmp_path: Path) -> None:
    file = written(tmp_path, more='record = "record"')
    submitted = False

    def write(progress: Progress) -> None:
        nonlocal submitted
        if not submitted:
            submitted = True
            items(tmp_path, "new")
            submit(load(file), Reload("items", 6))
            items(tmp_path, "lost")

    Runner(load(file)).run(on_progress=write, every=0)
    assert names(tmp_path) == ["old"] * 6 + ["new"] * 6
    again = tmp_path / "again"
    again.mkdir()
    replay(tmp_path / "record", again)
    assert (again / "named.jsonl").read_text() == (tmp_path / "named.jsonl").read_text()


def test_rows_that_are_missing_in_the_log_are_an_error(tmp_path: Path) -> None:
    log = Log(tmp_path / "control")
    kept = log.keep(b"rows")
    assert log.kept(kept) == b"rows"
    (log.path / "tables" / f"{kept}.arrow").write_bytes(b"other")
    with pytest.raises(ControlError, match="missing or damaged") as caught:
        log.kept(kept)
    assert caught.value.code == "HR-L014"
    log.forget([kept])
    with pytest.raises(ControlError, match="No such file"):
        log.kept(kept)


# --------------------------------------------------------------------------------------------- schedules


def test_a_schedule_writes_a_command_when_the_rows_are_others(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path, reload='"10 minutes"'))
    notes: list[str] = []
    reloader = Reloader.of(pipeline, notes.append)
    assert reloader is not None
    reloader.begin(0.0, at_once=False)
    reloader.look(600.0)
    assert log_of(pipeline).read() == []
    items(tmp_path, "new")
    reloader.look(900.0)
    assert log_of(pipeline).read() == []
    reloader.look(1200.0)
    (entry,) = log_of(pipeline).read()
    assert isinstance(entry.command, Reload)
    assert entry.command.table == "items"
    (tmp_path / "items.csv").unlink()
    reloader.look(1800.0)
    assert [note.split(":")[0] for note in notes] == ["table items keeps its rows"]
    items(tmp_path, "new")
    reloader.look(2400.0)
    assert len(log_of(pipeline).read()) == 1


def test_a_run_that_continues_reads_its_tables_at_once(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path, reload='"1 day"'))
    items(tmp_path, "new")
    reloader = Reloader.of(pipeline, lambda note: None)
    assert reloader is not None
    reloader.begin(0.0, at_once=True)
    reloader.look(0.0)
    assert len(log_of(pipeline).read()) == 1


def test_a_thread_follows_the_schedule_of_a_run(tmp_path: Path) -> None:
    """The run goes on for as long as it takes until the new rows are in its answers."""
    file = written(tmp_path, reload='"1 ms"')
    text = file.read_text().replace("block_bytes = 8", "block_bytes = 8, follow = true")
    file.write_text(text.replace("checkpoint =", 'clock = "event"\ncheckpoint ='))
    runner = Runner(load(file))
    with (tmp_path / "bids.jsonl").open("a") as more:
        at = LAST

        def write(progress: Progress) -> None:
            nonlocal at
            items(tmp_path, "new")
            more.write(json.dumps({"item": 1, "at": at}) + "\n")
            more.flush()
            at += 1
            out = tmp_path / "named.jsonl"
            if out.exists() and '"new"' in out.read_text():
                runner.stop()

        runner.run(on_progress=write, every=0)
    assert '"new"' in (tmp_path / "named.jsonl").read_text()


def test_a_table_without_reload_is_fixed(tmp_path: Path) -> None:
    file = written(tmp_path, reload="false")
    assert Reloader.of(load(file), lambda note: None) is None
    with pytest.raises(ControlError) as caught:
        submit(load(file), Reload("items"))
    assert caught.value.code == "HR-L013"
    with pytest.raises(ControlError, match="there is no table 'none'"):
        submit(load(file), Reload("none"))


def test_a_reload_needs_a_checkpoint(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text().replace('checkpoint = "state"\n', ""))
    with pytest.raises(PipelineError) as caught:
        load(file)
    assert caught.value.code == "HR-F025"


# ----------------------------------------------------------------------------------------------- databases

DATABASES = {"sqlite": sqlite3.connect, "duckdb": duckdb.connect}


@pytest.mark.parametrize("kind", DATABASES)
def test_a_table_of_a_database_is_reloaded(tmp_path: Path, kind: str) -> None:
    database = tmp_path / "items.db"

    def execute(*texts: str) -> None:
        session = DATABASES[kind](str(database))
        for text in texts:
            session.execute(text)
        session.commit()
        session.close()

    execute("CREATE TABLE items (id BIGINT, name TEXT)", "INSERT INTO items VALUES (1, 'old')")
    table = f'type = "{kind}"\ndatabase = "items.db"\nquery = "SELECT name, id FROM items"'
    file = written(tmp_path, table)
    Runner(load(file)).run(max_steps=3)
    execute("UPDATE items SET name = 'new'")
    submit(load(file), Reload("items", 5))
    execute("DELETE FROM items")
    Runner(load(file)).run()
    assert names(tmp_path) == ["old"] * 5 + ["new"] * 7


def test_a_fixed_table_of_a_database_must_not_change(tmp_path: Path) -> None:
    session = sqlite3.connect(tmp_path / "items.db")
    session.execute("CREATE TABLE items (id BIGINT, name TEXT)")
    session.execute("INSERT INTO items VALUES (1, 'old')")
    session.commit()
    table = 'type = "sqlite"\ndatabase = "items.db"\nquery = "SELECT * FROM items"'
    file = written(tmp_path, table, reload="false")
    Runner(load(file)).run(max_steps=3)
    session.execute("UPDATE items SET name = 'new'")
    session.commit()
    session.close()
    with pytest.raises(HeadraceError) as caught:
        Runner(load(file)).run()
    assert caught.value.code == "HR-D005"


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ('type = "sqlite"\ndatabase = "items.db"\nquery = "SELECT * FROM nothing"', "HR-C026"),
        ('type = "sqlite"\ndatabase = "items.db"\nquery = "SELECT 1 AS id"', "HR-I023"),
        ('type = "sqlite"\ndatabase = "items.db"', "HR-F004"),
        ('type = "postgres"\nurl = "postgresql://me:secret@host/db"\nquery = "SELECT 1"', "HR-F004"),
        ('path = "items.csv"\nquery = "SELECT 1"', "HR-F004"),
    ],
)
def test_bad_tables_of_databases_are_refused(tmp_path: Path, table: str, code: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        load(written(tmp_path, table))
    assert caught.value.code == code
    assert "secret@" not in str(caught.value)
