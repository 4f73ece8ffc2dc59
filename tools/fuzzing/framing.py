"""Where one request ends and the next begins: our reader against itself, and against h11's.

Two readers that disagree about that are how one client's bytes become another's request. Nothing
here touches a network: pieces of bytes go in, and what was handed over comes out.
"""

import re
from random import Random
from typing import Any

import h11

from labkit.live.http.exchange import Exchange
from labkit.live.http.protocol import Hub
from labkit.live.http.reading import MOST_HEAD

from .wires import split

LENIENT = re.compile(
    r"RTSP/1\.0|ICE/1\.0|no request line received|request line.*  |request line: bytearray\(b'\\r"
)
"""What h11 refuses and we do not: protocols that our parser takes for HTTP/1.0 and does not name;
line ends before a request, of either sort, and more than one space within its first line."""

Request = tuple[bytes, bytes, bytes]
"""Method, path and body."""


class _Clock:
    def time(self) -> float:
        return 0.0


class _Transport:
    """Keeps what is written; closed is closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Reader:
    """One connection of ours without a network: requests handed over, and statuses refused with.

    `late`: each answer comes only after every byte has been fed, as from a busy server.
    """

    def __init__(self, late: bool = False) -> None:
        self.requests: list[Request] = []
        self.refused: list[int] = []
        self._late = late
        self._open: list[Exchange] = []
        loop: Any = _Clock()
        self._line = Hub(loop, self._handle, self.refused.append, 10).connection()
        self.transport = _Transport()
        told: Any = self.transport
        self._line.connection_made(told)

    def feed(self, pieces: list[bytes]) -> "Reader":
        """All of them, and then every answer."""
        for piece in pieces:
            if self.transport.closed:
                break
            self._line.data_received(piece)
        while self._open:
            self._open.pop(0).respond(200, b"{}")
        return self

    def _handle(self, exchange: Exchange) -> None:
        self.requests.append((exchange.method, exchange.path, exchange.body))
        if self._late:
            self._open.append(exchange)
        else:
            exchange.respond(200, b"{}")


def finding(text: bytes, rng: Random) -> str | None:
    """What is wrong with how these bytes are read; None for nothing."""
    try:
        whole = Reader().feed([text])
        late = Reader(late=True).feed([text])
        pieces = Reader().feed(split(rng, text))
    except Exception as error:
        return f"raised {error!r}"
    for name, other in (("late", late), ("in pieces", pieces)):
        if whole.requests != other.requests:
            return f"read as {whole.requests!r:.300}, but {name} as {other.requests!r:.300}"
    if len(text) < MOST_HEAD and whole.refused != pieces.refused:
        return f"refused with {whole.refused}, but in pieces with {pieces.refused}"
    return _beside_h11(whole, text)


def _beside_h11(ours: Reader, text: bytes) -> str | None:
    theirs, refused = read_by_h11(text)
    for number, request in enumerate(ours.requests):
        if number >= len(theirs):
            if refused and not LENIENT.search(refused):
                return f"request {number} is {request!r:.300}, which h11 refuses: {refused}"
            return None
        if request != theirs[number]:
            return f"request {number} is {request!r:.300}, and h11 reads {theirs[number]!r:.300}"
    missed = theirs[len(ours.requests) :]
    # What may be the preface of HTTP/2 is waited for, until it is too late.
    silent = not ours.refused and not ours.transport.closed
    if silent and missed and missed[0][0] != b"PRI":
        return f"h11 reads {missed[0]!r:.300}, of which nothing was said"
    return None


def read_by_h11(text: bytes) -> tuple[list[Request], str]:
    """The requests in these bytes as h11 reads them, and why it stops, if it refuses."""
    line = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
    found: list[Request] = []
    try:
        line.receive_data(text)
        while True:
            event = line.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                if line.their_state is not h11.MIGHT_SWITCH_PROTOCOL:
                    return found, ""
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                found.append((head.method, _path(head.target), body))
                line.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                line.send(h11.EndOfMessage())
                if line.our_state is h11.MUST_CLOSE:
                    return found, ""
                line.start_next_cycle()
            else:
                return found, ""
    except h11.RemoteProtocolError as error:
        return found, str(error)


def _path(target: bytes) -> bytes:
    path = target.partition(b"?")[0]
    if path[:7].lower() == b"http://":
        return b"/" + path[7:].partition(b"/")[2]
    return path
