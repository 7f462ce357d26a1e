"""The web server of the page: its files, a stream of events, and one address that takes commands.

Every request needs the token, except for the style and the scripts. The link that is printed at the start
contains the token; the page keeps it in a cookie that other sites cannot send.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.dashboard.view import View, told
from headrace.errors import HeadraceError
from headrace.runtimes.metrics import CONTENT_TYPE, prometheus

STATIC: Final = Path(__file__).parent / "static"
FILES: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "charts.js": "text/javascript",
    "graph.js": "text/javascript",
    "words.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
COOKIE: Final = "headrace_token"
PAUSE: Final = 0.5
"""Seconds between two looks at the files, while someone looks at the page."""
ALIVE: Final = 10.0
"""Seconds after which an event without content shows that the connection works."""
LARGEST: Final = 256 * 1024
"""The largest command, in bytes."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass
class Page:
    """The page of one pipeline. `hosts` are the names under which browsers may ask for it; empty: any."""

    view: View
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(18))
    hosts: frozenset[str] = LOCAL
    read_only: bool = False
    closing: bool = False
    """Set when the server stops: streams of events end."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self._guarded(self._index)),
            Route("/static/{name}", _static),
            Route("/metrics", self._guarded(self._metrics)),
            Route("/api/state", self._guarded(self._state)),
            Route("/api/events", self._guarded(self._events)),
            Route("/api/commands", self._guarded(self._command), methods=["POST"]),
        ]
        return Starlette(routes=routes)

    # --- who may ask

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Refuse requests without the token, and those that were sent through another host name."""

        async def guarded(request: Request) -> Response:
            if self.hosts and (request.url.hostname or "") not in self.hosts:
                return PlainTextResponse("this host name is not served\n", 421)
            given = request.query_params.get("token")
            if given is not None and request.url.path == "/" and self._is_token(given):
                response: Response = RedirectResponse("/", 303, HEADERS)
                response.set_cookie(
                    self._cookie(request), given, httponly=True, samesite="strict", max_age=30 * 86400
                )
                return response
            if not self._is_known(request):
                return PlainTextResponse(
                    "This page needs its token: open the link that headrace printed when it started.\n", 401
                )
            response = await answer(request)
            response.headers.update(HEADERS)
            return response

        return guarded

    def _is_known(self, request: Request) -> bool:
        if self.token is None:
            return True
        header = request.headers.get("authorization", "").removeprefix("Bearer ")
        return self._is_token(header) or self._is_token(request.cookies.get(self._cookie(request), ""))

    def _is_token(self, given: str) -> bool:
        return self.token is None or secrets.compare_digest(given.encode(), self.token.encode())

    @staticmethod
    def _cookie(request: Request) -> str:
        """The name of the cookie. Browsers share cookies between ports, so the port is a part of it."""
        return f"{COOKIE}_{request.url.port or 80}"

    # --- answers

    async def _index(self, request: Request) -> Response:
        return Response((STATIC / "index.html").read_text("utf-8"), media_type="text/html")

    async def _state(self, request: Request) -> Response:
        """Everything at once, for scripts."""
        found = await self._look()
        return JSONResponse({**found, "figures": list(self.view.figures.points)})

    async def _metrics(self, request: Request) -> Response:
        """The metrics of the newest status, for Prometheus."""
        try:
            async with self._lock:
                found = await run_in_threadpool(self.view.newest)
        except HeadraceError as error:
            return PlainTextResponse(f"{error}\n", 503)
        return Response(prometheus(found), media_type=CONTENT_TYPE)

    async def _look(self) -> dict[str, Any]:
        """Everything that the page shows; one look at a time. Files that have not changed are not read."""
        async with self._lock:
            return await run_in_threadpool(self._looked)

    def _looked(self) -> dict[str, Any]:
        return {
            "now": self.view.status(),
            "read_only": self.read_only,
            "setup": self.view.setup(),
            "answers": self.view.tails(),
        }

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(
            self._stream(request), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        """Events as they happen: each part of the state when it has changed for this reader."""
        sent: dict[str, str] = {}
        quiet = 0.0
        yield "retry: 1000\n\n"
        while not self.closing and not await request.is_disconnected():
            found = await self._look()
            if not sent:
                yield _event("figures", json.dumps(list(self.view.figures.points)))
            quiet += PAUSE
            for name, part in found.items():
                text = json.dumps(part)
                if sent.get(name) != _stable(name, text, part):
                    sent[name] = _stable(name, text, part)
                    quiet = 0.0
                    yield _event(name, text)
            if quiet >= ALIVE:
                quiet = 0.0
                yield ": alive\n\n"
            await asyncio.sleep(PAUSE)

    async def _command(self, request: Request) -> Response:
        """Write a command to the control log; an error has the text that the command line prints."""
        if not request.headers.get("content-type", "").startswith("application/json"):
            return PlainTextResponse("send JSON\n", 415)
        if self.read_only:
            return JSONResponse({"error": {"text": "this page is read-only (--read-only)"}}, 403)
        body = await request.body()
        try:
            written = json.loads(body[: LARGEST + 1]) if len(body) <= LARGEST else None
        except ValueError:
            written = None
        if not isinstance(written, dict):
            return JSONResponse({"error": {"text": "a command is a JSON object of less than 256 kB"}}, 400)
        try:
            async with self._lock:
                sent = await run_in_threadpool(self.view.send, written)
        except HeadraceError as error:
            return JSONResponse({"error": told(error)}, 400)
        return JSONResponse({"said": str(sent), "number": sent.entry.number})


def _stable(name: str, text: str, part: Any) -> str:
    """What must differ for an event to be sent again: the age of a status counts in whole seconds."""
    if name != "now" or "why" not in part:
        return text
    why = part["why"]
    steady = {**part, "why": {**why, "age_seconds": int(why["age_seconds"])}}
    return json.dumps(steady)


def _event(name: str, text: str) -> str:
    return f"event: {name}\ndata: {text}\n\n"


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("no such file\n", 404)
    return Response((STATIC / name).read_bytes(), media_type=FILES[name], headers=HEADERS)
