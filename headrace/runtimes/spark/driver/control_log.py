"""The control log of a pipeline on Spark, as the driver follows it.

Shards apply commands by themselves (`worker.controlling`). The driver opens and closes the sinks of queries
that come and go, stops the job, and starts it again for what shards cannot change: bounds that decide how
rows are sent, a first or no budget, and queries that no shard has the rows for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.control import AddQuery, Entry, Log, Stop, check, in_force, log_of
from headrace.control.commands import describe
from headrace.control.in_force import changed
from headrace.control.reloading import with_reloaded_rows
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.runtimes.spark.driver.accepting import check_command
from headrace.runtimes.spark.driver.source_names import OWN, reader
from headrace.runtimes.spark.worker.controlling import in_band

Homes = Callable[[PipelineQuery], bool]
"""Whether a query that is added has a home in the running job."""


class ControlLog:
    """What is in force: the file, changed by the commands up to `position`."""

    def __init__(self, file: Pipeline, say: Callable[[str], object]) -> None:
        self._log, self._say, self._file = log_of(file), say, file
        self._guard = threading.Lock()
        self._started = -1
        self._had: set[str] = set()
        """The names of all queries since the job started."""
        self.position = 0
        self.pipeline = file
        self.must_stop = False
        self.must_start_again = False

    def start(self) -> Pipeline:
        """Read everything that was written so far; returns what is in force."""
        with self._guard:
            entries = self._log.read()
            self.position = entries[-1].number if entries else 0
            self._started = self.position
            self.pipeline = with_reloaded_rows(in_force(self._file, entries), entries, self._log)
            self.must_start_again = False
            self._had = {query.name for query in self.pipeline.queries}
            return self.pipeline

    def look(self, has_home: Homes) -> Pipeline:
        """Follow the commands that are new; returns what is in force."""
        with self._guard:
            for entry in self._log.read(self.position):
                self.position = entry.number
                if entry.refused is None:
                    self._take(entry, has_home)
            return self.pipeline

    def _take(self, entry: Entry, has_home: Homes) -> None:
        """Follow one command, or refuse it."""
        try:
            check(entry.command, self.pipeline)
            after = changed(self.pipeline, entry)
            check_command(entry.command, after)
        except HeadraceError as error:
            self._log.refuse(entry, error)
            self._say(f"command {entry.number} ({describe(entry.command)}) was refused: {error.message}")
            return
        command = entry.command
        if isinstance(command, Stop):
            self.must_stop = True
        elif isinstance(command, AddQuery):
            self.must_start_again |= command.name in self._had or not has_home(after.queries[-1])
            self._had.add(command.name)
        else:
            self.must_start_again |= not in_band(command, self.pipeline, after)
        self.pipeline = after

    def stream(self, spark: SparkSession) -> DataFrame:
        """The commands as a stream of texts."""
        return command_stream(spark, self._log)


def command_stream(spark: SparkSession, log: Log) -> DataFrame:
    """The commands of a log as a stream of texts; one file is one command."""
    folder: Path = log.path
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    source: Any = reader(spark, f"{OWN}control").format("text").option("wholetext", True)
    found: DataFrame = source.load(f"{folder.absolute()}/*.json")
    return found
