"""Bytes from sockets: of a server that is connected to, or of all clients that connect.

No client can hold the others up: each has its own unfinished line, and only whole lines are passed on.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.connectors.lines import CUT, LONGEST, too_long_mark
from headrace.errors import ConnectorError

CHUNK: Final = 1 << 16
TURN: Final = 1 << 20
"""Bytes that are read before whoever asked hears of it."""
HEAD: Final = 4096
"""Bytes that are kept of a line that is too long."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Seconds of silence, seconds between probes, and probes without an answer until a peer counts as gone."""


def keep_alive(connection: socket.socket) -> None:
    """Let the system find out that a peer is gone which did not say so."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _received(connection: socket.socket) -> bytes | None:
    """What has come, None if nothing has; b"" if the connection is over, however it ended."""
    try:
        return connection.recv(CHUNK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


class TcpClient:
    """The bytes that a server sends, as Spark's socket source has them."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=10)
        except OSError as error:
            raise ConnectorError(
                "HR-C004",
                f"cannot connect: {error}",
                place=f"{host}:{port}",
                hint="start the server first; or set listen = true to be the server",
            ) from None
        keep_alive(self._socket)
        self._socket.setblocking(False)
        self._ended = False

    def receive(self) -> bytes | None:
        if self._ended:
            return b""
        data = _received(self._socket)
        if data is None:
            return None
        self._ended = not data
        return data or CUT

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True)
class Limits:
    """What clients may take. `idle`: seconds of silence after which a client gives way to one that waits.

    `line` and `pending` are bytes: of one line, and of the unfinished lines of all clients together.
    """

    line: int = LONGEST
    clients: int = 64
    idle: float = 300
    pending: int = 64 << 20


@dataclass(eq=False)
class _Client:
    """A connection, the line that it has not finished, and when it spoke last."""

    socket: socket.socket
    spoke: float
    rest: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    why: str = ""

    def add(self, data: bytes, longest: int) -> bytes:
        """The whole lines that `data` completes."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._extend(data, longest)
            return b""
        first = data.find(b"\n") + 1
        self._extend(data[: first - 1], longest)
        lines = self._finished() + data[first:end]
        self._extend(data[end:], longest)
        return lines

    def _extend(self, data: bytes, longest: int) -> None:
        if self.dropped:
            self.dropped += len(data)
            return
        self.rest += data
        if len(self.rest) > longest:
            self.drop("")

    def drop(self, why: str) -> None:
        """Keep only the beginning of the line that is not finished."""
        self.dropped, self.why = len(self.rest), why
        del self.rest[HEAD:]

    def _finished(self) -> bytes:
        if self.dropped:
            line = bytes(self.rest) + too_long_mark(f"a line of {self.dropped} bytes{self.why}")
        else:
            line = bytes(self.rest) + b"\n"
        self.rest, self.dropped, self.why = bytearray(), 0, ""
        return line

    def left(self) -> bytes:
        """What it did not finish, marked as that."""
        if self.dropped:
            return self._finished()
        rest, self.rest = bytes(self.rest), bytearray()
        return rest + CUT if rest else b""


class TcpServer:
    """The lines that clients send, all of them by turns; it never ends by itself.

    Beyond `limits.clients`, those who connect wait, and a client that has been silent for long is let go.
    """

    def __init__(
        self, host: str, port: int, limits: Limits = Limits(), now: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            self._server = socket.create_server((host, port))
        except OSError as error:
            raise ConnectorError(
                "HR-C005",
                f"cannot listen: {error}",
                place=f"{host}:{port}",
                hint="choose a port that is free and an address of this machine",
            ) from None
        self._server.setblocking(False)
        self._limits, self._now = limits, now
        self._clients: list[_Client] = []
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._server, selectors.EVENT_READ)
        self._out: list[bytes] = []

    @property
    def port(self) -> int:
        """The port it listens on; chosen by the system where 0 was asked for."""
        return int(self._server.getsockname()[1])

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._clients)

    def receive(self) -> bytes | None:
        """Whole lines of one client or of several; None if there are none now."""
        size = 0
        while not self._out and size < TURN and (read := self._turn()):
            size += read
        lines, self._out = b"".join(self._out), []
        return lines or None

    def _turn(self) -> int:
        """Read once from each client that has something; how many bytes that was."""
        size = 0
        for key, _ in self._ready.select(0):
            if key.data is None:
                size += self._accept()
            else:
                size += self._read(key.data)
        return size

    def _accept(self) -> int:
        if len(self._clients) >= self._limits.clients and not self._make_room():
            return 0
        try:
            connection, _ = self._server.accept()
            connection.setblocking(False)
            keep_alive(connection)
        except OSError:
            return 0
        client = _Client(connection, self._now())
        self._clients.append(client)
        self._ready.register(connection, selectors.EVENT_READ, client)
        return 1

    def _make_room(self) -> bool:
        """Let go of the client that has been silent for longest, if that is long."""
        silent = min(self._clients, key=lambda client: client.spoke)
        if self._now() - silent.spoke < self._limits.idle:
            return False
        self._hang_up(silent)
        return True

    def _read(self, client: _Client) -> int:
        data = _received(client.socket)
        if data is None:
            return 0
        if not data:
            self._hang_up(client)
            return 1
        client.spoke = self._now()
        if lines := client.add(data, self._limits.line):
            self._out.append(lines)
        self._relieve()
        return len(data)

    def _relieve(self) -> None:
        """Give up the longest unfinished line while all of them together are too long."""
        while sum(len(client.rest) for client in self._clients) > self._limits.pending:
            longest = max(self._clients, key=lambda client: len(client.rest))
            if longest.dropped:
                return
            longest.drop(f"; the unfinished lines of all clients took more than {self._limits.pending}")

    def _hang_up(self, client: _Client) -> None:
        self._ready.unregister(client.socket)
        client.socket.close()
        self._clients.remove(client)
        if rest := client.left():
            self._out.append(rest)

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self._clients = []
        self._ready.close()
        self._server.close()
