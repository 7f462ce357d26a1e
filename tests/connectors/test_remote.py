"""Files of an object store: new objects are read once, and each commit is one object, whatever happens."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import Format
from headrace.connectors.pieces import Storage
from headrace.connectors.remote import ObjectsTarget, RemoteFilesSource, is_remote
from headrace.errors import ConnectorError, HeadraceError, PipelineError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Runner
from tests.runtimes.embedded.running import break_down
from tests.servers.s3 import KEY, SECRET, s3

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])


@pytest.fixture(scope="module")
def options() -> Iterator[Mapping[str, str]]:
    pytest.importorskip("moto.server", reason="moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3() as found:
        yield found


@pytest.fixture
def store(options: Mapping[str, str], request: pytest.FixtureRequest) -> Store:
    return Store(options, f"b{abs(hash(request.node.name)) % 10**9}")


class Store:
    """A bucket of its own for each test."""

    def __init__(self, options: Mapping[str, str], bucket: str) -> None:
        self.options, self.bucket = options, bucket
        self.files = fs.S3FileSystem(allow_bucket_creation=True, **options)
        self.files.create_dir(bucket)

    def put(self, key: str, content: bytes) -> None:
        with self.files.open_output_stream(f"{self.bucket}/{key}") as file:
            file.write(content)

    def rows(self, key: str, ids: range) -> None:
        self.put(key, "".join(json.dumps({"id": i, "at": i}) + "\n" for i in ids).encode())

    def content(self, prefix: str) -> dict[str, bytes]:
        """The objects under a prefix, by name."""
        infos = self.files.get_file_info(fs.FileSelector(f"{self.bucket}/{prefix}", allow_not_found=True))
        found = {}
        for info in infos:
            with self.files.open_input_stream(info.path) as file:
                found[info.base_name] = file.read()
        return found

    def source(self, path: str, **keys: Any) -> RemoteFilesSource:
        keys = {"how": Format("json", block=64), "storage": Storage(self.files), "poll": 0.0} | keys
        return RemoteFilesSource(f"s3://{self.bucket}/{path}", SCHEMA, **keys)


def ids(source: RemoteFilesSource) -> list[int]:
    """All rows that are there now."""
    found: list[int] = []
    while (block := source.read()) is not None:
        found += block.data.column("id").to_pylist()
    return found


def test_objects_are_listed_in_order_and_read_once(store: Store) -> None:
    store.rows("in/b.jsonl", range(10, 20))
    store.rows("in/a.jsonl", range(10))
    store.rows("in/_hidden.jsonl", range(99, 100))
    store.rows("in/deep/c.jsonl", range(20, 30))
    assert ids(store.source("in")) == list(range(20))
    assert ids(store.source("in/")) == list(range(20))
    assert ids(store.source("in/*.jsonl")) == list(range(20))
    assert ids(store.source("in/**/*.jsonl")) == list(range(30))
    assert ids(store.source("in/?.jsonl")) == list(range(20))
    assert ids(store.source("in/b.jsonl")) == list(range(10, 20))
    source = store.source("in")
    ids(source)
    assert source.ended
    with pytest.raises(ConnectorError) as caught:
        ids(store.source("nothing"))
    assert caught.value.code == "HR-C001"


def test_new_objects_are_followed(store: Store) -> None:
    notes: list[str] = []
    clock = iter(range(1, 100))
    source = store.source("in", follow=True, say=notes.append, now=lambda: next(clock))
    assert ids(source) == []
    assert source.read_until() == 1
    store.rows("in/a.jsonl", range(3))
    assert ids(source) == [0, 1, 2]
    assert not source.ended
    store.rows("in/a.jsonl", range(5))
    store.rows("in/b.jsonl", range(5, 7))
    assert ids(source) == [5, 6]
    assert len(notes) == 1
    assert "was replaced after it was read" in notes[0]


def test_every_position_continues_where_it_was(store: Store, tmp_path: Path) -> None:
    store.rows("in/a.jsonl", range(8))
    store.rows("in/b.jsonl", range(8, 16))
    finished = FinishedFiles(tmp_path / "files", "s")
    source = store.source("in", finished=finished)
    found: list[int] = []
    while True:
        before = source.position()
        finished.secure()
        block = source.read()
        again = store.source("in", finished=FinishedFiles(tmp_path / "files", "s"))
        again.seek(json.loads(json.dumps(before)))
        assert [*found, *ids(again)] == list(range(16))
        if block is None:
            break
        again.seek(json.loads(json.dumps(before)), json.loads(json.dumps(block.span)))
        repeated = again.read()
        assert repeated is not None
        assert repeated.data.equals(block.data)
        found += block.data.column("id").to_pylist()


def test_an_object_that_changed_while_it_was_read_is_an_error(store: Store, tmp_path: Path) -> None:
    store.rows("in/a.jsonl", range(20))
    finished = FinishedFiles(tmp_path / "files", "s")
    source = store.source("in", finished=finished)
    source.read()
    position = source.position()
    finished.secure()
    store.rows("in/a.jsonl", range(30))
    with pytest.raises(ConnectorError) as caught:
        store.source("in", finished=FinishedFiles(tmp_path / "files", "s")).seek(position)
    assert caught.value.code == "HR-C002"


def test_an_object_that_is_gone_before_it_is_read_is_rejected(store: Store) -> None:
    store.rows("in/a.jsonl", range(2))
    store.rows("in/b.jsonl", range(2, 4))
    source = store.source("in")
    assert source.read() is not None
    store.files.delete_file(f"{store.bucket}/in/b.jsonl")
    blocks = []
    while (block := source.read()) is not None:
        blocks.append(block)
    assert [each.bad[0].code for each in blocks if each.bad] == ["HR-R106"]


# -------------------------------------------------------------------------------------------- pipelines

FILE = """
[pipeline]
name = "remote"
runtime = "embedded"
checkpoint = "state"
interval = "1 hour"
every_rows = 3
[streams.s]
source = {{ path = "s3://{bucket}/in/*.jsonl", block_bytes = 32, {storage} }}
schema = "id BIGINT, at BIGINT"
time = {{ column = "at", unit = "tick" }}
[[queries]]
name = "all"
sql = "SELECT id FROM s WHERE id % 3 <> 0"
sink = {{ path = "s3://{bucket}/out.{ending}", {storage} }}
"""
STORAGE = (
    'storage = {{ endpoint_override = "{endpoint_override}", scheme = "http", region = "us-east-1", '
    'access_key = "${{TEST_KEY}}", secret_key = "${{TEST_SECRET}}" }}'
)


def from_json(data: bytes) -> pa.Table:
    return pj.read_json(io.BytesIO(data))


READ: dict[str, Callable[[bytes], pa.Table]] = {
    "jsonl": from_json,
    "csv": lambda data: pv.read_csv(io.BytesIO(data)),
    "parquet": lambda data: pq.read_table(io.BytesIO(data)),
}


def written(root: Path, store: Store, ending: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("TEST_SECRET", SECRET)
    storage = STORAGE.format(**store.options)
    (root / "pipeline.toml").write_text(FILE.format(bucket=store.bucket, ending=ending, storage=storage))
    return root / "pipeline.toml"


@pytest.mark.parametrize("ending", READ)
def test_rows_go_from_objects_to_objects_exactly_once(
    store: Store, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run breaks down again and again, without a commit, and at last ends by itself."""
    for i in range(3):
        store.rows(f"in/{i}.jsonl", range(10 * i, 10 * i + 10))
    file = written(tmp_path, store, ending, monkeypatch)
    break_down(file, [1, 2, 4, 3, 5])
    result = Runner(load(file)).run()
    assert result.state == "finished"
    parts = store.content(f"out.{ending}")
    found = [i for name in sorted(parts) for i in READ[ending](parts[name]).column("id").to_pylist()]
    assert found == [i for i in range(30) if i % 3]
    assert len(parts) > 1
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes()
            assert KEY.encode() not in path.read_bytes()


