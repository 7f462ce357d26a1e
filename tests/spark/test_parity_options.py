"""Options of the parity suite say what its inputs say, also in a file; every option and key is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.engine.inputs import Inputs
from headrace.pipeline import Pipeline
from headrace.pipeline.load import from_tables
from headrace.pipeline.spec import AdjustOf, BoundsOf, Estimate, SkewEstimate, SkewTable, SourcesOf
from headrace.runtimes.spark.driver.options import NAMES, SparkOptions
from tests.spark.parity import ARRIVALS, CASES, Case, instants
from tests.spark.simulated import Outcome, embedded_instants
from tests.spark.test_parity import bag

ROOT = Path(__file__).resolve().parent
SAID = {name: case for name, case in CASES.items() if case.options is not None}
COLUMNS = {"s": "t BIGINT, k INT, c STRING, v INT", "u": "t BIGINT, k INT, c STRING, w DOUBLE"}
OF_STREAMS = ("punctuations", "heartbeats")


def in_a_file(case: Case) -> Pipeline:
    """A pipeline file with the keys that the options of a case have."""
    given = dict(case.options or {})
    guard, skew = given.pop("guard"), given.pop("skew", {})
    enforce, idle, bounds = given.pop("enforce", "strict"), given.pop("idle", None), given.pop("bounds", {})
    streams: dict[str, Any] = {}
    for source in case.query.sources:
        name, of = source.name, {**bounds.get(source.name, {})}
        streams[name] = {
            "source": f"{name}.jsonl",
            "schema": COLUMNS[name],
            "time": {"column": "t", "unit": "tick"},
            "guard": guard,
            "enforcement": enforce,
        }
        streams[name] |= {"sources": of.pop("sources")} if "sources" in of else {}
        streams[name] |= {"bounds": of} | {
            key: given[key][name] for key in OF_STREAMS if name in given.get(key, {})
        }
        of_stream = idle.get(name) if isinstance(idle, Mapping) else idle
        streams[name] |= {} if of_stream is None else {"idle": of_stream}
    memory = {"budget": given["memory"], "policy": given["policy"]} if "memory" in given else {}
    return from_tables(
        {
            "pipeline": {
                "name": "p",
                "runtime": "spark",
                "reoptimize": given.get("reoptimize", False),
                **asdict(case.execution),
            },
            "streams": streams,
            "skew": skew,
            "queries": [{"name": "q", "sql": case.text, "sink": "q.jsonl"}],
        }
        | ({"memory": memory} if memory else {})
    )


def outcomes(case: Case, inputs: Inputs) -> list[Outcome]:
    """What one engine gives at each instant."""
    read = {source.name for source in case.query.sources}
    arrived = [(now, {name: rows for name, rows in all.items() if name in read}) for now, all in instants()]
    how = {"execution": case.execution, "ordered": case.ordered}
    return list(embedded_instants(case.query.plan, inputs, arrived, {}, **how))


@pytest.mark.parametrize("name", SAID)
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_options_and_keys_of_a_file_say_what_the_inputs_say(name: str) -> None:
    case = SAID[name]
    options = SparkOptions(**(case.options or {}), **asdict(case.execution))
    expected = outcomes(case, case.inputs)
    assert len(expected) == sum(map(len, ARRIVALS))
    file = in_a_file(case)
    assert file.execution == options.execution == case.execution
    for inputs in (options.inputs_for(case.query.sources, None), file.inputs()):
        for number, (given, wanted) in enumerate(zip(outcomes(case, inputs), expected, strict=True)):
            for kind in ("answers", "late", "rejected"):
                assert bag(getattr(given, kind)) == bag(getattr(wanted, kind)), (number, kind)


ALWAYS = {
    "timer",
    "time_column",
    "arrival",
    "shards",
    "ordered",
    "native",
    "strategy",
    "level",
    "propagation",
}
"""Set for each case by the suite."""

ELSEWHERE = {
    "inputs": "test_parity.py: the cases without options",
    "reached": "test_reading.py: rows that say when they reached their source; Kafka in tests/kafka",
    "ending": "test_parity_files.py: sources that end",
    "witnesses": "test_simulated.py: heard",
}
"""Options that need other sources than the files of the suite, and who compares them with one engine."""


def test_every_option_is_in_the_suite() -> None:
    used = {key for case in SAID.values() for key in case.options or {}}
    assert used | ALWAYS | set(ELSEWHERE) == set(NAMES)
    assert not used & ALWAYS
    for where in ELSEWHERE.values():
        assert (ROOT / where.partition(":")[0]).exists()


def _keys(tables: list[Any]) -> set[str]:
    return {key for table in tables if isinstance(table, Mapping) for key in table}


def test_every_key_of_bounds_is_in_the_suite() -> None:
    bounds = [each for case in SAID.values() for each in (case.options or {}).get("bounds", {}).values()]
    skews = [(case.options or {}).get("skew") for case in SAID.values()]
    learned = [each["estimate"] for each in skews if each and "estimate" in each]
    assert _keys(bounds) == {*BoundsOf.model_fields, "sources"}
    assert _keys([each.get("estimate") for each in bounds]) == set(Estimate.model_fields)
    assert _keys([each.get("sources") for each in bounds]) == set(SourcesOf.model_fields)
    assert _keys(skews) == set(SkewTable.model_fields)
    assert _keys(learned) == set(SkewEstimate.model_fields)
    assert _keys([each["adjust"] for each in learned]) <= set(AdjustOf.model_fields)
