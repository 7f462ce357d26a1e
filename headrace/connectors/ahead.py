"""Reads one block ahead in a thread: while one block is processed, the next is decoded."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from headrace.connectors.contract import Block, Position, Source, Span


class ReadAhead:
    """Wraps a source and holds at most one more block in memory.

    Its position is that of the next block to return, even if that block was already read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pool: ThreadPoolExecutor | None = None
        self._coming: Future[tuple[Block | None, Position]] | None = None
        self._position: Position = source.position()
        self.ended = source.ended

    @property
    def bounded(self) -> bool:
        return self._source.bounded

    def read(self) -> Block | None:
        block, self._position = self._read() if self._coming is None else self._coming.result()
        self._coming = None
        if block is None:
            self.ended = self._source.ended
            return None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "read-ahead")
        self._coming = self._pool.submit(self._read)
        return block

    def _read(self) -> tuple[Block | None, Position]:
        """The next block and the position after it."""
        block = self._source.read()
        return block, self._source.position()

    def position(self) -> Position:
        return self._position

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._settle()
        self._source.seek(position, span)
        self._position, self.ended = self._source.position(), self._source.ended

    def _settle(self) -> None:
        """Drop the block that is being read."""
        if self._coming is not None:
            self._coming.exception()
            self._coming = None

    def close(self) -> None:
        self._settle()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._source.close()
