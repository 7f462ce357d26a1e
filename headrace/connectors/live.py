"""Lines that come as they are written: from a socket or from standard input. What was read is not read again.

At most a block is held: while nobody reads, the sender's buffers fill, and the sender waits.
"""

from __future__ import annotations

import os
import select
import socket
from dataclasses import dataclass, field
from typing import Final, Protocol

from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, Block, Position, empty, shown
from headrace.connectors.csv_lines import CsvLines, header
from headrace.connectors.formats import Format
from headrace.connectors.json_lines import JsonLines
from headrace.errors import ConnectorError
from headrace.schema import Schema

CHUNK: Final = 1 << 16
BLOCK: Final = 1 << 20


class Wire(Protocol):
    """Bytes that come; `receive` gives None for nothing now and b"" for nothing ever."""

    def receive(self) -> bytes | None: ...

    def close(self) -> None: ...


class Assembler:
    """Puts bytes together to whole lines; of a line that is too long only the beginning is kept."""

    def __init__(self, longest: int) -> None:
        self._rest = b""
        self._longest = longest
        self._dropped = 0

    def add(self, data: bytes) -> tuple[bytes, list[Bad]]:
        """The whole lines that `data` completes."""
        bad = []
        if self._dropped:
            end = data.find(b"\n")
            self._dropped += len(data) if end < 0 else end
            if end < 0:
                return b"", []
            bad.append(self._bad(self._dropped))
            self._rest, self._dropped, data = b"", 0, data[end + 1 :]
        whole = self._rest + data
        end = whole.rfind(b"\n") + 1
        self._rest = whole[end:]
        if len(self._rest) > self._longest:
            self._dropped, self._rest = len(self._rest), self._rest[:4096]
        return whole[:end], bad

    def finish(self) -> tuple[bytes, list[Bad]]:
        """The last line, which has no end."""
        rest, dropped = self._rest, self._dropped
        self._rest, self._dropped = b"", 0
        return (
            (b"", [Bad(Code.TOO_LONG, f"a line of {dropped} bytes", shown(rest))]) if dropped else (rest, [])
        )

    def _bad(self, size: int) -> Bad:
        return Bad(Code.TOO_LONG, f"a line of {size} bytes", shown(self._rest))


@dataclass
class LiveLines:
    """Rows of the lines on a wire. It ends with the wire, or, with `keep_open`, never."""

    wire: Wire
    schema: Schema
    how: Format
    bounded: bool = True
    rereads: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._lines = Assembler(self.how.longest)
        self._decoder: JsonLines | CsvLines | None = None
        if self.how.name == "json":
            self._decoder = JsonLines(self.schema, missing=self.how.missing)
        elif not self.how.header:
            self._decoder = CsvLines(self.schema, self.schema.names, delimiter=self.how.delimiter)
        self._bytes = 0
        self.ended = False

    def read(self) -> Block | None:
        got, bad = self._receive()
        if not got and not bad:
            return None
        block = self._decode(got)
        return Block(block.data, (*bad, *block.bad))

    def _receive(self) -> tuple[bytes, list[Bad]]:
        """All that is there, up to a block, as whole lines."""
        lines: list[bytes] = []
        bad: list[Bad] = []
        size = 0
        while size < BLOCK and not self.ended:
            data = self.wire.receive()
            if data is None:
                break
            self._bytes += len(data)
            size += len(data)
            self.ended = not data
            whole, long = self._lines.add(data) if data else self._lines.finish()
            lines.append(whole)
            bad += long
        return b"".join(lines), bad

    def _decode(self, lines: bytes) -> Block:
        if self._decoder is None and lines:
            first, _, lines = lines.partition(b"\n")
            names = header(first, self.how.delimiter)
            self._decoder = CsvLines(self.schema, names, delimiter=self.how.delimiter)
        return self._decoder.decode(lines) if self._decoder else Block(empty(self.schema))

    def position(self) -> Position:
        return {"bytes": self._bytes}

    def seek(self, position: Position) -> None:
        self._bytes = position["bytes"]

    def close(self) -> None:
        self.wire.close()


class StandardInput:
    """The bytes of standard input, or of another descriptor."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor

    def receive(self) -> bytes | None:
        ready, _, _ = select.select([self._descriptor], [], [], 0)
        return os.read(self._descriptor, CHUNK) if ready else None

    def close(self) -> None:
        return None


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
        self._socket.setblocking(False)

    def receive(self) -> bytes | None:
        try:
            return self._socket.recv(CHUNK)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def close(self) -> None:
        self._socket.close()


class TcpServer:
    """The bytes that clients send, one client after the other; it never ends by itself."""

    def __init__(self, host: str, port: int) -> None:
        self._server = socket.create_server((host, port))
        self._server.setblocking(False)
        self._client: socket.socket | None = None

    @property
    def port(self) -> int:
        """The port it listens on; chosen by the system where 0 was asked for."""
        return int(self._server.getsockname()[1])

    def receive(self) -> bytes | None:
        try:
            if self._client is None:
                self._client, _ = self._server.accept()
                self._client.setblocking(False)
            data = self._client.recv(CHUNK)
        except BlockingIOError:
            return None
        except ConnectionError:
            data = b""
        if data:
            return data
        self._hang_up()
        return b"\n"

    def _hang_up(self) -> None:
        """The client has gone; a line it did not end ends here."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        self._hang_up()
        self._server.close()
