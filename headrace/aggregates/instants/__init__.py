"""Partial values by instant: the answer at every instant at which it changes."""
