"""The embedded runtime: sources and sinks around the engine in one process, with checkpoints."""

from headrace.engine.scheduling import Waiting
from headrace.runtimes.embedded.progress import Progress, QueryProgress, StreamProgress
from headrace.runtimes.embedded.runner import Result, Runner, replay

__all__ = ["Progress", "QueryProgress", "Result", "Runner", "StreamProgress", "Waiting", "replay"]
