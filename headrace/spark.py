"""Headrace on Spark: `headrace.spark.session()`, `job`, `apply`, `outputs`, `punctuate` and more.

Importing this module does not import PySpark; the first use of a name does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headrace.errors import SparkError

if TYPE_CHECKING:
    from headrace.runtimes.spark.driver.apply import apply
    from headrace.runtimes.spark.driver.files import files
    from headrace.runtimes.spark.driver.job import Job, job
    from headrace.runtimes.spark.driver.kafka import kafka
    from headrace.runtimes.spark.driver.lock import lock
    from headrace.runtimes.spark.driver.options import SparkOptions
    from headrace.runtimes.spark.driver.outputs import outputs
    from headrace.runtimes.spark.driver.pipeline import Runner
    from headrace.runtimes.spark.driver.preview import preview
    from headrace.runtimes.spark.driver.progress import listener
    from headrace.runtimes.spark.driver.punctuate import punctuate
    from headrace.runtimes.spark.driver.session import report, session
    from headrace.runtimes.spark.driver.writing import Files
    from headrace.runtimes.spark.types import stream

# Name → the file of headrace.runtimes.spark that defines it. Add a new name to the imports above too.
_HOMES = {
    "Files": "driver.writing",
    "Job": "driver.job",
    "job": "driver.job",
    "kafka": "driver.kafka",
    "lock": "driver.lock",
    "apply": "driver.apply",
    "files": "driver.files",
    "outputs": "driver.outputs",
    "Runner": "driver.pipeline",
    "SparkOptions": "driver.options",
    "stream": "types",
    "listener": "driver.progress",
    "preview": "driver.preview",
    "punctuate": "driver.punctuate",
    "report": "driver.session",
    "session": "driver.session",
}

_EXTRA = ("pyspark", "pandas", "google")

__all__ = [
    "Files",
    "Job",
    "Runner",
    "SparkOptions",
    "apply",
    "files",
    "job",
    "kafka",
    "listener",
    "lock",
    "outputs",
    "preview",
    "punctuate",
    "report",
    "session",
    "stream",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("headrace.runtimes.spark.versions").installed()
        module = importlib.import_module(f"headrace.runtimes.spark.{home}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise SparkError(
            "HR-SP03",
            f"headrace.spark needs {error.name}, which is not installed",
            hint="pip install 'headrace[spark]'",
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
