"""A pipe to a worker process: whole messages, each in one read where it fits."""

import pickle
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

Rest = Callable[[], None]
"""Sends what is left of a message, and waits for room."""

ONE_READ = 1 << 16
SIZE_BYTES = 4


class Channel(Protocol):
    """What both ends of a pipe can do, also that of `multiprocessing`."""

    def send(self, message: Any) -> None:
        """Waits while there is no room."""

    def recv(self) -> Any:
        """Waits for the next message; raises EOFError at the end."""

    def fileno(self) -> int:
        """To wait for it among others."""

    def close(self) -> None:
        """Twice is once."""


class Pipe:
    """One end, on a stream socket; a message is its size in four bytes, then its pickle.

    `multiprocessing` reads a message in two steps. Each gives up the interpreter's lock, and to
    get that back beside a busy loop takes longer than the rest of the message's way.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        # Whatever the process has set for its other sockets.
        self._socket.settimeout(None)
        self._came = bytearray()
        self._messages: deque[Any] = deque()

    def fileno(self) -> int:
        """Raises OSError when it is closed."""
        fd = self._socket.fileno()
        if fd < 0:
            raise OSError("this end of the pipe is closed")
        return fd

    def send(self, message: Any) -> None:
        """See `Channel`."""
        self._socket.sendall(_framed(message))

    def offer(self, message: Any) -> Rest | None:
        """Send as much as there is room for, without waiting; None when that was all of it."""
        data = _framed(message)
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        return None if sent == len(data) else partial(self._socket.sendall, data[sent:])

    @property
    def holds_more(self) -> bool:
        """Whether the next message has come with the last, so that to wait for it would be long."""
        return bool(self._messages)

    def recv(self) -> Any:
        """See `Channel`."""
        while not self._messages:
            self._read()
        return self._messages.popleft()

    def read(self) -> list[Any]:
        """The messages that are whole after one read, which waits only if there is nothing at all.

        Raises EOFError at the end.
        """
        self._read()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def hang_up(self) -> None:
        """Let nobody wait at this end any more, even while another process has the other one."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See `Channel`."""
        self._socket.close()

    def _read(self) -> None:
        data = self._socket.recv(ONE_READ)
        if not data:
            raise EOFError
        came = self._came
        came += data
        while len(came) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(came[:SIZE_BYTES])
            if len(came) < end:
                return
            payload = bytes(came[SIZE_BYTES:end])
            del came[:end]
            self._messages.append(pickle.loads(payload))


def _framed(message: Any) -> bytes:
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(payload).to_bytes(SIZE_BYTES) + payload
