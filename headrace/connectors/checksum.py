"""Files that are read back later: the checksum of what is written to one, while it is written."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Summed:
    """A file that is written, with the size and CRC-32 of what was written to it; as Arrow can use it too."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size, self.crc = 0, 0

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        left = view
        while left:
            left = left[self.file.write(left) :]
        return len(view)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()

    @property
    def closed(self) -> bool:
        return self.file.closed
