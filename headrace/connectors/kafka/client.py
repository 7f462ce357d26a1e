"""The client's settings: from the keys of a pipeline file, with secrets from the environment.

A secret is written as `${NAME}` in a file. Its value is put in right before the client is made; files,
checkpoints, `explain` and status contain the name only, and texts of the client are shown without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from headrace.errors import ConnectorError, without_secrets

SECRET: Final = re.compile(r"password|secret|token|credential|jaas|\.pem$|\.key$|api[._]key", re.IGNORECASE)
"""Names of options whose values must not be written into a file."""
PUBLIC: Final = re.compile(r"endpoint|public\.key|\.mechanism", re.IGNORECASE)
"""Names that look like those of secrets, and are not."""
SECONDS: Final = 30.0
"""How long a start waits for the broker."""
OPTIONS: Final = "options has the names that librdkafka documents in CONFIGURATION.md"
REACH: Final = "check servers and options, and that the broker runs and can be reached from here"

Say = Callable[[str], None]
Options = Mapping[str, str | int | float | bool]


def is_exposed(name: str, value: object) -> bool:
    """Whether a value is a secret that is written into the file itself."""
    secret = SECRET.search(name) and not PUBLIC.search(name)
    return bool(secret) and isinstance(value, str) and "${" not in value


def nothing(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Settings:
    """How to reach the brokers, with the values of secrets. `place` is named in errors."""

    servers: str
    options: Options = field(default_factory=dict, repr=False)
    place: str = ""

    def error(self, code: str, message: str, hint: str) -> ConnectorError:
        """An error about these brokers."""
        return ConnectorError(code, message, place=self.place, hint=hint)

    def client(self, kind: str, say: Say, more: Mapping[str, Any]) -> Any:
        """A `Consumer`, `Producer` or `AdminClient` with these settings; the user's options come last."""
        library = confluent_kafka(self.place)
        made = getattr(library.admin if kind == "AdminClient" else library, kind)
        own = {name: _text(value) for name, value in self.options.items()}
        quiet = {"logger": _quiet(), "error_cb": lambda error: say(f"Kafka: {said(error)}")}
        try:
            return made({**more, "bootstrap.servers": self.servers, **own, **quiet})
        except library.KafkaException as error:
            raise self.error("HR-C030", f"an option is not valid: {said(error)}", OPTIONS) from None


def said(error: Any) -> str:
    """The text of an error of the client, without secrets."""
    found = error.args[0] if getattr(error, "args", None) else error
    return without_secrets(found.str() if hasattr(found, "str") else str(found))


def _text(value: Any) -> Any:
    """A value as the client takes it."""
    return str(value).lower() if isinstance(value, bool) else value


def _quiet() -> logging.Logger:
    """The client's log goes to Python's logging, and nowhere unless someone asks for it."""
    logger = logging.getLogger("headrace.connectors.kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def confluent_kafka(place: str) -> ModuleType:
    """The client library, or an error that says how to install it."""
    try:
        import confluent_kafka.admin
    except ImportError:
        raise ConnectorError(
            "HR-C021", "confluent-kafka is not installed", place=place, hint="pip install 'headrace[kafka]'"
        ) from None
    return confluent_kafka
