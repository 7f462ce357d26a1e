"""The face of Headrace on Spark: `headrace.spark.session()` and its kin.

Importing this module does not import PySpark; the first use of a name does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headrace.errors import SparkError

if TYPE_CHECKING:
    from headrace.runtimes.spark.apply import apply
    from headrace.runtimes.spark.lock import lock
    from headrace.runtimes.spark.outputs import Files, outputs
    from headrace.runtimes.spark.pipeline import Runner
    from headrace.runtimes.spark.progress import listener
    from headrace.runtimes.spark.punctuate import punctuate
    from headrace.runtimes.spark.session import report, session
    from headrace.runtimes.spark.types import stream

# Name → the file of headrace.runtimes.spark that defines it. A new name also goes in the imports above.
_HOMES = {
    "Files": "outputs",
    "lock": "lock",
    "apply": "apply",
    "outputs": "outputs",
    "Runner": "pipeline",
    "stream": "types",
    "listener": "progress",
    "punctuate": "punctuate",
    "report": "session",
    "session": "session",
}

_EXTRA = ("pyspark", "pandas", "google")

__all__ = [
    "Files",
    "Runner",
    "apply",
    "listener",
    "lock",
    "outputs",
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
