"""Application time: clocks, bounds, heartbeats, punctuations."""
