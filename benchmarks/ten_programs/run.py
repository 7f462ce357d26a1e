"""Install each system in an empty environment, run its ten programs, check what they print, write the page.

    python -m benchmarks.ten_programs.run [--systems NAME …] [--programs NAME …] [--keep FOLDER]

Headrace is installed from the wheel of this checkout. The seconds are those of a whole process, from its
start to the first line with an answer that is right: the first run after the install, so nothing has run
before but `import`s of pip. A program that ends must have printed all rows; one that goes on, all that can
be known while its input stays open. Writes `benchmarks/ten_programs/recorded.json` and
`docs/ten-programs.md`, if all systems and programs were measured.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks.first_bench import BUILD
from benchmarks.ten_programs.inputs import EXPECTED, LINES, write
from benchmarks.ten_programs.page import PROGRAMS, RECORDED, page

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final[dict[str, list[str]]] = {
    "headrace": ["{wheel}[kafka]"],
    "duckdb": ["duckdb>=2,<3", "pandas", "pytz"],
    "polars": ["polars>=2,<3"],
    "bytewax": ["bytewax==0.21.1", "confluent-kafka", "pyarrow"],
    "pathway": ["pathway==0.33.0"],
}
"""What is installed for each system: what its programs import, or what it asks for when they run."""
PATIENCE: Final = 180.0


def wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return folder / built.stdout.split()[-1]


def install(system: str, folder: Path) -> Path:
    """A new environment with a system; its Python."""
    python = folder / system / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / system], check=True)
        packages = [each.format(wheel=wheel(folder) if "wheel" in each else "") for each in PACKAGES[system]]
        command = [python, "-m", "pip", "install", "--quiet", "--no-input", *packages]
        subprocess.run(command, check=True)
    return python


@contextmanager
def lines_on_a_port() -> Iterator[str]:
    """A server that sends the bids as lines of JSON and keeps the connection open; its port."""
    closing = threading.Event()

    class Sender(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall("".join(f"{line}\n" for line in LINES).encode())
            closing.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sender) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield str(server.server_address[1])
        finally:
            closing.set()
            server.shutdown()


@contextmanager
def topic() -> Iterator[str]:
    """The bids in the topic `bids`, in a cluster of the client library's own; its address."""
    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for line in LINES:
        producer.produce("bids", line, partition=0)
    producer.flush()
    yield f"{broker.host}:{broker.port}"
    del producer


@contextmanager
def nothing() -> Iterator[None]:
    yield None


SERVERS: Final[dict[str, Any]] = {"socket": lines_on_a_port, "kafka": topic}


def holds(line: str, row: Sequence[str]) -> bool:
    """Whether a line of output has all words of a row; 7.50 is 7.5."""
    words = Counter(re.sub(r"(\.\d*?)0+$", r"\1", word).rstrip(".") for word in re.findall(r"[\w.]+", line))
    return not Counter(row) - words


def missing(output: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The expected rows that have no line of their own."""
    free, lost = list(output), []
    for row in rows:
        found = next((i for i, line in enumerate(free) if holds(line, row)), None)
        if found is None:
            lost.append(row)
        else:
            del free[found]
    return lost


def measure(python: Path, file: Path, folder: Path) -> tuple[float, float]:
    """Seconds from the start of a program to its first answer, and seconds of CPU until it had all of them.

    An error if an answer is missing.
    """
    program, copied = (
        file.stem,
        folder / "program.py",
    )  # socket.py would be found where a library imports socket
    rows = EXPECTED[program]
    shutil.copyfile(file, copied)
    with SERVERS.get(program, nothing)() as where:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONPATH", None)
        begun = time.perf_counter()
        process = subprocess.Popen(
            [str(python), str(copied), *([where] if where else [])],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines: queue.Queue[tuple[float, str] | None] = queue.Queue()
        errors: list[str] = []
        threads = [
            threading.Thread(target=_read, args=(process, lines), daemon=True),
            threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True),
        ]
        for each in threads:
            each.start()
        first, output = None, list[str]()
        try:
            while first is None or missing(output, rows):
                came = lines.get(timeout=PATIENCE)
                if came is None:
                    break
                output.append(came[1])
                if first is None and any(holds(came[1], row) for row in rows):
                    first = came[0] - begun
        except queue.Empty:
            pass
        finally:
            os.kill(process.pid, signal.SIGKILL)  # not process.kill(), which may collect its exit
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            for each in threads:
                each.join()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
    lost = missing(output, rows)
    if lost or first is None:
        raise SystemExit(f"{file}: {lost} missing in\n{''.join(output[-40:])}\n{''.join(errors[-20:])}")
    return first, used.ru_utime + used.ru_stime


def _read(process: subprocess.Popen[str], lines: queue.Queue[tuple[float, str] | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put((time.perf_counter(), line))
    lines.put(None)


def version(python: Path, system: str) -> str:
    """The version of a system that is installed."""
    code = f"from importlib.metadata import version; print(version('{system}'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--systems", nargs="*", default=list(PACKAGES), choices=list(PACKAGES))
    parser.add_argument("--programs", nargs="*", default=list(EXPECTED), choices=list(EXPECTED))
    parser.add_argument("--keep", type=Path, help="Where the environments are, or are made and kept.")
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="ten_programs"))
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"load": round(os.getloadavg()[0], 1), "versions": {}, "seconds": {}, "cpu": {}}
    try:
        for system in asked.systems:
            python = install(system, folder)
            found["versions"][system] = version(python, system)
            found["seconds"][system], found["cpu"][system] = {}, {}
            inputs = Path(tempfile.mkdtemp(dir=folder))
            write(inputs)
            for program in asked.programs:
                file = PROGRAMS / system / f"{program}.py"
                if file.exists():
                    took, cpu = measure(python, file, inputs)
                    found["seconds"][system][program] = round(took, 2)
                    found["cpu"][system][program] = round(cpu, 2)
                    print(f"{system:10} {program:10} {took:6.2f} s, {cpu:5.2f} s of CPU", flush=True)
            shutil.rmtree(inputs)
    finally:
        if asked.keep is None:
            shutil.rmtree(folder)
    if set(asked.systems) == set(PACKAGES) and set(asked.programs) == set(EXPECTED):
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
        page()


if __name__ == "__main__":
    main()
