"""New objects of a store on Spark, without Spark: its micro-batches together have each object once.

`Reader` is asked as Spark asks it: with and without a start, with a limit, again after a crash.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.cloudpickle import dumps
from pyspark.cloudpickle import loads as unpickled

from headrace.connectors.pieces import Storage
from headrace.connectors.remote import Listed, Objects
from headrace.errors import ConnectorError, PipelineError
from headrace.runtimes.spark.driver.objects import check_options
from headrace.runtimes.spark.worker.object_rows import MOST_FILES, ObjectFiles, ObjectLog, Place, Reader

URI = "memory://objects/in/*.jsonl"


class Bucket:
    """A bucket in memory, empty at first."""

    def __init__(self) -> None:
        self.files = fsspec.filesystem("memory")
        if self.files.exists("/objects"):
            self.files.rm("/objects", recursive=True)
        self.files.mkdirs("/objects/in")
        self.count = 0

    def put(self) -> None:
        self.files.pipe(f"/objects/in/{self.count:04}.jsonl", b"{}\n")
        self.count += 1


def names(reader: Reader, start: dict[str, int], end: dict[str, int]) -> list[str]:
    found = [line for part in reader.partitions(start, end) for line in reader.read(part)]
    return [Path(uri).stem for uri, _, _ in found]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(("on", "again", "crash"))), max_size=8),
    st.one_of(st.none(), st.integers(1, 5)),
    st.booleans(),
    st.integers(1, 3),
)
def test_micro_batches_have_each_object_once(
    steps: list[tuple[int, str]], most: int | None, knows: bool, parts: int
) -> None:
    """`knows`: Spark says where a micro-batch starts; only then can there be a limit."""
    bucket = Bucket()
    with TemporaryDirectory() as folder:
        place = Place(URI, Storage(), Path(folder, "objects", "s.jsonl"), follow=True, poll=0, parts=parts)
        reader = Reader(place, most)
        at, found = reader.initialOffset(), list[str]()
        for new, what in [*steps, *[(0, "on")] * 40]:
            for _ in range(new):
                bucket.put()
            end = reader.latestOffset(at if knows else None)
            here = names(reader, at, end)
            assert most is None or not knows or len(here) <= most
            if what == "again":  # the micro-batch runs again in another process, when there are more objects
                bucket.put()
                assert names(Reader(place, most), at, end) == here
            if what == "crash":  # what was listed is known, but Spark has not kept its number
                with open(place.log, "ab") as log:
                    log.write(b'["cut off')
                reader = Reader(place, most)
                continue
            found += here
            at = end
        assert found == [f"{i:04}" for i in range(bucket.count)]


def test_a_stream_that_ends_is_listed_once(tmp_path: Path) -> None:
    bucket = Bucket()
    place = Place(URI, Storage(), tmp_path / "s.jsonl")
    with pytest.raises(ConnectorError, match="HR-C001"):
        Reader(place).latestOffset()
    bucket.put()
    end = Reader(place).latestOffset()
    bucket.put()
    assert Reader(place).latestOffset(end) == end == {"objects": 1}


def test_a_store_is_listed_at_most_once_in_a_while(tmp_path: Path) -> None:
    bucket = Bucket()
    reader = Reader(Place(URI, Storage(), tmp_path / "s.jsonl", follow=True, poll=3600))
    bucket.put()
    assert reader.latestOffset() == {"objects": 1}
    bucket.put()
    assert reader.latestOffset() == {"objects": 1}


def test_a_log_keeps_what_it_has(tmp_path: Path) -> None:
    log = ObjectLog(tmp_path / "deep" / "s.jsonl")
    log.add([Listed("b/ü\n.jsonl", 1, 2), Listed("b/2", 3, 4)])
    log.add([Listed("b/2", 9, 9), Listed("b/3", 5, 6)])
    assert [each.key for each in ObjectLog(tmp_path / "deep" / "s.jsonl").listed()] == [
        "b/ü\n.jsonl",
        "b/2",
        "b/3",
    ]


@pytest.mark.parametrize(
    ("uri", "root", "key", "expected"),
    [
        ("s3://bucket/in/*.jsonl", "bucket/in/*.jsonl", "bucket/in/a", "s3://bucket/in/a"),
        ("s3://bucket/in/?region=x", "bucket/in", "bucket/in/a", "s3://bucket/in/a"),
        ("hdfs://h:9000/in/", "/in", "/in/a", "hdfs://h:9000/in/a"),
        ("memory://store/in", "/store/in", "/store/in/a", "memory:///store/in/a"),
    ],
)
def test_an_object_has_a_uri(uri: str, root: str, key: str, expected: str) -> None:
    objects = Objects.__new__(Objects)
    objects.uri, objects._root = uri, root
    assert objects.uri_of(key) == expected


def test_what_a_task_needs_can_be_sent(tmp_path: Path) -> None:
    bucket = Bucket()
    bucket.put()
    made: Any = unpickled(
        dumps(ObjectFiles.for_stream("s", Place(URI, Storage(bucket.files), tmp_path / "s.jsonl")))
    )
    assert made.name() == "headrace_objects_s"
    assert "secret" not in json.dumps(made({}).options)
    assert made({MOST_FILES: "1"}).streamReader(None).latestOffset({"objects": 0}) == {"objects": 1}


def test_other_options_are_refused() -> None:
    check_options({MOST_FILES: 3}, "spark.sources.s")
    with pytest.raises(PipelineError, match=r"HR-F017.*latestFirst"):
        check_options({"latestFirst": True}, "spark.sources.s")
