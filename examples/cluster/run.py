"""A master and two workers, Headrace shipped to them, a job: `python -m examples.cluster.run [JOB.py …]`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from examples.cluster import ship
from examples.cluster.standalone import cluster
from headrace.runtimes.spark.driver import java

JOB = Path(__file__).parent / "job.py"


def submit(
    master: str, folder: Path, *job: str, out: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a job with `spark-submit`, as one would on a cluster that is there already."""
    packed = ship.archive(folder / "headrace.tar.gz")
    options = [
        word for name, value in ship.settings(packed).items() for word in ("--conf", f"{name}={value}")
    ]
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.find().home),
        "PYSPARK_PYTHON": sys.executable,  # the same path on each worker, with pyarrow, numba and sqlglot
    }
    quiet = ["--conf", "spark.log.level=WARN"]
    command = [str(home / "bin" / "spark-submit"), "--master", master, *quiet, *options, *job]
    return subprocess.run(command, env=environment, check=False, stdout=out)


def main(*job: str) -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-cluster-") as name:
        folder = Path(name)
        with cluster(folder / "logs") as master:
            print(f"{master} with two workers; logs in {folder / 'logs'}", file=sys.stderr)
            return submit(master, folder, *(job or (str(JOB),))).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
