"""Operator state: rows, columns, keys, timelines, and the protocol of snapshots."""
