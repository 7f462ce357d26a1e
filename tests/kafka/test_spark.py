"""Kafka on Spark from a pipeline file and from Python, with a real broker: the same rows as embedded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import Broker
from tests.kafka.embedded import (
    BASE,
    answers,
    counted,
    lines,
    new_topic,
    pipeline_text,
    produce,
    row,
    rows_in,
    run,
)
from tests.kafka.guide import check, rows
from tests.kafka.secure import CERTIFICATE, PASSWORD, options

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_example_of_the_guide_runs_as_it_is_written(shared: Broker, tmp_path: Path) -> None:
    check("spark", shared, tmp_path)


def on_spark(text: str, root: Path, **env: str) -> str:
    """Run a pipeline that ends, in a process of its own; returns what it printed."""
    root.mkdir(exist_ok=True)
    (root / "pipeline.toml").write_text(text.replace('runtime = "embedded"', 'runtime = "spark"'))
    command = [sys.executable, "-m", "headrace.cli", "run", "pipeline.toml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


FIELDS = (
    'metadata = { key = "key", headers = "h", topic = "t", partition = "p", offset = "o", timestamp = "at" }'
)


@pytest.mark.slow
def test_a_file_has_the_same_rows_and_the_same_bad_messages_on_both_runtimes(
    shared: Broker, tmp_path: Path
) -> None:
    """With TLS and SASL on Spark, from topic to topic; the password is nowhere."""
    topic, to = (
        new_topic(shared.address, 2, **{"max.message.bytes": "20000000"}),
        new_topic(shared.address, 1),
    )
    good = [row(i, i % 3, i % 2, key=f"k{i}", headers={"a": b"\xff"}, timestamp=1000 + i) for i in range(40)]
    bad: list[Any] = [b"{", b"[]", b'{"ts": "x", "k": 1}', None, b'{"k": 1}', b'"' + b"x" * (10 << 20) + b'"']
    produce(shared.address, topic, good)
    produce(shared.address, topic, [{"value": value, "partition": 0} for value in bad])
    produce(shared.address, topic, [row(1, 1, 1, key=b"\xff")])
    keys = {
        "schema": "ts BIGINT, k INT, key STRING, h STRING, t STRING, p INT, o BIGINT, at TIMESTAMP",
        "source": f"{FIELDS}\nfollow = false",
        "sql": "SELECT ts, k, key, h, p, o, at FROM s WHERE k > 0",
    }
    here, there = tmp_path / "embedded", tmp_path / "spark"
    run(pipeline_text(shared.address, topic, **keys), here)
    secure = f"127.0.0.1:{shared.secure_port}" if shared.secure else shared.address
    own = options(shared.folder.parent / CERTIFICATE) if shared.secure else ""
    more = f", {own}" if own else ""
    sink = f'{{ type = "kafka", servers = "{secure}", topic = "{to}", key = "k", id = "id", '
    sink += f'delivery = "at least once"{more} }}'
    text = pipeline_text(secure, topic, **keys | {"source": f"{keys['source']}\n{own}"}, sink=sink)
    text += (
        f'\n[spark]\njars = "{shared.jars}/connector/*.jar"\nsettings = {{ "spark.log.level" = "WARN" }}\n'
    )
    printed = on_spark(text, there, PW=PASSWORD)
    found = rows_in(shared.address, to)
    assert len({each.pop("id") for each in found}) == len(found)
    assert order(found) == order(lines(here, "out.jsonl"))
    assert order(rows(there, "rejected.jsonl")) == order(lines(here, "rejected.jsonl"))
    assert len(lines(here, "rejected.jsonl")) == len(bad) + 1
    assert PASSWORD not in printed
    files = [path.read_bytes() for path in there.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in each for each in files)


def order(found: list[dict[str, Any]]) -> list[str]:
    """Rows in any order, without the instant at which they were rejected."""
    return sorted(json.dumps({k: v for k, v in r.items() if k != "arrived"}, sort_keys=True) for r in found)


CODE = """
import sys, headrace
from headrace.spark import SparkOptions
address, topic, jars, folder = sys.argv[1:]
spark = headrace.spark.session("kafka", "local[2]", **{"spark.jars": jars})
df = headrace.spark.kafka(
    spark, address, topic, "ts bigint, k int, p int", metadata={"partition": "p"},
    options={"maxOffsetsPerTrigger": 200},
)
stream = headrace.spark.stream("s", df.drop("__headrace_bad"), time="ts")
text = '''SELECT k, count(*) AS n, window_end AS until
          FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k'''
query = headrace.query(text, [stream])
out = headrace.spark.outputs(query, {"s": df}, SparkOptions(bounds={"s": {"disorder": "10 minutes"}}))
sinks = {kind: headrace.spark.Files(f"{folder}/{kind}", "json") for kind in ("result", "rejected", "late")}
out.start(checkpoint=f"{folder}/checkpoint", trigger={"availableNow": True}, **sinks).awaitTermination()
"""


@pytest.mark.slow
def test_topics_can_be_read_from_python(shared: Broker, tmp_path: Path) -> None:
    topic = new_topic(shared.address, 2)
    messages = [row(i, i % 3, i % 2) for i in range(1000)]
    produce(shared.address, topic, [*messages, {"value": b"no", "partition": 1}, row(5000, 1)])
    jars = ",".join(map(str, sorted((shared.jars / "connector").glob("*.jar"))))
    command = [sys.executable, "-c", CODE, shared.address, topic, jars, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = answers(rows(tmp_path, "result"))
    assert found == {
        (k, until): n for (k, until), n in counted(messages).items() if until < BASE + 4_400_000_000
    }
    (bad,) = rows(tmp_path, "rejected")
    assert f"(topic {topic}, partition 1, offset 500)" in bad["reason"]
