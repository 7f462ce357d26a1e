"""`headrace.spark.files`: a stream of files whose rows are read by Arrow and never become rows of Java.

Listing, offsets, rate limits and exactly-once bookkeeping are Spark's: its source for binary files, without
their content. The tasks that partition and pre-aggregate rows open the files themselves. Elsewhere the stream
is an ordinary streaming DataFrame.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, get_args

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace import tuning
from headrace.connectors.formats import READERS, SUFFIXES, Format
from headrace.connectors.pieces import PieceReader, Storage, local_path
from headrace.errors import SparkError
from headrace.pipeline.spec import FileFormat
from headrace.runtimes.embedded.factory import any_file
from headrace.runtimes.spark.driver.bounds import nearest
from headrace.runtimes.spark.driver.options import cores_of
from headrace.runtimes.spark.driver.source_names import reader as named_reader
from headrace.runtimes.spark.driver.task_streams import TaskStream
from headrace.runtimes.spark.versions import arrow_schema
from headrace.runtimes.spark.worker.file_rows import FileRows
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED
from headrace.runtimes.spark.worker.shards import shard_keys_for
from headrace.schema import Schema

BINARY: Final = "path string, modificationTime timestamp, length bigint, content binary"
_KEPT: Final = "_headrace_files"
"""The attribute of a DataFrame that says which files it reads."""
_SIGNS: Final = "*?[{"


@dataclass(frozen=True)
class FileStream(TaskStream):
    """The files behind a DataFrame: their listing as a stream, and how their rows are read.

    Files of some size are cut into as many pieces as there are `parts`, one for each task.
    """

    parts: int = 1

    def inputs(self, now: Column | None = None, reached: Column | None = None) -> DataFrame:
        """One row for each piece of a file, on its way to the task that reads it."""
        written = F.unix_micros("modificationTime")
        shared = {NOW: now, REACHED: reached}
        columns = [
            F.col("path").alias("uri"),
            written.alias("written"),
            *(each.alias(name) for name, each in shared.items() if each is not None),
        ]
        if self.parts == 1:
            one = [F.lit(0).alias("number"), F.lit(1).alias("count")]
            return self.listed.select(*columns, *one)
        size = F.lit(tuning.current.file_piece_bytes)
        count = F.least(F.lit(self.parts), F.greatest(F.lit(1), F.ceil(F.col("length") / size).cast("int")))
        slots = F.array(*(F.lit(key) for key in shard_keys_for(self.parts)))
        cut = self.listed.select(*columns, count.alias("count"))
        cut = cut.withColumn("number", F.explode(F.sequence(F.lit(0), F.col("count") - 1)))
        place = F.pmod(F.hash("uri") + F.col("number"), F.lit(self.parts)) + 1
        return cut.repartition(self.parts, F.element_at(slots, place))


def files(
    spark: SparkSession,
    path: str | PurePath,
    *,
    format: str | None = None,
    schema: Schema | T.StructType | str | None = None,
    options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    missing: str = "error",
    delimiter: str = ",",
    header: bool = True,
    max_line: int = 8 << 20,
    max_block: int = 128 << 20,
    parts: int | None = None,
    name: str | None = None,
) -> DataFrame:
    """A stream of files that Arrow reads, in the tasks that partition and pre-aggregate their rows.

        rows = headrace.spark.files(spark, "bids/", schema="auction bigint, price double, at timestamp")
        headrace.spark.apply(query, {"bids": rows}, options)

    `path` is a file, a directory or a pattern. `format` is "parquet", "arrow", "csv" or "json" (lines),
    by default that of the suffix. `schema` is an Arrow schema, a schema of Spark or its DDL. For Parquet and
    Arrow files it may be left out: it is then that of a file which is there. Directories named `column=value`
    are columns, if the schema has them.

    `options` are those of Spark's file source: `{"maxFilesPerTrigger": 10}`. `filesystem` is one of
    `pyarrow.fs` or fsspec, with credentials, for files that Arrow cannot open by their URI. `missing`,
    `delimiter`, `header`, `max_line` and `max_block` are those of a pipeline file. A large file is read by
    `parts` tasks, by default one for each core. `name` names the source in a checkpoint.

    Input that is not a row has the reason in the column `__headrace_bad`; Headrace rejects it.
    """
    text = str(path)
    form, rows = _format(format, text), tuning.current.task_block_rows
    how = Format(form, missing, delimiter, header, max_line, rows=rows, most=max_block)
    columns = _schema(schema, how.name, text)
    listed = listing(spark, text, name, options or {})
    base = text if not any(sign in text for sign in _SIGNS) else _before_pattern(text)
    reader = PieceReader(columns, how, Storage(filesystem), base)
    return FileStream(listed, FileRows(reader), parts=parts_in(spark, parts)).frame()


def parts_in(spark: SparkSession, parts: int | None = None) -> int:
    """How many tasks may share a file in a session."""
    return max(1, parts or cores_of(lambda name: spark.conf.get(name, None)) or 1)


def listing(spark: SparkSession, path: str, name: str | None, options: Mapping[str, Any]) -> DataFrame:
    """The files as a stream, without their content. Spark casts values in directories, and need not."""

    def load(columns: str) -> DataFrame:
        plain = spark.readStream if name is None else named_reader(spark, name)
        return plain.format("binaryFile").schema(columns).options(**options).load(_single(path))

    found = load(BINARY)
    named = found.columns[len(BINARY.split(",")) :]
    return load(", ".join([BINARY, *(f"`{column}` string" for column in named)])) if named else found


def _single(path: str) -> str:
    """A path that Spark can stream from: a directory or a pattern; a single file becomes a pattern."""
    local = local_path(path)
    is_file = local is not None and Path(local).is_file() and not any(sign in path for sign in _SIGNS)
    return f"{path[:-1]}[{path[-1]}]" if is_file else path


def _before_pattern(path: str) -> str:
    """The directory above the first part of a path that has a pattern in it."""
    first = min(path.index(sign) for sign in _SIGNS if sign in path)
    return path[:first].rpartition("/")[0]


def _format(written: str | None, path: str) -> str:
    """The format as written, or by the suffix of a file."""
    known = get_args(FileFormat)
    if written is not None and written not in READERS:
        raise SparkError(
            "HR-SP70", f"there is no file format {written!r}", place=path, hint=nearest(written, known)
        )
    local = local_path(path)
    suffix = Path(any_file(Path(local)) if local is not None else path).suffix.lower()
    found = written or SUFFIXES.get(suffix)
    if found is None:
        raise SparkError(
            "HR-SP70",
            f"cannot tell the format of {path!r}",
            place=path,
            hint=f"set format to {', '.join(known)}",
        )
    return found


def _schema(given: Schema | T.StructType | str | None, form: str, path: str) -> Schema:
    """The columns: as given, or those of a file that is there."""
    if isinstance(given, pa.Schema):
        return given
    if given is not None:
        columns: Any = T.StructType.fromDDL(given) if isinstance(given, str) else given
        return pa.schema([pa.field(f.name, f.type) for f in arrow_schema(columns)])
    found = _first_file(path)
    if found is not None and form == "parquet":
        return pq.read_schema(found).remove_metadata()
    if found is not None and form == "arrow":
        with pa.OSFile(str(found)) as file:
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            return (ipc.open_file if is_file else ipc.open_stream)(file).schema.remove_metadata()
    raise SparkError(
        "HR-SP71",
        "the columns of the files are not known",
        place=path,
        hint='files(spark, path, schema="k bigint, at timestamp")',
    )


def _first_file(path: str) -> Path | None:
    """A file that is there, on this machine."""
    local = local_path(path)
    if local is None:
        return None
    here = Path(local)
    if here.is_file():
        return here
    pattern = local if any(sign in local for sign in _SIGNS) else str(here / "**/*")
    inside = map(Path, sorted(glob.glob(pattern, recursive=True)))
    shown = (each for each in inside if each.is_file() and not each.name.startswith((".", "_")))
    return next(shown, None)
