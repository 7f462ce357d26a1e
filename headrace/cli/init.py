"""`headrace init`: a commented pipeline that runs as it is, on rows that it generates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.errors import PipelineError

TEXT: Final = '''\
# A pipeline: streams, queries, and where rows come from and go to. docs/pipelines.md explains every key.
#
#     headrace check pipeline.toml      what it means, or what is wrong with it
#     headrace run pipeline.toml        run it; stop it with Ctrl-C, run it again, and it goes on

[pipeline]
name = "auction"
runtime = "embedded"        # or "spark"
checkpoint = "state"        # what makes a run go on where it was, even after kill -9
interval = "5 s"

# Bids of an auction house, made from a seed. For files: source = "bids/*.jsonl"
[streams.bid]
source = { type = "nexmark", stream = "bid", events = 200_000, rate = 10_000, delayed = 0.01, delay = "2 s" }
schema = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
time = "date_time"
bounds = { latency = "1 s" }      # a row comes at most so long after it happened; later ones are late
guard = "1 minute"                # a row from further in the future is rejected
enforcement = "strict"            # late rows are set apart; "admit" uses them where an answer is still open

# The highest bids of each ten seconds.
[[queries]]
name = "highest"
sql = """
  SELECT auction, max(price) AS price, count(*) AS bids, window_end
  FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS]
  GROUP BY auction
"""
sink = "highest.jsonl"
late = "late.jsonl"
rejected = "rejected.jsonl"
'''


def write(directory: Path) -> Path:
    """Write the pipeline; one that is there is left alone."""
    path = directory / "pipeline.toml"
    if path.exists():
        raise PipelineError(
            "HR-F021", "the file already exists", place=str(path), hint="choose another directory"
        )
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXT)
    return path
