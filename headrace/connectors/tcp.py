"""Bytes from sockets: from a server we connect to, or from all clients that connect to us.

No client can block the others: each has its own unfinished line, and only complete lines are passed on.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace import tuning
from headrace.connectors.lines import CUT, LONGEST, too_long_mark
from headrace.errors import ConnectorError

CHUNK: Final = 1 << 16
HEAD: Final = 4096
"""Bytes kept of a line that is too long."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Keep-alive: idle seconds, seconds between probes, and unanswered probes until a peer counts as gone."""


def keep_alive(connection: socket.socket) -> None:
    """Turn on keep-alive, so that the system notices a peer that has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _received(connection: socket.socket) -> bytes | None:
    """The received bytes; None if there are none now, b"" if the connection has ended."""
    try:
        return connection.recv(CHUNK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


class TcpClient:
    """The bytes that a server sends, as in Spark's socket source."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=10)
        except OSError as error:
            raise ConnectorError(
                "HR-C004",
                f"cannot connect: {error}",
                place=f"{host}:{port}",
                hint="start the server first, or set listen = true to let clients connect here",
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
    """Limits for clients. `idle`: seconds of silence after which a client is dropped if another one waits.

    `line` and `pending` are bytes: of one line, and of the unfinished lines of all clients together.
    """

    line: int = LONGEST
    clients: int = 64
    idle: float = 300
    pending: int = 64 << 20


@dataclass(eq=False)
class _Client:
    """A connection, its unfinished line, and when it last sent data."""

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
        """Add to the unfinished line; once it is too long, only count its bytes."""
        if self.dropped:
            self.dropped += len(data)
            return
        self.rest += data
        if len(self.rest) > longest:
            self.drop("")

    def drop(self, why: str) -> None:
        """Keep only the beginning of the unfinished line."""
        self.dropped, self.why = len(self.rest), why
        del self.rest[HEAD:]

    def _finished(self) -> bytes:
        """The completed line; a line that was too long ends with a mark that gives the reason."""
        if self.dropped:
            line = bytes(self.rest) + too_long_mark(
                f"the line has {self.dropped} bytes, which is too long{self.why}"
            )
        else:
            line = bytes(self.rest) + b"\n"
        self.rest, self.dropped, self.why = bytearray(), 0, ""
        return line

    def left(self) -> bytes:
        """The unfinished line, marked as such."""
        if self.dropped:
            return self._finished()
        rest, self.rest = bytes(self.rest), bytearray()
        return rest + CUT if rest else b""


class TcpServer:
    """A server: the lines of all clients, which are read in turn. It never ends by itself.

    When `limits.clients` are connected, further clients wait until one disconnects or has been idle for
    too long.
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
                hint="choose a free port and an address of this machine",
            ) from None
        self._server.setblocking(False)
        self._limits, self._now = limits, now
        self._clients: list[_Client] = []
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._server, selectors.EVENT_READ)
        self._out: list[bytes] = []

    @property
    def port(self) -> int:
        """The port it listens on; if 0 was requested, the port chosen by the system."""
        return int(self._server.getsockname()[1])

    @property
    def clients(self) -> int:
        """The number of connected clients."""
        return len(self._clients)

    def receive(self) -> bytes | None:
        """Complete lines of one or more clients; None if there are none now."""
        size = 0
        while not self._out and size < tuning.current.live_block_bytes and (read := self._turn()):
            size += read
        lines, self._out = b"".join(self._out), []
        return lines or None

    def _turn(self) -> int:
        """Read once from each client that has data; returns the number of bytes read."""
        size = 0
        for key, _ in self._ready.select(0):
            if key.data is None:
                size += self._accept()
            else:
                size += self._read(key.data)
        return size

    def _accept(self) -> int:
        """Accept a waiting client if there is room; returns 1 if something happened, else 0."""
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
        """Disconnect the client that has been idle for longest, if it is over the limit."""
        silent = min(self._clients, key=lambda client: client.spoke)
        if self._now() - silent.spoke < self._limits.idle:
            return False
        self._hang_up(silent)
        return True

    def _read(self, client: _Client) -> int:
        """Read from one client; returns the bytes read, or 1 if it disconnected."""
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
        """Drop the longest unfinished line while all of them together are over the limit."""
        while sum(len(client.rest) for client in self._clients) > self._limits.pending:
            longest = max(self._clients, key=lambda client: len(client.rest))
            if longest.dropped:
                return
            longest.drop(f"; the unfinished lines of all clients took more than {self._limits.pending} bytes")

    def _hang_up(self, client: _Client) -> None:
        """Disconnect a client; its unfinished line is passed on, marked as cut off."""
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
