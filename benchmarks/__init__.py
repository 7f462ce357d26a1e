"""Measurements beside their floors; each `NAME_bench.py` runs as `python -m benchmarks.NAME_bench`."""
