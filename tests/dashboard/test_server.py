"""The server of the page: who may ask, what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.control import log_of
from headrace.errors import PipelineError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.status_file import write_status
from tests.dashboard.shop import Shop

pytest.importorskip("uvicorn", reason="the page needs headrace[page]")

from headrace.dashboard.serving import Address, Served

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop that has run for a moment."""
    found = Shop(tmp_path_factory.mktemp("shop"))
    found.clicks(20)
    found.buys(5)
    found.nonsense()
    pipeline = load(found.file)
    runner = Runner(pipeline)

    def told(status: Any) -> None:
        write_status(pipeline, status)
        if status.reasons and status.streams["clicks"].rows_in:
            runner.stop()

    runner.run(on_progress=told)
    return found


@pytest.fixture
def served(shop: Shop) -> Iterator[Served]:
    found = Served(shop.file, Address(port=0))
    with found.beside():
        yield found


def ask(served: Served, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
    """The status, the headers and the text of an answer."""
    at = urlsplit(served.url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def bearer(served: Served) -> str:
    return f"Bearer {served.page.token}"


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/events"])
def test_without_the_token_nothing_is_shown(served: Served, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "headrace_token_80=wrong"}):
        status, _, text = ask(served, "GET", path, **headers)
        assert status == 401
        assert "clicks" not in text


def test_without_the_token_nothing_is_changed(served: Served, shop: Shop) -> None:
    before = len(log_of(load(shop.file)).read())
    status, _, _ = ask(served, "POST", "/api/commands", {"kind": "stop"}, **JSON)
    assert status == 401
    assert len(log_of(load(shop.file)).read()) == before


def test_the_link_gives_a_cookie_that_scripts_and_other_sites_cannot_use(served: Served) -> None:
    status, headers, _ = ask(served, "GET", f"/?token={served.page.token}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    status, headers, text = ask(served, "GET", "/", Cookie=cookie.partition(";")[0])
    assert status == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "http" not in text.replace("http-equiv", "")  # nothing is loaded from elsewhere


def test_another_host_name_is_refused(served: Served) -> None:
    """A page of another site whose name was pointed at this machine cannot read anything."""
    status, _, _ = ask(served, "GET", "/api/state", Host="evil.example:8765", Authorization=bearer(served))
    assert status == 421


def test_the_state_has_the_graph_the_waits_and_the_samples(served: Served) -> None:
    status, _, text = ask(served, "GET", "/api/state", Authorization=bearer(served))
    found = json.loads(text)
    assert status == 200
    shown = found["now"]["status"]
    kinds = {each["kind"] for each in shown["graph"].values()}
    assert {"join", "aggregate", "window"} <= kinds
    answered = {name for each in shown["graph"].values() for name in each["answers"]}
    assert answered == {"per_item", "bought"}
    assert any("cheap" in one for each in shown["reasons"] for one in each["samples"])
    assert [each["name"] for each in found["setup"]["queries"]] == ["per_item", "bought"]
    assert found["figures"][-1]["streams"]["clicks"][0] == shown["streams"]["clicks"]["rows_in"]


def test_a_wrong_command_is_refused_with_the_words_of_the_command_line(served: Served, shop: Shop) -> None:
    before = len(log_of(load(shop.file)).read())
    for body, words in (
        ({"kind": "add_query", "name": "x", "sql": "SELECT item FROM clocks", "sink": "x.jsonl"}, "clocks"),
        ({"kind": "dance"}, "HR-L003"),
        ({"kind": "stop"}, "HR-L012"),
        ([], "a JSON object"),
    ):
        status, _, text = ask(served, "POST", "/api/commands", body, Authorization=bearer(served), **JSON)
        assert status == 400
        assert words in json.loads(text)["error"]["text"]
    status, _, _ = ask(served, "POST", "/api/commands", {"kind": "stop"}, Authorization=bearer(served))
    assert status == 415  # a form of another site cannot send JSON
    assert len(log_of(load(shop.file)).read()) == before


def test_prometheus_may_ask_with_the_token(served: Served) -> None:
    assert ask(served, "GET", "/metrics")[0] == 401
    status, headers, text = ask(served, "GET", "/metrics", Authorization=bearer(served))
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert 'headrace_stream_rejected_rows_total{pipeline="shop",runtime="embedded",stream="clicks"} 1' in text


def test_a_read_only_page_takes_no_commands(shop: Shop) -> None:
    found = Served(shop.file, Address(port=0, read_only=True))
    with found.beside():
        command = {"kind": "budget", "budget": "1 GB"}
        status, _, text = ask(found, "POST", "/api/commands", command, Authorization=bearer(found), **JSON)
        assert (status, "read-only" in text) == (403, True)


def test_only_the_files_of_the_page_are_served(served: Served) -> None:
    assert ask(served, "GET", "/static/page.js")[0] == 200
    for path in ("/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/view.py"):
        assert ask(served, "GET", path)[0] == 404


def test_a_taken_port_is_named(served: Served, shop: Shop) -> None:
    port = urlsplit(served.url).port
    with pytest.raises(PipelineError, match=f"127.0.0.1:{port}"):
        Served(shop.file, Address(port=port))


def test_a_pipeline_without_a_checkpoint_has_no_page(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.file.write_text(shop.file.read_text().replace('checkpoint = "state"\n', ""))
    with pytest.raises(PipelineError, match="no checkpoint"):
        Served(shop.file, Address(port=0))
