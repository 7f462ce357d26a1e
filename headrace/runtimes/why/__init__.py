"""Why the queries of a run wait, from its status: on a terminal, in a notebook, for scripts."""

from headrace.runtimes.why.why import Why

__all__ = ["Why"]
