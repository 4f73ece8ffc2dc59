"""HTTP/1.1 on a bare asyncio protocol: httptools parses, and a request costs no task.

One connection answers one request at a time, in order; what is pipelined waits, within a bound.
Whoever closes their side has left: half a connection is not served. An idle connection costs about
four kilobytes of this process.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import httptools

from labkit.live.http.bodies import MOST_BODY
from labkit.live.http.exchange import JSON, NO_HEADERS, Exchange
from labkit.live.http.refusals import Refusal

MOST_HEAD = 16_384
MOST_HEADERS = 100
MOST_FRAMING = MOST_BODY
"""Bytes of a request that are not its body: chunk sizes and trailers, too, end somewhere."""

PAUSE_AT = 16
"""Requests that wait on one connection before reading pauses; what one read brought is kept."""

ARRIVE_WITHIN_S = 10.0
"""From the first byte of a request to its last."""

IDLE_S = 75.0
READ_WITHIN_S = 10.0
"""How long a client may leave what we write unread."""

LINGER_S = 1.0
"""After a refusal that did not wait for the body, what still comes is thrown away for so long."""

MOST_REFUSED = 50
"""Connections over the limit that are told so at one time; more of them are hung up on."""

Handle = Callable[[Exchange], None]
Refused = Callable[[int], None]
"""Hears the status of what was refused before it was a whole request."""

_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}
_ONCE = (b"host", b"transfer-encoding")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Hub:
    """What all connections share: the handler, the open ones, the date, and the sweep."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handle: Handle, refused: Refused, most: int
    ) -> None:
        self.loop = loop
        self.handle = handle
        self.refused = refused
        self.most = most
        self.open: set[Connection] = set()
        self.closing = False
        self.common = b""
        self.date()

    def connection(self) -> "Connection":
        """For `create_server`."""
        return Connection(self)

    def date(self) -> None:
        """Once a second is often enough."""
        self.common = b"date: %b\r\n" % formatdate(usegmt=True).encode()

    def sweep(self) -> None:
        """Once a second: end whoever is too slow, or idle for too long."""
        self.date()
        now = self.loop.time()
        for connection in list(self.open):
            connection.look(now)

    def close(self) -> None:
        """Close every connection once it has been answered; idle ones now."""
        self.closing = True
        for connection in list(self.open):
            connection.close_when_idle()

    def abort(self) -> None:
        """Close whatever is still open, this instant."""
        for connection in list(self.open):
            connection.abort()


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


