"""The way back on a connection of our own: heads, whole bodies, and bodies in chunks."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from labkit.live.http.exchange import JSON, Exchange
from labkit.live.http.refusals import Refusal

if TYPE_CHECKING:
    from labkit.live.http.protocol import Connection

_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


class Answering(Exchange):
    """An exchange on a connection of our own."""

    __slots__ = ("_chunked", "_connection", "_head_only", "_keep", "_version")

    def __init__(self, connection: "Connection", keep: bool, version: str, *request: Any) -> None:
        super().__init__(*request)
        self._connection = connection
        self._keep = keep
        self._version = version
        self._head_only = self.method == b"HEAD"
        self._chunked = False

    def respond(self, status: int, body: bytes, kind: bytes = JSON, extra: bytes = b"") -> None:
        """One write."""
        head = b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n" % (
            _LINES.get(status, _LINES[500]),
            self._connection.hub.common,
            kind,
            len(body),
            extra,
            self._fate(),
        )
        self._connection.write(head if self._head_only else head + body)
        self._over()

    def begin(self, kind: bytes, extra: bytes, first: bytes) -> None:
        """In chunks where the client knows them, else until the connection closes."""
        self._chunked = self._version == "1.1"
        self._keep = self._keep and self._chunked
        head = b"%b%bcontent-type: %b\r\n%b%b%b\r\n" % (
            _LINES[200],
            self._connection.hub.common,
            kind,
            extra,
            b"transfer-encoding: chunked\r\n" if self._chunked else b"",
            self._fate(),
        )
        self._connection.write(head + self._chunk(first))

    def push(self, piece: bytes) -> None:
        """One chunk."""
        self._connection.write(self._chunk(piece))

    def end(self) -> None:
        """The chunk that says so."""
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")
        self._over()

    def cut(self) -> None:
        """What was pushed is still sent."""
        self._keep = False
        self._over()

    def _chunk(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    def _fate(self) -> bytes:
        """What becomes of the connection, where that is not what its version says anyhow."""
        if self._connection.hub.closing:
            self._keep = False
        if not self._keep:
            return b"connection: close\r\n"
        return b"" if self._version == "1.1" else b"connection: keep-alive\r\n"

    def _over(self) -> None:
        self.left = None
        self._connection.answered(self._keep)


def farewell(refusal: Refusal, common: bytes) -> bytes:
    """The response to what was never a request; `common` are the hub's header lines."""
    body = refusal.body()
    return b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b" % (
        _LINES[refusal.status],
        common,
        JSON,
        len(body),
        refusal.headers,
        body,
    )
