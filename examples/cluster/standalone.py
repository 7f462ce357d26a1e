"""A standalone master and its workers, from the `pyspark` that pip installed, while a `with` lasts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

from headrace.runtimes.spark.driver import java

HOST = "127.0.0.1"


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[str]:
    """The master's URL; its log and the workers' are in `folder`."""
    master, page = _free_port(), _free_port()
    url = f"spark://{HOST}:{master}"
    with contextlib.ExitStack() as running:
        ports = ["--port", str(master), "--webui-port", str(page)]
        running.enter_context(_daemon(folder, "master", "master.Master", "--host", HOST, *ports))
        _until(lambda: _alive(page) >= 0, "the master did not answer", folder / "master.log")
        for number in range(workers):
            name = f"worker-{number}"
            size = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder / name)]
            options = ["--host", HOST, "--webui-port", "0", *size, url]
            running.enter_context(_daemon(folder, name, "worker.Worker", *options))
        _until(lambda: _alive(page) == workers, "the workers did not register", folder / "worker-0.log")
        yield url


@contextlib.contextmanager
def _daemon(folder: Path, name: str, main: str, *options: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java.find().home)}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *options]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _alive(page: int) -> int:
    """How many workers the master's page knows; -1 while there is no page."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):
        return -1


def _until(done: Callable[[], bool], otherwise: str, log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {seconds:.0f} s; see {log}")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
