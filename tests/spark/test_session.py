"""A session is completed, what is the user's stays, what cannot be set is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AQE = "spark.sql.adaptive.enabled"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def test_importing_headrace_does_not_import_pyspark() -> None:
    words = "import sys, headrace; headrace.spark; print('pyspark' in sys.modules, dir(headrace.spark))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ")
    assert "session" in done.stdout


def test_without_pyspark_the_error_says_what_to_install() -> None:
    words = "import sys; sys.modules['pyspark'] = None; import headrace; headrace.spark.session()"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert "HR-SP03" in done.stderr
    assert "pip install 'headrace[spark]'" in done.stderr


def test_the_face_has_what_it_promises_and_nothing_else(spark: SparkSession) -> None:
    for name in dir(headrace.spark):
        assert callable(getattr(headrace.spark, name)), name
    with pytest.raises(AttributeError, match="nothing"):
        headrace.spark.nothing  # noqa: B018


def test_a_new_session_has_every_setting(spark: SparkSession) -> None:
    from headrace.runtimes.spark.driver.session import quick_python
    from headrace.runtimes.spark.driver.settings import (
        CHECKPOINT_FILES,
        CORES,
        SETTINGS,
        STATE_FORMAT,
        Binding,
    )
    from headrace.runtimes.spark.versions import installed

    found = {
        CORES: "2",
        CHECKPOINT_FILES: installed().checkpoint_files,
        STATE_FORMAT: "2" if installed().state_ids else "1",
    }
    conf = spark.sparkContext.getConf()
    for row in SETTINGS:
        if row.binding is Binding.START:
            assert conf.get(row.name) == row.value, row.name
        elif row.name != "spark.sql.session.timeZone":
            assert spark.conf.get(row.name) == found.get(row.value, row.value), row.name
    assert spark.sparkContext.pythonExec == quick_python()


def test_workers_find_pyspark_where_it_is_installed() -> None:
    """Compiled, and not in the zip file that Spark puts first on their path."""
    import pyspark

    from headrace.runtimes.spark.driver.session import quick_python

    zipped = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    found = subprocess.run(
        [quick_python(), "-c", "import sys, pyspark; print(sys.prefix, pyspark.__file__)"],
        env={**os.environ, "PYTHONPATH": f"{zipped}:/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [sys.prefix, pyspark.__file__]


def test_a_second_call_finds_nothing_to_do(spark: SparkSession) -> None:
    assert headrace.spark.session() is spark
    assert headrace.spark.report(spark).changes == ()
    assert str(headrace.spark.report(spark)) == "  nothing to change"


def test_a_session_that_is_there_is_completed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.runtimes.spark.driver.settings import SETTINGS, Binding, Claim

    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    other = spark.newSession()
    headrace.spark.session(spark=other)
    done = headrace.spark.report(other)
    completed = {
        row.name for row in SETTINGS if row.binding is Binding.RUNTIME and row.claim is not Claim.FRESH
    }
    already = {
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.metricsEnabled",
    }  # the tests' own, the default
    assert {change.name for change in done.set} == completed - already | {"PYSPARK_PYTHON"}
    assert done.too_late == ()
    assert spark.sparkContext.pythonExec == sys.executable
    assert all(change.why in str(done) for change in done.changes)


def test_what_was_undone_is_set_again_and_said(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    spark.conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    headrace.spark.session(spark=spark)
    (change,) = headrace.spark.report(spark).set
    assert change.name == PROVIDER
    assert spark.conf.get(PROVIDER) == change.new
    assert "transformWithState" in caplog.text


def test_the_users_own_value_stays_and_is_named(spark: SparkSession) -> None:
    spark.conf.set(AQE, "true")
    try:
        headrace.spark.session()
        assert spark.conf.get(AQE) == "true"
        (change,) = headrace.spark.report(spark).kept
        assert (change.name, change.old, change.new) == (AQE, "true", "false")
    finally:
        headrace.spark.session(**{AQE: False})
    assert spark.conf.get(AQE) == "false"


def test_what_is_read_only_at_start_is_named_and_not_set(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    headrace.spark.session(master="local[7]", **{"spark.executor.memory": "9g"})
    late = {change.name: change for change in headrace.spark.report(spark).too_late}
    assert set(late) == {"spark.master", "spark.executor.memory"}
    assert late["spark.master"].old == "local[2]"
    assert "cannot change after Spark has started" in caplog.text


def test_the_local_file_system_writes_no_checksum_files(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    spark.range(3).withColumn("x", F.lit(1)).write.parquet(str(tmp_path / "rows"))
    assert [path.name for path in (tmp_path / "rows").iterdir() if path.suffix == ".crc"] == []
