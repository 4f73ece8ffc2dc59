"""The lines of a trace, one at a time: from a path or an open file, plain or gzip, any bytes."""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final

MAX_LINE: Final = 1 << 20
"""Characters (or bytes) of one line that are read; what is longer is not a row."""

Source = str | os.PathLike[str] | IO[str] | IO[bytes]
"""What a trace can be read from."""

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BROKEN = (EOFError, OSError, ValueError, zlib.error)


class TraceError(ValueError):
    """A trace that cannot be read: names the file, what was found, and the remedy."""


def source_name(source: Source) -> str:
    """What to call a source in a message."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return str(name) if isinstance(name, str) else f"the given {type(source).__name__}"


def lines(source: Source) -> Iterator[str | None]:
    """Each line without its ending, in constant memory; None for a line over `MAX_LINE`.

    Bytes that are not UTF-8 become U+FFFD, and a byte-order mark is dropped. Gzip is told by its
    first bytes. A file opened here is closed when the iterator ends or is dropped; one that was
    given stays open.
    """
    name = source_name(source)
    if isinstance(source, str | os.PathLike):
        with closing(_opened(source, name)) as file:
            yield from _read(_plain(file, name), name)
    elif not hasattr(source, "read"):
        raise TraceError(f"{name}: not a path or an open file; pass one of the two")
    elif _is_text(source):
        yield from _read(source.readline, name)
    else:
        yield from _read(_plain(source, name), name)


def _opened(path: str | os.PathLike[str], name: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except IsADirectoryError:
        raise TraceError(f"{name}: is a directory; name one trace file in it") from None
    except FileNotFoundError:
        raise TraceError(f"{name}: no such file; check the path (from {Path.cwd()})") from None
    except (OSError, ValueError) as error:
        raise TraceError(
            f"{name!r}: cannot be opened ({error}); check its name and rights"
        ) from None


def _is_text(file: Any) -> bool:
    try:
        return isinstance(file.read(0), str)
    except _BROKEN:
        return False


def _plain(file: Any, name: str) -> Callable[[int], bytes]:
    """The `readline` of a binary file, unpacked if it is gzip."""
    try:
        head = file.read(2)
        if len(head) == 1:
            head += file.read(1)
    except _BROKEN as error:
        raise TraceError(f"{name}: cannot be read ({error}); open it for reading") from None
    if head in _UTF16:
        raise TraceError(f"{name}: is UTF-16 text; save it as UTF-8")
    whole = io.BufferedReader(_Rejoined(head, file))
    if head == _GZIP:
        return io.BufferedReader(gzip.GzipFile(fileobj=whole)).readline
    if name.lower().endswith(".gz"):
        raise TraceError(
            f"{name}: is named .gz, but begins with {head!r} where gzip has {_GZIP!r}; "
            "download it again, or drop .gz from the name if it is plain text"
        )
    return whole.readline


class _Rejoined(io.RawIOBase):
    """The two bytes already read, and then the rest: a pipe cannot be rewound."""

    def __init__(self, head: bytes, file: Any) -> None:
        self._head = head
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._head[: len(buffer)] or self._file.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _read(readline: Callable[[int], str | bytes], name: str) -> Iterator[str | None]:
    number = 0
    try:
        while line := readline(MAX_LINE):
            number += 1
            text = line if isinstance(line, str) else line.decode("utf-8", "replace")
            if number == 1:
                text = text.removeprefix("\ufeff")
            whole = len(line) < MAX_LINE or _ends(line)
            yield text.rstrip("\r\n") if whole else None
            # What is left of a line that is too long is read only if somebody goes on: the first
            # line of an endless device is refused before that.
            while not whole:
                rest = readline(MAX_LINE)
                whole = not rest or _ends(rest)
    except UnicodeError as error:
        raise TraceError(
            f"{name}: is not text after line {number} ({error}); open it in binary mode"
        ) from None
    except _BROKEN as error:
        raise TraceError(
            f"{name}: cannot be read after line {number} ({error}); the file is cut short, damaged "
            "or closed: download it again, or open it for reading"
        ) from None


def _ends(line: str | bytes) -> bool:
    return line.endswith("\n") if isinstance(line, str) else line.endswith(b"\n")