class Connection(asyncio.Protocol):
    """One client's connection: parse, hand over, answer in order."""

    __slots__ = (
        "_begun",
        "_begun_at",
        "_body",
        "_body_size",
        "_current",
        "_headers",
        "_headers_size",
        "_heard_at",
        "_in_head",
        "_keep",
        "_lingers",
        "_owes_continue",
        "_parser",
        "_paused",
        "_peer",
        "_pumping",
        "_refused",
        "_stalled_at",
        "_transport",
        "_url",
        "_version",
        "_waiting",
        "_wire_size",
        "hub",
    )

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._parser: Any = httptools.HttpRequestParser(self)
        self._current: Answering | None = None
        self._waiting: deque[Answering] = deque()
        self._transport: Any = None
        self._begun_at: float | None = None
        self._stalled_at: float | None = None
        self._heard_at = hub.loop.time()
        self._refused: Refusal | None = None
        self._in_head = False
        self._owes_continue = False
        self._begun = self._wire_size = 0
        self._pumping = False
        self._lingers = False
        self._paused = False
        self._keep = True
        self._peer = ""

    # -- from the transport -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let in, or told at once that there are too many, while that needs no file of its own."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        self.hub.open.add(self)
        over = len(self.hub.open) - self.hub.most
        if over > MOST_REFUSED:
            self._transport.abort()
        elif over > 0:
            self._refuse(Refusal("too_many_connections", headers=b"retry-after: 1\r\n"))

    def data_received(self, data: bytes) -> None:
        """Feed the parser; what it calls back never raises."""
        if self._lingers:
            return
        self._heard_at = self.hub.loop.time()
        if self._begun_at is None:
            self._begun = 0
        else:
            self._wire_size += len(data)
        self._feed(data)
        if self._begun == 1 and not self._wire_size:
            # It began with this very piece, so as far as is known it is as long.
            self._wire_size = len(data)
        if self._begun_at is not None and self._refused is None:
            self._check_framing()
        if self._refused is not None:
            self._refuse(self._refused)

    def _feed(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._refused is not None:
                    return
                # An offer that is not taken up; the request is the same without it.
                rest = memoryview(rest)[upgrade.args[0] :]
                head = self._without_upgrade()
                self._parser = httptools.HttpRequestParser(self)
                self._parser.feed_data(head)
            except httptools.HttpParserError as error:
                self._object(Refusal("bad_http", f"this is not HTTP/1.1: {error}"))
                return

    def _without_upgrade(self) -> bytes:
        parser = self._parser
        lines = [b"%b: %b\r\n" % line for line in self._headers.items() if line[0] != b"upgrade"]
        first = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self._url, self._version.encode())
        return b"%b%b\r\n" % (first, b"".join(lines))

    def _check_framing(self) -> None:
        """What is not body has a bound, even where the parser keeps it to itself until it ends."""
        framing = self._wire_size - self._body_size
        if self._in_head and framing > MOST_HEAD:
            self._object(Refusal("headers_too_large"))
        elif framing > MOST_FRAMING:
            self._object(Refusal("bad_http", "more framing than a body needs; use larger chunks"))

    def _object(self, refusal: Refusal) -> None:
        """The first objection stands: what comes after it was never a request."""
        if self._refused is None:
            self._refused = refusal

    def eof_received(self) -> bool | None:
        """The client has left; the transport closes itself."""
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """Withdraw everything that was not answered."""
        self.hub.open.discard(self)
        current, self._current = self._current, None
        self._waiting.clear()
        self._parser = None
        if current is not None and current.left is not None:
            current.left()

    def pause_writing(self) -> None:
        """The client does not read: nothing more of it is read either."""
        self._stalled_at = self.hub.loop.time()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._stalled_at = None
        if not self._paused:
            self._read_on()

    def _read_on(self) -> None:
        """What could not be read meanwhile has all its time again."""
        if self._begun_at is not None:
            self._begun_at = self.hub.loop.time()
        self._transport.resume_reading()

    # -- from the parser --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._begun_at = self._heard_at
        self._begun += 1
        self._headers: dict[bytes, bytes] = {}
        self._url = b""
        self._body: bytes | bytearray = b""
        self._body_size = self._wire_size = self._headers_size = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """Perhaps in pieces."""
        self._url += url
        if len(self._url) > MOST_HEAD:
            self._object(Refusal("headers_too_large"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Kept by its lower-case name; said twice, the first stands. Trailers are not kept."""
        headers = self._headers
        self._headers_size += len(name) + len(value)
        if len(headers) >= MOST_HEADERS or self._headers_size > MOST_HEAD:
            self._object(Refusal("headers_too_large"))
            return
        if not self._in_head:
            return
        name = name.lower()
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            self._object(Refusal("bad_http", f"two headers {name.decode()}; send one"))

    def on_headers_complete(self) -> None:
        """Refuse a body that says it is too large before it comes, else let it come."""
        self._in_head = False
        self._version = self._parser.get_http_version()
        if self._refused is None:
            self._refused = self._head_problem()
        if self._refused is None and b"expect" in self._headers:
            self._expected()

    def _head_problem(self) -> Refusal | None:
        headers, version = self._headers, self._version
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if version not in ("1.1", "1.0"):
            return Refusal("bad_http", f"HTTP/{version}: this server speaks HTTP/1.1 alone")
        if b"host" not in headers and version == "1.1":
            return Refusal("bad_http", "HTTP/1.1 needs a Host header")
        if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
            return Refusal("bad_http", "no transfer encoding but HTTP/1.1's chunked is understood")
        if length is not None and length.isdigit() and int(length[-19:]) > MOST_BODY:
            return Refusal("body_too_large")
        if self._parser.get_method() == b"CONNECT":
            return Refusal("method_not_allowed", headers=b"allow: GET, HEAD, POST\r\n")
        return None

    def _expected(self) -> None:
        """Say "continue" when the answers before it are out: it must not land among them."""
        parser = self._parser
        if self._headers[b"expect"].lower() != b"100-continue":
            self._object(Refusal("expectation_failed"))
        elif self._version == "1.1" and not parser.should_upgrade():
            if self._current is None:
                self.write(_CONTINUE)
            else:
                self._owes_continue = True

    def on_body(self, body: bytes) -> None:
        """Kept up to the cap; of more than one piece in a buffer that grows without copies."""
        self._body_size += len(body)
        if self._body_size > MOST_BODY:
            self._object(Refusal("body_too_large"))
        elif self._refused is None:
            if not self._body:
                self._body = body
            elif isinstance(self._body, bytearray):
                self._body += body
            else:
                self._body = bytearray(self._body) + body

    def on_message_complete(self) -> None:
        """Hand it over, or let it wait for those before it."""
        parser = self._parser
        if b"upgrade" in self._headers and self._refused is None and parser.should_upgrade():
            return
        self._begun_at = None
        self._owes_continue = False
        if self._refused is not None:
            return
        keep = self._keep and parser.should_keep_alive()
        exchange = Answering(
            self,
            keep,
            self._version,
            parser.get_method(),
            self._path(),
            self._headers,
            bytes(self._body),
            self._peer,
            self._heard_at,
        )
        self._headers, self._body = NO_HEADERS, b""
        self._waiting.append(exchange)
        if self._current is None:
            self._pump()
        elif len(self._waiting) >= PAUSE_AT and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _path(self) -> bytes:
        """Without the query; a proxy may send the whole address."""
        path = self._url.partition(b"?")[0]
        if path[:7].lower() == b"http://":
            path = b"/" + path[7:].partition(b"/")[2]
        return path

    # -- answers ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """To the client, if it is there."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def answered(self, keep: bool) -> None:
        """The current one has its response; go on with the next, or close."""
        self._current = None
        if not keep:
            self._waiting.clear()
            self._transport.close()
        elif self._waiting:
            self._pump()
        elif self._refused is not None:
            self._refuse(self._refused)
        elif self._owes_continue:
            self._owes_continue = False
            self.write(_CONTINUE)

    def _pump(self) -> None:
        """Hand over what waits while the one before is answered at once; never recursive."""
        if self._pumping:
            return
        self._pumping = True
        while self._waiting and self._current is None and not self._transport.is_closing():
            self._current = self._waiting.popleft()
            self.hub.handle(self._current)
        self._pumping = False
        if self._paused and len(self._waiting) < PAUSE_AT:
            self._paused = False
            if self._stalled_at is None and not self._transport.is_closing():
                self._read_on()

    def _refuse(self, refusal: Refusal) -> None:
        """Say why once those before it are answered; then listen a little, and close."""
        self._refused = refusal
        if self._lingers or self._current is not None or self._transport.is_closing():
            return
        body = refusal.body()
        self.hub.refused(refusal.status)
        self.write(
            b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
            % (
                _LINES[refusal.status],
                self.hub.common,
                JSON,
                len(body),
                refusal.headers,
                body,
            )
        )
        self._lingers = True
        self._heard_at = self.hub.loop.time()
        # Closed at once, the kernel would answer what is still on its way with a reset, and the
        # client might never read why.
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # -- once a second ----------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """End this connection if it is too slow, or idle for too long."""
        if self._lingers:
            if now - self._heard_at > LINGER_S:
                self._transport.abort()
        elif self._stalled_at is not None:
            if now - self._stalled_at > READ_WITHIN_S:
                self._transport.abort()
        elif self._paused:
            return
        elif self._begun_at is not None and now - self._begun_at > ARRIVE_WITHIN_S:
            self._refuse(Refusal("request_timeout"))
        elif self._current is None and now - self._heard_at > IDLE_S:
            self._transport.close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()

    def close_when_idle(self) -> None:
        """Now, unless a request is being answered or is arriving."""
        if self._current is None and self._begun_at is None and not self._lingers:
            self._transport.close()
