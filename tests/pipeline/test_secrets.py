"""Secrets of connectors: refused in the file, and never shown when they come from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import HeadraceError
from headrace.pipeline import load, parse

SECRET = "s3cr3t-Value-of-the-test"
FILE = """
[pipeline]
name = "secrets"
runtime = "{runtime}"
checkpoint = "state"
[streams.s]
source = {source}
schema = "k BIGINT, at TIMESTAMP"
time = "at"
bounds = {{ disorder = "1 s" }}
{table}
[[queries]]
name = "q"
sql = "SELECT k FROM s"
sink = {sink}
"""
PLAIN = {"source": '"in.jsonl"', "sink": '"out.jsonl"', "table": "", "runtime": "embedded"}
SPARK = {"runtime": "spark"}
CASES: list[dict[str, str]] = [
    {"source": '{ path = "s3://b/x.jsonl", storage = { secret_key = "@SECRET@" } }'},
    {"source": '{ type = "delta", path = "d", storage = { AWS_SECRET_ACCESS_KEY = "@SECRET@" } }'},
    {"source": '{ type = "iceberg", table = "n.t", options = { token = "@SECRET@" } }'},
    {"source": '{ type = "iceberg", table = "n.t", options = { uri = "postgresql://me:@SECRET@@h/d" } }'},
    {"source": '{ type = "kafka", servers = "h", topic = "t", options = { "sasl.password" = "@SECRET@" } }'},
    {
        "source": '{ history = { type = "delta", path = "d", storage = { secret = "@SECRET@" } }, '
        'live = { type = "kafka", servers = "h:1", topic = "t" } }'
    },
    SPARK | {"source": '{ type = "spark", format = "x", options = { password = "@SECRET@" } }'},
    {"sink": '{ type = "delta", path = "d", storage = { AWS_SECRET_ACCESS_KEY = "@SECRET@" } }'},
    {"sink": '{ type = "iceberg", table = "n.t", options = { "s3.secret-access-key" = "@SECRET@" } }'},
    {"sink": '{ type = "postgres", url = "postgresql://me:@SECRET@@h/d", table = "t" }'},
    {"sink": '{ type = "kafka", servers = "h", topic = "t", options = { "ssl.key.password" = "@SECRET@" } }'},
    {"sink": '{ path = "s3://b/x", format = "parquet", storage = { secret_key = "@SECRET@" } }'},
    SPARK | {"sink": '{ type = "spark", format = "jdbc", options = { url = "jdbc:x://me:@SECRET@@h/d" } }'},
    {
        "table": '[tables.t]\ntype = "postgres"\nurl = "postgresql://me:@SECRET@@h/d"\n'
        'query = "q"\nschema = "a INT"'
    },
    SPARK | {"table": '[spark]\nsettings = { "spark.hadoop.fs.s3a.secret.key" = "@SECRET@" }'},
    SPARK | {"table": '[spark]\nsources.s = { "kafka.sasl.jaas.config" = "@SECRET@" }'},
]


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
def test_a_secret_in_the_file_is_refused_without_showing_it(case: dict[str, str], tmp_path: Path) -> None:
    text = FILE.format(**PLAIN | case).replace("@SECRET@", SECRET)
    with pytest.raises(HeadraceError, match="HR-F004") as refused:
        parse(text, root=tmp_path)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
def test_a_secret_of_the_environment_is_not_shown(
    case: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "[tables.t]" in case.get("table", ""):
        pytest.skip("the table is read when the file is loaded, and there is no server here")
    monkeypatch.setenv("OF_THE_TEST", SECRET)
    file = tmp_path / "p.toml"
    file.write_text(FILE.format(**PLAIN | case).replace("@SECRET@", "${OF_THE_TEST}"))
    pipeline = load(file)
    assert SECRET not in repr(pipeline) + json.dumps(pipeline.tables(), default=str)
    for command in (["explain", str(file)], ["check", str(file)]):
        shown = CliRunner().invoke(app, command)
        assert SECRET not in shown.output + str(shown.exception)
