"""No run changes what it reads, however its paths are written; and no two outputs share a place."""

from __future__ import annotations

import glob
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Runner

TEXT = """
[pipeline]
name = "p"
runtime = "{runtime}"
{more}

[streams.s]
source = {source}
schema = "k BIGINT, at BIGINT"
time = {{ column = "at", unit = "us" }}
bounds = {{ disorder = "1 hour" }}

[tables.t]
path = "t.csv"

[[queries]]
name = "q"
sql = "SELECT k, at FROM s [NOW]"
sink = {sink}
{outputs}
"""


def laid_out(root: Path) -> Path:
    """Files with links of every kind to them."""
    root, away = root / "root", root / "away"
    (root / "data" / "deep").mkdir(parents=True)
    away.mkdir()
    (away / "d.jsonl").write_text(json.dumps({"k": 9, "at": 9}) + "\n")
    (root / "far").symlink_to(away)
    for i, name in enumerate(("data/a.jsonl", "data/b.jsonl", "data/deep/c.jsonl", "top.jsonl", "old.jsonl")):
        (root / name).write_text(json.dumps({"k": i, "at": i}) + "\n")
    (root / "t.csv").write_text("n\n1\n")
    (root / "link").symlink_to("data")
    (root / "alias.jsonl").symlink_to("data/a.jsonl")
    (root / "hard.jsonl").hardlink_to(root / "data" / "a.jsonl")
    (root / "data" / "out.jsonl").symlink_to(root / "new.jsonl")
    return root


def text(
    root: Path, source: str, sink: str, *, runtime: str = "embedded", more: str = "", outputs: str = ""
) -> str:
    sink = sink if sink.startswith("{") else json.dumps(sink)
    return TEXT.format(source=json.dumps(source), sink=sink, runtime=runtime, more=more, outputs=outputs)


@pytest.mark.parametrize("runtime", ["embedded", "spark"])
@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("data/a.jsonl", "data/a.jsonl"),
        ("data/a.jsonl", "./data/../data/a.jsonl"),
        ("data/a.jsonl", "link/a.jsonl"),
        ("link/a.jsonl", "data/a.jsonl"),
        ("data/a.jsonl", "alias.jsonl"),
        ("alias.jsonl", "data/a.jsonl"),
        ("data/a.jsonl", "hard.jsonl"),
        ("data", "data/answers.jsonl"),
        ("data", "link/answers.jsonl"),
        ("data", "data/answers.parquet"),
        ("data", "alias.jsonl"),
        ("data", "new.jsonl"),
        ("data/*.jsonl", "data/answers.jsonl"),
        ("*.jsonl", "answers.jsonl"),
        ("**/*.jsonl", "data/deep/answers.jsonl"),
        ("*/*.parquet", "answers.parquet"),
        ("*/*.jsonl", "far/e.jsonl"),
        ("*/*.jsonl", "../away/e.jsonl"),
        ("data/a.jsonl", "data"),
        ("top.jsonl", "t.csv"),
    ],
)
def test_an_output_that_is_an_input_is_refused_with_its_line(
    tmp_path: Path, source: str, sink: str, runtime: str
) -> None:
    root = laid_out(tmp_path)
    table = f'{{ path = "{sink}", format = "json", existing = "replace" }}'
    for written in (table, table.replace(sink, str(root / sink))):
        with pytest.raises(HeadraceError, match="HR-F023") as error:
            parse(text(root, source, written, runtime=runtime), root=root)
        assert "line 19: queries.q.sink" in error.value.place


@pytest.mark.parametrize("key", ["late", "rejected"])
def test_late_and_rejected_rows_do_not_overwrite_an_input_either(tmp_path: Path, key: str) -> None:
    root = laid_out(tmp_path)
    with pytest.raises(HeadraceError, match="HR-F023") as error:
        parse(text(root, "top.jsonl", "new.jsonl", outputs=f'{key} = "./top.jsonl"'), root=root)
    assert f"queries.q.{key}" in error.value.place


