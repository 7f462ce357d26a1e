"""What differs between versions of Spark, and what Spark Connect lacks: no other file compares versions.

`make test-spark-versions` runs a part of the tests with every version in this table, and with Spark Connect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import SparkError

_STREAM_CLASSES: Final = "org.apache.spark.sql.execution.streaming."
_FILE_MANAGER: Final = "FileSystemBasedCheckpointFileManager"

Number = tuple[int, int]
"""A version, such as (4, 3)."""


def _in_utc(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC")


def _always_utc(columns: StructType) -> pa.Schema:
    """Before 4.2 the zone was not an argument: the type of an instant names UTC."""
    return to_arrow_schema(columns)


@dataclass(frozen=True)
class Features:
    """What a version of Spark has, where versions differ."""

    checkpoint_files: str
    """The class that writes checkpoint files without child processes."""
    arrow_schema: Callable[[StructType], pa.Schema]
    """Columns of Spark as an Arrow schema, with instants in UTC."""
    named_sources: bool = False
    """Sources can have names, so that they may come and go with one checkpoint."""
    stateful_connect: bool = False
    """Spark Connect has `transformWithStateInPandas`."""
    state_ids: bool = False
    """State files have the id of the attempt that wrote them, and a checkpoint keeps its format."""
    moves_state: bool = False
    """The state of a checkpoint can be moved to another number of partitions."""


_NEW_PLACE: Final = _STREAM_CLASSES + "checkpointing." + _FILE_MANAGER

VERSIONS: Final[dict[Number, Features]] = {
    (4, 0): Features(_STREAM_CLASSES + _FILE_MANAGER, _always_utc),
    (4, 1): Features(_NEW_PLACE, _always_utc, stateful_connect=True),
    (4, 2): Features(_NEW_PLACE, _in_utc, stateful_connect=True, named_sources=True),
    (4, 3): Features(
        _NEW_PLACE, _in_utc, stateful_connect=True, named_sources=True, state_ids=True, moves_state=True
    ),
}
"""The versions that are tested, oldest first."""

OLDEST: Final = min(VERSIONS)
NEWEST: Final = max(VERSIONS)


def number(version: str) -> Number:
    """The first two parts of a version: '4.3.0' is (4, 3)."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise _refused(f"cannot read the version {version!r} of Spark")
    return int(found[1]), int(found[2])


def features(version: str) -> Features:
    """What a version has; one that is newer than all that are tested counts as the newest."""
    of = number(version)
    if of < OLDEST:
        raise _refused(f"Spark {version} is too old")
    return VERSIONS[min(of, NEWEST)]


def first_with(feature: str) -> str:
    """The first version that has a feature, by its name in `Features`."""
    major, minor = next(of for of, row in VERSIONS.items() if getattr(row, feature))
    return f"{major}.{minor}"


def _refused(message: str) -> SparkError:
    known = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))
    return SparkError(
        "HR-SP65", message, hint=f"Headrace runs on Spark {known}: pip install 'headrace[spark]' installs one"
    )


def installed() -> Features:
    """What the installed PySpark has; raises HR-SP65 if Headrace cannot use it."""
    return features(pyspark.__version__)


def arrow_schema(columns: StructType) -> pa.Schema:
    """Columns of Spark as an Arrow schema, with instants in UTC."""
    return installed().arrow_schema(columns)


def server(spark: SparkSession) -> Features:
    """What the Spark of a session has; with Spark Connect it may be older or newer than the installed one."""
    return features(spark.version)


# --- Spark Connect ----------------------------------------------------------------------------------------


def is_connect(session: object) -> bool:
    """Whether a session is one of Spark Connect, where Python is a client and the JVM is elsewhere."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def jvm(spark: SparkSession) -> Any:
    """The JVM of the driver; None with Spark Connect."""
    return None if is_connect(spark) else spark.sparkContext._jvm


def check_stateful(spark: SparkSession) -> None:
    """Raise HR-SP02 if this session cannot run a stateful Python operator, which `apply` and `job` need."""
    if is_connect(spark) and not (installed().stateful_connect and server(spark).stateful_connect):
        raise SparkError(
            "HR-SP02",
            f"Spark Connect has no stateful Python operators in version {spark.version} "
            f"(client {pyspark.__version__})",
            hint=f"use Spark {first_with('stateful_connect')} or later on both sides, or a session without "
            "Spark Connect; punctuate and listener work here",
        )


def refuse_connect(spark: SparkSession, what: str, hint: str) -> None:
    """Raise HR-SP02 if the session is one of Spark Connect."""
    if is_connect(spark):
        raise SparkError("HR-SP02", f"{what} does not work with Spark Connect", hint=hint)
