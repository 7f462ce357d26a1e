"""Headrace reaches executors that do not have it, on `local-cluster` and on a master with two workers."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyspark

from examples.cluster.run import JOB, submit
from examples.cluster.standalone import cluster
from headrace.errors import SparkError
from headrace.runtimes.spark.driver import java

# Six Java processes start here; on a busy machine that alone can take minutes.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@contextlib.contextmanager
def local_cluster(folder: Path) -> Iterator[str]:
    yield "local-cluster[2,1,1024]"


@pytest.fixture(autouse=True)
def needs_java() -> None:
    try:
        java.find()
    except SparkError as error:
        pytest.skip(str(error))


def run(master: str, folder: Path) -> dict[str, Any]:
    done = submit(master, folder, str(JOB), out=subprocess.PIPE)
    assert done.returncode == 0
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    # local-cluster knows no other place for its executors than Spark's own folder.
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / told["application"], ignore_errors=True)
    return told


@pytest.mark.parametrize("start", [local_cluster, cluster])
def test_executors_run_the_package_that_was_shipped(start: Any, tmp_path: Path) -> None:
    with start(tmp_path / "logs") as master:
        told = run(master, tmp_path)
    assert told["master"] == master
    assert told["answers"] == [["item0", 998.0], ["item1", 999.0]]
    assert all("/shipped/headrace/" in place for place in told["imported"]), told