def test_the_pipeline_file_and_the_text_of_a_query_are_inputs_too(tmp_path: Path) -> None:
    root = laid_out(tmp_path)
    file = root / "p.toml"
    file.write_text(text(root, "top.jsonl", '{ path = "p.toml", format = "json", existing = "replace" }'))
    with pytest.raises(HeadraceError, match=r"HR-F023.*the pipeline file"):
        load(file)
    (root / "q.sql").write_text("SELECT k FROM s [NOW]")
    written = text(root, "top.jsonl", '{ path = "q.sql", format = "json", existing = "replace" }')
    with pytest.raises(HeadraceError, match=r"HR-F023.*the text of query"):
        parse(written.replace('sql = "SELECT k, at FROM s [NOW]"', 'sql_file = "q.sql"'), root=root)


@pytest.mark.parametrize(
    "sink",
    ["answers.jsonl", "data.jsonl", "database/answers.jsonl", "data/_answers.jsonl", "data/.out/a.jsonl"],
)
def test_what_is_not_read_may_be_written(tmp_path: Path, sink: str) -> None:
    root = laid_out(tmp_path)
    assert parse(text(root, "data", sink), root=root)
    assert parse(text(root, "data/*.jsonl", sink), root=root)


@pytest.mark.parametrize(
    ("sink", "other"),
    [("a.jsonl", "./a.jsonl"), ("link/x.jsonl", "data/x.jsonl"), ("out.parquet", "out.parquet/late.jsonl")],
)
def test_two_outputs_do_not_share_a_place(tmp_path: Path, sink: str, other: str) -> None:
    root = laid_out(tmp_path)
    with pytest.raises(HeadraceError, match=r"HR-F015.*two outputs"):
        parse(text(root, "top.jsonl", sink, outputs=f'late = "{other}"'), root=root)
    second = f'[[queries]]\nname = "r"\nsql = "SELECT k FROM s [NOW]"\nsink = "{other}"'
    with pytest.raises(HeadraceError, match=r"HR-F015.*two outputs"):
        parse(text(root, "top.jsonl", sink, outputs=second), root=root)


def test_an_output_does_not_hold_the_checkpoint(tmp_path: Path) -> None:
    root = laid_out(tmp_path)
    with pytest.raises(HeadraceError, match=r"HR-F015.*checkpoint"):
        parse(text(root, "top.jsonl", "out.parquet", more='checkpoint = "out.parquet/state"'), root=root)


SOURCES = [
    *("data", "data/a.jsonl", "data/b.jsonl", "data/deep", "data/deep/c.jsonl", "far/d.jsonl", "alias.jsonl"),
    *("link", "link/a.jsonl", "link/deep/c.jsonl", "hard.jsonl", "top.jsonl", "old.jsonl"),
    *("data/*.jsonl", "*.jsonl", "**/*.jsonl", "*/?.jsonl"),
]
SINKS = [
    *(*SOURCES, "data/new.jsonl", "data/_new.jsonl", "data/out.jsonl", "far/e.jsonl", "../away/e.jsonl"),
    *("new.jsonl", "new/deep.jsonl", "t.csv"),
]
SPELLED = st.sampled_from(
    ("{}", "./{}", "data/../{}", "link/deep/../../{}", "{root}/{}", "{root}/link/../{}")
)


@given(st.sampled_from(SOURCES), st.sampled_from(SINKS), SPELLED, SPELLED, st.booleans())
def test_whatever_is_named_as_source_and_sink_a_run_changes_no_input_and_reads_no_output(
    source: str, sink: str, source_as: str, sink_as: str, as_parts: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = laid_out(Path(folder))
        pattern = root / source
        listed = glob.glob(str(pattern / "*") if pattern.is_dir() else str(pattern), recursive=True)
        read = [
            path for path in listed if os.path.isfile(path) and not Path(path).name.startswith((".", "_"))
        ]
        before = {path: Path(path).read_bytes() for path in [*read, root / "t.csv"]}
        # A file that is found by two paths to its folder is one file, and is read once.
        once = {
            os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in read
        }
        rows = sum(Path(path).read_bytes().count(b"\n") for path in once)
        form = "parquet" if as_parts else "json"
        written = f'{{ path = "{sink_as.format(sink, root=root)}", format = "{form}", existing = "replace" }}'
        try:
            pipeline = parse(text(root, source_as.format(source, root=root), written), root=root)
            processed = Runner(pipeline).run().progress.streams["s"].rows_in
        except HeadraceError:
            processed = rows
        assert processed == rows
        assert {path: Path(path).read_bytes() for path in before} == before
