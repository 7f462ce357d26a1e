"""Spilling of state that does not fit into memory: the protocol of a spill store, and its files."""
