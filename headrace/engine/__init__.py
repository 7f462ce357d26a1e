"""The engine: a library without I/O, threads or a clock."""

from headrace.engine.adopting import Adopted
from headrace.engine.engine import Engine
from headrace.engine.snapshot import Snapshot
from headrace.graph.admission import Rules
from headrace.graph.service import Service
from headrace.memory.manager import Shortage

__all__ = ["Adopted", "Engine", "Rules", "Service", "Shortage", "Snapshot"]
