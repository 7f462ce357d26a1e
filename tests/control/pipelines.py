"""Small pipelines whose streams need no files to be checked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.pipeline import Pipeline, load

TEXT: Final = """
[pipeline]
name = "controlled"
runtime = "embedded"
checkpoint = "state"

[streams.bids]
source = "bids"
schema = "auction BIGINT, price DOUBLE, note STRING, at TIMESTAMP"
time = "at"
bounds = { disorder = "5 s" }

[streams.asks]
source = "asks"
schema = "auction BIGINT, at TIMESTAMP"
time = "at"

[streams.ticks]
source = "ticks"
schema = "v BIGINT"
time = "internal"

[[queries]]
name = "hot"
sql = "SELECT auction FROM bids WHERE price > 10"
sink = "hot.jsonl"

[[queries]]
name = "wide"
sql = "SELECT auction, count(*) AS n FROM bids [RANGE MIN 1 MINUTE, MAX 1 HOUR] GROUP BY auction"
sink = "wide.jsonl"
"""


def written(root: Path, text: str = TEXT) -> Pipeline:
    """The pipeline in a file."""
    (root / "pipeline.toml").write_text(text)
    return load(root / "pipeline.toml")