def test_an_output_that_exists_is_left_alone_or_replaced(store: Store) -> None:
    rows, other = pa.table({"id": [1, 2]}), pa.table({"id": [3]})
    uri, storage = f"s3://{store.bucket}/out", Storage(store.files)
    first = ObjectsTarget(uri, "json", storage)
    first.begin()
    first.open(rows.schema, "a" * 32)
    assert first.last("a" * 32) == 0
    first.apply("a" * 32, 1, rows)
    first.apply("a" * 32, 1, rows)
    assert first.last("a" * 32) == 1
    store.put("out/precious.txt", b"mine")
    with pytest.raises(ConnectorError) as caught:
        ObjectsTarget(uri, "json", storage).begin()
    assert caught.value.code == "HR-C010"
    second = ObjectsTarget(uri, "json", storage, "replace")
    second.begin()
    second.open(rows.schema, "b" * 32)
    second.apply("b" * 32, 1, other)
    assert store.content("out") == {
        "part-bbbbbbbbbbbb-00000001.jsonl": b'{"id":3}\n',
        "precious.txt": b"mine",
    }


def test_a_store_that_cannot_be_reached_is_an_error_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    file = written(tmp_path, store, "jsonl", monkeypatch)
    monkeypatch.setenv("TEST_KEY", KEY)
    text = file.read_text().replace(store.bucket, "no-such-bucket")
    with pytest.raises(HeadraceError) as caught:
        Runner(parse(text, root=tmp_path)).run()
    assert SECRET not in str(caught.value)


def test_a_secret_in_the_file_is_refused(tmp_path: Path) -> None:
    text = FILE.format(bucket="b", ending="csv", storage='storage = { secret_key = "plain" }')
    with pytest.raises(PipelineError, match="must not be written into the file"):
        parse(text, root=tmp_path)


def test_other_schemes_go_through_fsspec(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/in/a.jsonl", b'{"id":1,"at":1}\n')
    assert is_remote("memory://in")
    for path in ("in/a.jsonl", "in/*.jsonl", "in"):
        for storage in (Storage(), Storage(memory)):
            source = RemoteFilesSource(f"memory://{path}", SCHEMA, Format("json"), storage=storage)
            assert ids(source) == [1]


def test_a_pipeline_reads_and_writes_through_fsspec_exactly_once(tmp_path: Path) -> None:
    """A file system that cannot make an object appear at once: it is written under another name first."""
    import fsspec

    memory = fsspec.filesystem("memory")
    for i in range(3):
        lines = "".join(json.dumps({"id": 10 * i + j, "at": 10 * i + j}) + "\n" for j in range(10))
        memory.pipe(f"/store/in/{i}.jsonl", lines.encode())
    text = FILE.format(bucket="store", ending="jsonl", storage='format = "json"')
    (tmp_path / "pipeline.toml").write_text(text.replace("s3://", "memory://"))
    break_down(tmp_path / "pipeline.toml", [1, 2, 4, 3])
    assert Runner(load(tmp_path / "pipeline.toml")).run().state == "finished"
    parts = {Path(path).name: memory.cat(path) for path in memory.ls("/store/out.jsonl", detail=False)}
    assert all(name.startswith("part-") for name in parts)
    found = [json.loads(line)["id"] for name in sorted(parts) for line in parts[name].splitlines()]
    assert found == [i for i in range(30) if i % 3]
