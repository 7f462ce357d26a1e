"""What Spark and Java say while a pipeline runs goes to a file; tests/spark has real runs."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.spark_run import LARGE, spark_writes_to
from headrace.errors import SparkError

PROGRAM = """
import logging, subprocess, sys, warnings
from pathlib import Path
from headrace.cli.spark_run import spark_writes_to
from headrace.errors import HeadraceWarning

with spark_writes_to(Path(sys.argv[1])):
    subprocess.run([sys.executable, "-c", "import sys; print('a worker dies', file=sys.stderr)"])
    logging.getLogger("py4j.clientserver").error("a broken pipe")
    warnings.warn("of a library", UserWarning)
    warnings.warn("only one shard", HeadraceWarning)
    print("our progress", file=sys.stderr)
subprocess.run([sys.executable, "-c", "import sys; print('after it', file=sys.stderr)"])
logging.getLogger("py4j").warning("as before")
"""


def test_only_our_words_reach_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "state" / "spark" / "spark.log"
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log)], capture_output=True, text=True, check=True
    )
    assert run.stderr.splitlines() == ["note: only one shard", "our progress", "after it", "as before"]
    for words in ("a worker dies", "a broken pipe", "UserWarning: of a library"):
        assert words in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_an_error_names_the_file_and_a_large_file_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("the run before\n")
    words = f"hint: try again; Spark's own messages are in {log}"
    with pytest.raises(SparkError, match=words), spark_writes_to(log):
        raise SparkError("HR-SP30", "the pipeline failed", hint="try again")
    assert log.read_text() == "the run before\n"
    log.write_bytes(b"x" * (LARGE + 1))
    with spark_writes_to(log):
        pass
    assert (log.with_name("spark.log.1").stat().st_size, log.stat().st_size) == (LARGE + 1, 0)
