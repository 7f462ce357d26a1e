"""Names of streaming sources, so that a job can gain and lose sources and keep its checkpoint.

Without names, Spark numbers the sources of a checkpoint, and refuses another number of them. With names, all
sources of a query need one. `headrace.runtimes.spark.versions` says which versions have this.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from headrace.runtimes.spark.versions import installed, server

_ENABLED: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_SETTINGS: Final = {_ENABLED: "true", "spark.sql.streaming.offsetLog.formatVersion": "2"}

_GUARD: Final = threading.RLock()

OWN: Final = "headrace_"
"""The beginning of the names of sources that Headrace adds: the timer, the end, the control log."""


def reader(spark: SparkSession, name: str) -> DataStreamReader:
    """A reader of a streaming source, with a name if sources have names in this session."""
    if not have_names(spark):
        return spark.readStream
    named: DataStreamReader = spark.readStream.name(name)
    return named


def have_names(spark: SparkSession) -> bool:
    """Whether sources have names in this session."""
    return spark.conf.get(_ENABLED, "false") == "true" and can_have_names(spark)


def can_have_names(spark: SparkSession) -> bool:
    """Whether this version of Spark has names for sources."""
    return installed().named_sources and server(spark).named_sources


@contextmanager
def named_sources(spark: SparkSession) -> Iterator[None]:
    """While this lasts, sources have names; other queries of the session may have sources without.

    One thread at a time: the settings are those of the whole session.
    """
    if not can_have_names(spark):
        yield
        return
    with with_settings(spark, _SETTINGS):
        yield


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """While this lasts, the session has these settings; one thread at a time."""
    with _GUARD:
        before = {name: spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, former in before.items():
                if former is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, former)
