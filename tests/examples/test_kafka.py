"""The Kafka example starts a broker, a producer and a pipeline, and stops by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import CannotStart, jars, java

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # a broker of its own: `make soak`


def test_one_command_shows_that_every_order_is_counted_once() -> None:
    try:
        jars(), java()
    except CannotStart as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "examples.kafka", "--seconds", "6"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "every order was counted exactly once" in done.stdout
    assert "rejected: " in done.stdout
    assert "topic orders, partition 0, offset" in done.stdout
