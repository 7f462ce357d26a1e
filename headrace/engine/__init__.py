"""The engine: a library with no I/O, no threads and no clock of its own."""

from headrace.engine.engine import Engine
from headrace.engine.snapshot import Snapshot

__all__ = ["Engine", "Snapshot"]
