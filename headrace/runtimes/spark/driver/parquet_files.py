"""Parquet files that Arrow writes: the results of a micro-batch never become rows of Java.

Packed results are unpacked, put in order and written in one task, or in the driver if they are few. They are
written to a hidden folder. The driver moves the files of a micro-batch when all of them are complete, so an
attempt that failed leaves nothing that a reader sees.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.pieces import local_path
from headrace.runtimes.spark.driver.unpack import Unpack
from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.versions import arrow_schema, is_connect
from headrace.runtimes.spark.worker.partitioner import task_number
from headrace.runtimes.spark.worker.task_files import draft_of
from headrace.schema import Schema

CODECS: Final = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4_raw": "lz4",
}
"""By Spark's name of a codec, the name that Arrow has for it."""

_CODEC: Final = "spark.sql.parquet.compression.codec"
_WRITTEN: Final = pa.schema([("file", pa.string())])
_PLAIN: Final[tuple[Callable[[Any], bool], ...]] = (
    pt.is_boolean,
    pt.is_signed_integer,
    pt.is_floating,
    pt.is_decimal128,
    pt.is_string,
    pt.is_binary,
    pt.is_date32,
    pt.is_timestamp,
)


@dataclass(frozen=True)
class WriteParquet:
    """Packed rows to one Parquet file, in `mapInArrow` or in the driver; gives the name of the file."""

    unpack: Unpack
    folder: str
    codec: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name = f"part-{task_number():05d}-{uuid.uuid4().hex}.parquet"
        with pq.ParquetWriter(Path(self.folder, name), self.unpack.schema, compression=self.codec) as writer:
            for batch in self.unpack(batches):
                writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"file": [name]}, _WRITTEN)


@dataclass(frozen=True)
class ParquetFolder:
    """A folder on this machine in which each micro-batch has a folder of Parquet files, `batch=<number>`."""

    path: Path
    codec: str

    @staticmethod
    def of(spark: SparkSession, path: str, schema: Schema) -> ParquetFolder | None:
        """The folder, if this process and Spark's workers can write it as Spark would; otherwise None.

        Spark resolves a relative path in another process, so it writes to those itself.
        """
        local = local_path(path)
        if local is None or not Path(local).is_absolute() or is_connect(spark):
            return None
        codec = CODECS.get((spark.conf.get(_CODEC) or "").lower())
        if codec is None or not (spark.sparkContext.master or "").startswith("local") or not is_plain(schema):
            return None
        return ParquetFolder(Path(local), codec)

    def show(self, batch: int, files: list[str]) -> None:
        """Show the files that tasks have written to the draft already."""
        self._finish(batch, draft_of(self.path, batch), files)

    def write(self, batch: int, unpack: Unpack, packed: pa.RecordBatch) -> None:
        """Write rows that are in the driver."""
        draft = self._draft(batch)
        (made,) = WriteParquet(unpack, str(draft), self.codec)([packed])
        self._finish(batch, draft, made.column(0).to_pylist())

    def collect(self, batch: int, unpack: Unpack, bodies: DataFrame) -> None:
        """Write rows in Spark's tasks, one file for each partition of the packed rows."""
        draft = self._draft(batch)
        made = bodies.mapInArrow(WriteParquet(unpack, str(draft), self.codec), "file string").collect()
        self._finish(batch, draft, [row.file for row in made])

    def _draft(self, batch: int) -> Path:
        """An empty hidden folder for tasks to write to. What a failed attempt left is removed."""
        draft = draft_of(self.path, batch)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        return draft

    def _finish(self, batch: int, draft: Path, files: list[str]) -> None:
        """Show the files that count. A task that Spark has given up may still write to the draft."""
        ready, final = self.path / f".batch={batch}", self.path / f"batch={batch}"
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir()
        for name in files:
            (draft / name).rename(ready / name)
        (ready / "_SUCCESS").touch()
        shutil.rmtree(final, ignore_errors=True)
        ready.rename(final)
        shutil.rmtree(draft, ignore_errors=True)


def is_plain(schema: Schema) -> bool:
    """Whether Arrow and Spark write the same Parquet types for all columns."""
    flat = all(any(is_of(field.type) for is_of in _PLAIN) for field in schema)
    return flat and [f.type for f in arrow_schema(spark_schema(schema))] == [f.type for f in schema]
