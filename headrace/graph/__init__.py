"""The query graph and the engine that runs it."""
