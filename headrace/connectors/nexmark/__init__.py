"""NEXMark: the events of an auction house, made from a seed, each from its number alone.

    house = NexmarkGenerator(seed=7, rate=10_000, disorder=100)
    for start in range(0, 1_000_000, 50_000):
        for stream, rows in house.batches(start, 50_000).items():
            engine.push(stream, rows.data, times=rows.times)

Sources: Tucker, Tufte, Papadimos, Maier, "NEXMark", 2002, with the numbers of Beam's and Flink's generators.
"""

from headrace.connectors.nexmark.generator import STREAMS, NexmarkGenerator, Rows, Silence
from headrace.connectors.nexmark.laws import Laws

__all__ = ["STREAMS", "Laws", "NexmarkGenerator", "Rows", "Silence"]
