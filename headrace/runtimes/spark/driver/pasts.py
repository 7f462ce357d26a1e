"""Which streams of a pipeline still read their history: a job reads it to its end, then starts again, live.

Both starts have one checkpoint, in which the past and the live source are two sources with their own names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import disk
from headrace.connectors.history import LIVE
from headrace.connectors.kafka.source import KafkaSource
from headrace.errors import DurabilityError
from headrace.pipeline import Pipeline
from headrace.pipeline import spec as file
from headrace.runtimes.embedded.factory import PipelineFactory, part_of
from headrace.time.clock import SystemClock

READ: Final = ".read"
"""The ending of the file that says that a history has been read to its end."""
OFFSETS: Final = ".offsets.json"
"""The ending of the file with the offsets at which the live source begins."""


@dataclass(frozen=True)
class Pasts:
    """The streams with a history, and notes in a `folder` beside the checkpoint."""

    pipeline: Pipeline
    folder: Path

    @property
    def unread(self) -> tuple[str, ...]:
        """The streams whose history has not been read to its end."""
        return tuple(name for name in self.pipeline.read if self.has(name))

    def has(self, name: str) -> bool:
        """Whether a stream still reads its history."""
        source = self.pipeline.streams[name].spec.source
        return isinstance(source, file.HistoryFrom) and not (self.folder / f"{name}{READ}").exists()

    def begin(self, name: str) -> None:
        """Note where Kafka begins, if it is at the `latest` messages: those that come meanwhile count too."""
        stream = self.pipeline.streams[name]
        source = stream.spec.source
        assert isinstance(source, file.HistoryFrom)
        live = source.live
        if not isinstance(live, file.KafkaFrom) or live.start != "latest" or self.offsets(name) is not None:
            return
        opened = PipelineFactory(self.pipeline, SystemClock(), 0).source(part_of(stream, LIVE), stream.schema)
        assert isinstance(opened, KafkaSource)
        try:
            self._write(f"{name}{OFFSETS}", json.dumps(opened.position()["offsets"]))
        finally:
            opened.close()

    def offsets(self, name: str) -> str | None:
        """The offsets that were noted, as Spark's source takes them."""
        path = self.folder / f"{name}{OFFSETS}"
        return path.read_text("utf-8") if path.exists() else None

    def finish(self, name: str) -> None:
        """Note that the history of a stream has been read, before anything of what follows is."""
        self._write(f"{name}{READ}", "")

    def _write(self, name: str, text: str) -> None:
        path, draft = self.folder / name, self.folder / f".{name}"
        with disk.coded(DurabilityError, "HR-D004", "write", path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with disk.current.open(draft, "wb") as out:
                out.write(text.encode())
                disk.current.flush(out)
            disk.current.replace(draft, path)
            disk.current.sync(self.folder)
