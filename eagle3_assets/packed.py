"""Files packed with gzip or zstandard, read as what is in them; a file that is cut off or damaged is an error.

What belongs here: telling the packing by a file's first bytes, and unpacking. Not here: what is inside.
"""

import gzip
import io
import re
import zlib
from typing import Any, BinaryIO, Literal

import zstandard

DAMAGED = (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile)
"""What reading a damaged file raises; of these ``gzip.BadGzipFile`` is an ``OSError`` too."""

_GZIP, _ZSTD = b"\x1f\x8b", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
"""How they begin; of zstandard also the frames that hold no data, which pzstd puts first."""
_ZSTD_WINDOW = 1 << 31
"""Bytes that unpacking may look back over: as far as any file of zstandard's goes."""
_ZSTD_BITE = 1 << 10
"""Compressed bytes unpacked at once: so few of them cannot fill the memory, whatever they unpack to."""


def packing(start: bytes) -> Literal["gzip", "zstandard"] | None:
    """What a file is packed with, by its first 4 bytes; None where it is not."""
    if start.startswith(_GZIP):
        return "gzip"
    return "zstandard" if _ZSTD.match(start) else None


def unpacked(file: BinaryIO, start: bytes) -> BinaryIO:
    """The content of a file, unpacked where it is packed.

    Args:
        file: opened for reading bytes, at its beginning.
        start: its first 4 bytes.

    Returns:
        a buffered file; reading it may raise what ``DAMAGED`` lists.
    """
    kind = packing(start)
    if kind == "gzip":
        return gzip.open(file)  # type: ignore[return-value] # a binary file in all that is used here
    if kind == "zstandard":
        return io.BufferedReader(_Unzstd(file), 1 << 20)
    return file


class _Unzstd(io.RawIOBase):
    """A zstandard file unpacked, frame after frame; unlike the library's own reader it sees that a file is cut off."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        while not self._ready:
            self._packed = self._packed or self._file.read(_ZSTD_BITE)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the compressed file ends in the middle")
                return 0
            self._frame = self._frame or zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            self._ready = self._frame.decompress(self._packed)
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        taken, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)
