"""A broker for each test, or one for many. Without the jars, or Java, tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.kafka.broker import Broker, CannotStart, jars
from tests.kafka.secure import listener

if TYPE_CHECKING:
    from tests.kafka.supervised import Job


def begun(folder: Path, secure: str = "") -> Broker:
    """A broker that runs, or a skipped test."""
    try:
        made = Broker(jars(), folder, secure=secure)
        made.begin()
    except CannotStart as error:
        pytest.skip(str(error))
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    from tests.kafka.rows import make_topics

    made = begun(tmp_path / "broker")
    make_topics(made.address)
    yield made
    made.kill()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for many small tests, each with topics of its own; it also listens with TLS and SASL."""
    folder = tmp_path_factory.mktemp("kafka")
    made = begun(folder / "broker", listener(folder))
    yield made
    made.kill()


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that are ended when the test is."""
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()
