"""The embedded runtime: sources and sinks around the engine in one process, durable (`design.md` §7)."""

from headrace.runtimes.embedded.progress import Progress, QueryProgress, StreamProgress, Waiting
from headrace.runtimes.embedded.replay import replay
from headrace.runtimes.embedded.runner import Result, Runner

__all__ = ["Progress", "QueryProgress", "Result", "Runner", "StreamProgress", "Waiting", "replay"]
