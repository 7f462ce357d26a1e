"""kill -9 while lines come over TCP: what was read is neither lost nor repeated."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.pipeline import load
from headrace.runtimes.embedded import Progress, Runner
from tests.faults.killing import start

PIPELINE = """
[pipeline]
name = "wire"
runtime = "embedded"
checkpoint = "state"
interval = "1 hour"
every_rows = 700

[streams.lines]
source = {{ type = "tcp", host = "127.0.0.1", port = {port}, listen = true }}
schema = "n BIGINT"
time = "internal"

[[queries]]
name = "all"
sql = "SELECT n FROM lines"
sink = "all.jsonl"
rejected = "rejected.jsonl"
"""
KILLS = 4


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def connect(port: int) -> socket.socket:
    for _ in range(3000):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise TimeoutError("nobody listens")


def spooled(root: Path) -> int:
    """Bytes that were read, as the spool shows."""
    last = max((root / "state" / "spool").glob("lines-*"), default=None)
    return 0 if last is None else int(last.name.removeprefix("lines-")) + last.stat().st_size


@pytest.mark.slow
def test_lines_that_were_read_survive(tmp_path: Path) -> None:
    port, rng = free_port(), np.random.default_rng(5)
    file = tmp_path / "pipeline.toml"
    file.write_text(PIPELINE.format(port=port))
    sent = size = 0
    for _ in range(KILLS):
        process = start(file)
        count = int(rng.integers(300, 1500))
        text = b"".join(b'{"n": %d}\n' % n for n in range(sent, sent + count))
        with connect(port) as client:
            client.sendall(text)
            sent, size = sent + count, size + len(text)
            while spooled(tmp_path) < size:
                assert process.is_alive()
                time.sleep(0.002)
            process.kill()
            process.join()

    def stop_at_the_end(progress: Progress) -> None:
        if progress.streams["lines"].rows_in >= sent:
            runner.stop()

    runner = Runner(load(file))
    runner.run(on_progress=stop_at_the_end, every=0)
    numbers = [json.loads(line)["n"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert numbers == list(range(sent))
    assert not (tmp_path / "rejected.jsonl").read_text()
