"""Serves the page: alone until Ctrl-C, or in a thread beside a run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from headrace.errors import PipelineError
from headrace.pipeline import load

PORT: Final = 8765
TRIES: Final = 20
"""If nobody asks for a port, as many ports are tried as the machine may run pages."""
BEGIN_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Address:
    """Where the page is served. `port` None: the first free one from `PORT` on; 0: any free one.

    `token` False: anyone who reaches the address may use the page.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    token: bool = True
    read_only: bool = False


class Served:
    """The page of a pipeline, ready to be served at `url`."""

    def __init__(self, file: Path, address: Address) -> None:
        try:
            import uvicorn

            from headrace.dashboard.server import LOCAL, Page
            from headrace.dashboard.view import View
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            raise PipelineError(
                "HR-F030",
                f"the page needs {missing}, which is not installed",
                hint="pip install 'headrace[page]'",
            ) from None
        pipeline = load(file)
        if pipeline.spec.pipeline.checkpoint is None:
            raise PipelineError(
                "HR-F020",
                "this pipeline has no checkpoint, so it writes no status that a page can show",
                place=str(file),
                hint='set checkpoint = "state" under [pipeline]',
            )
        self.page = Page(View(file), read_only=address.read_only)
        if not address.token:
            self.page.token = None
        if address.host not in LOCAL:
            self.page.hosts = frozenset()
        self._socket = _bound(address)
        port = self._socket.getsockname()[1]
        shown = f"[{address.host}]" if ":" in address.host else address.host
        secret = "" if self.page.token is None else f"?token={self.page.token}"
        self.url = f"http://{shown}:{port}/{secret}"
        config = uvicorn.Config(
            self.page.app(),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self._server.run(sockets=[self._socket])

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Serve in a thread, until the end of the block."""
        thread = threading.Thread(target=self._serve, name="headrace-page", daemon=True)
        thread.start()
        limit = monotonic() + BEGIN_SECONDS
        while not self._server.started and thread.is_alive() and monotonic() < limit:
            sleep(0.01)
        try:
            yield
        finally:
            self.page.closing = True
            self._server.should_exit = True
            thread.join(3.0)
            self._socket.close()

    def _serve(self) -> None:
        """Signals stay with the run."""
        import asyncio

        asyncio.run(self._server.serve(sockets=[self._socket]))


def _bound(address: Address) -> socket.socket:
    """A socket at the address, or at the next free port."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    first = PORT if address.port is None else address.port
    for port in range(first, first + TRIES) if address.port is None else [first]:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((address.host, port))
            return found
        except OSError as error:
            found.close()
            reason = error.strerror or str(error)
    raise PipelineError(
        "HR-F031",
        f"cannot serve the page at {address.host}:{first}: {reason}",
        hint="use another --port, or --port 0 for any free one",
    )
