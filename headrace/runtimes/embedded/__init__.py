"""The embedded runtime: sources and sinks around the engine in one process, with checkpoints."""

from headrace.runtimes.embedded.runner import Result, Runner, replay
from headrace.runtimes.status import Status as Progress

__all__ = ["Progress", "Result", "Runner", "replay"]
