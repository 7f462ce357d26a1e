"""A broker for each test; no jars of Kafka, no Java or no client: skipped, with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kafka.broker import Broker
    from tests.kafka.supervised import Job

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def jars() -> Path:
    found = subprocess.run([ROOT / "scripts" / "ensure-kafka"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr)
    return Path(found.stdout.strip())


@pytest.fixture
def broker(jars: Path, tmp_path: Path) -> Iterator[Broker]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("a Kafka broker needs Java, and none was found")
    from tests.kafka.broker import Broker
    from tests.kafka.rows import make_topics

    made = Broker(jars, tmp_path / "broker")
    made.start()
    make_topics(made.address)
    yield made
    made.kill()


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that are ended when the test is."""
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()
