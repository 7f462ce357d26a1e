"""`headrace init`: a commented pipeline that is ready to run, with generated rows."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.errors import PipelineError

TEXT: Final = '''\
# A pipeline: streams, queries, and where rows come from and go to. docs/pipelines.md explains every key.
#
#     headrace check pipeline.toml      check it without running it
#     headrace run pipeline.toml        run it; after Ctrl-C, run it again to continue

[pipeline]
name = "auction"
runtime = "embedded"        # or "spark"
checkpoint = "state"        # lets a run continue where it stopped, even after kill -9
interval = "5 s"

# Bids of an auction house, from a generator. For files: source = "bids/*.jsonl"
[streams.bid]
source = { type = "nexmark", stream = "bid", events = 200_000, rate = 10_000, delayed = 0.01, delay = "2 s" }
schema = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
time = "date_time"
bounds = { latency = "1 s" }      # rows arrive at most 1 s after their time; later ones are late rows
guard = "1 minute"                # rows more than 1 minute in the future are rejected
enforcement = "strict"            # late rows go to the late output; "admit" uses them where it still can

# The highest bid for each auction, every ten seconds.
[[queries]]
name = "highest"
sql = """
  SELECT auction, max(price) AS price, count(*) AS bids, timestamp_micros(window_end) AS until
  FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS]
  GROUP BY auction
"""
sink = "highest.jsonl"
late = "late.jsonl"
rejected = "rejected.jsonl"
'''


def write(directory: Path, text: str = TEXT) -> Path:
    """Write the pipeline file; an existing one is not overwritten."""
    path = directory / "pipeline.toml"
    if path.exists():
        raise PipelineError(
            "HR-F021", "the file already exists", place=str(path), hint="choose another directory"
        )
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
