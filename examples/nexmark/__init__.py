"""NEXMark in CQL: the three streams, the queries by name, and an engine that knows the generator's bounds."""

from __future__ import annotations

from pathlib import Path

from headrace import Bounds, Engine, HeartbeatGenerator, Query, Rules, SkewMatrix, StreamDef, query
from headrace.connectors.nexmark import STREAMS, NexmarkGenerator, Rows
from headrace.plan.nodes.core import Plan
from headrace.time.bounds import NEVER

FOLDER = Path(__file__).parent
DEFINITIONS = tuple(StreamDef(name, of.schema, time_column="date_time") for name, of in STREAMS.items())
NAMES = sorted((path.stem for path in FOLDER.glob("q*.sql")), key=lambda name: int(name[1:]))


def text(name: str) -> str:
    """The text of a query."""
    return (FOLDER / f"{name}.sql").read_text()


def load(name: str) -> Query:
    """A query over the three streams."""
    return query(text(name), DEFINITIONS, name=name)


def engine_for(
    generator: NexmarkGenerator, queries: dict[str, Query | Plan], enforce: str = "strict"
) -> Engine:
    """An engine with these queries, whose heartbeats come from what is known of the generator's disorder."""
    names = list(STREAMS)
    skew = SkewMatrix.of(names, {(a, b): [(0, generator.skew)] for a in names for b in names})
    rules = Rules(disordered=True, enforce=enforce)
    engine = Engine(now=generator.laws.base)
    heartbeats = HeartbeatGenerator(Bounds.of(skew, timeout=NEVER))
    engine.streams.manage(heartbeats, {each.source: rules for each in DEFINITIONS})
    for name, each in queries.items():
        engine.add(name, each)
    return engine


def arrive(engine: Engine, rows: dict[str, Rows]) -> None:
    """Push what comes together: what some of these rows prove holds for those that come after them."""
    now = max((int(each.arrivals.max()) for each in rows.values() if len(each)), default=engine.now)
    for stream in engine.streams:
        engine.push(stream, rows[stream].data, rows[stream].times, now=now)
