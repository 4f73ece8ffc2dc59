"""What arrives on a connection, put together into requests: httptools parses, all has a bound."""

from typing import Any, Protocol

import httptools

from labkit.live.http.bodies import MOST_BODY
from labkit.live.http.exchange import NO_HEADERS
from labkit.live.http.refusals import Refusal

MOST_HEAD = 16_384
MOST_HEADERS = 100
MOST_FRAMING = MOST_BODY
"""Bytes of a request that are not its body: chunk sizes and trailers, too, end somewhere."""

_ONCE = (b"host", b"transfer-encoding")


class Line(Protocol):
    """Whoever is told of what arrived."""

    def take(
        self,
        method: bytes,
        path: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        version: str,
        keep: bool,
    ) -> None:
        """A whole request; `keep`: as far as it says, more may follow on this connection."""

    def expected(self) -> None:
        """The client sends the body of its request only when it hears "continue"."""


class Reader:
    """One connection's bytes, as requests in the order in which they came; never raises.

    `refused` is the first objection to what came, or the line's own: nothing after it is a request.
    `heard_at` is when the last bytes came, and `begun_at` when those of a request that is not
    whole yet began, in the seconds that `feed` is told.
    """

    __slots__ = (
        "_begun",
        "_body",
        "_body_size",
        "_headers",
        "_headers_size",
        "_in_head",
        "_line",
        "_parser",
        "_url",
        "_version",
        "_wire_size",
        "begun_at",
        "heard_at",
        "refused",
    )

    def __init__(self, line: Line, now: float) -> None:
        self._line = line
        self._parser: Any = httptools.HttpRequestParser(self)
        self.refused: Refusal | None = None
        self.begun_at: float | None = None
        self.heard_at = now
        self._begun = self._wire_size = 0
        self._in_head = False

    def feed(self, data: bytes, now: float) -> None:
        """The next bytes; what the parser calls back tells the line of every request they end."""
        self.heard_at = now
        if self.begun_at is None:
            self._begun = 0
        else:
            self._wire_size += len(data)
        rest: bytes | memoryview = data
        while rest:
            try:
                self._parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as upgrade:
                if self.refused is not None:
                    break
                rest = memoryview(rest)[upgrade.args[0] :]
                self._start_over()
            except httptools.HttpParserError as error:
                self._object(Refusal("bad_http", f"this is not HTTP/1.1: {error}"))
                break
        if self._begun == 1 and not self._wire_size:
            # It began with this very piece, so as far as is known it is as long.
            self._wire_size = len(data)
        if self.begun_at is not None and self.refused is None:
            self._check_framing()

    def close(self) -> None:
        """The connection is gone: what knows this reader, and is known by it, can be freed."""
        del self._parser, self._line

    def _start_over(self) -> None:
        """An offer to upgrade is not taken up; the request is the same without it."""
        parser = self._parser
        lines = [b"%b: %b\r\n" % line for line in self._headers.items() if line[0] != b"upgrade"]
        first = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self._url, self._version.encode())
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"%b%b\r\n" % (first, b"".join(lines)))

    def _check_framing(self) -> None:
        """What is not body has a bound, even where the parser keeps it to itself until it ends."""
        framing = self._wire_size - self._body_size
        if self._in_head and framing > MOST_HEAD:
            self._object(Refusal("headers_too_large"))
        elif framing > MOST_FRAMING:
            self._object(Refusal("bad_http", "more framing than a body needs; use larger chunks"))

    def _object(self, refusal: Refusal) -> None:
        """The first objection stands: what comes after it was never a request."""
        if self.refused is None:
            self.refused = refusal

    # -- from the parser --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.begun_at = self.heard_at
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
        if self.refused is None:
            self.refused = self._head_problem()
        if self.refused is None and b"expect" in self._headers:
            if self._headers[b"expect"].lower() != b"100-continue":
                self._object(Refusal("expectation_failed"))
            elif self._version == "1.1" and not self._parser.should_upgrade():
                self._line.expected()

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

    def on_body(self, body: bytes) -> None:
        """Kept up to the cap; of more than one piece in a buffer that grows without copies."""
        self._body_size += len(body)
        if self._body_size > MOST_BODY:
            self._object(Refusal("body_too_large"))
        elif self.refused is None:
            if not self._body:
                self._body = body
            elif isinstance(self._body, bytearray):
                self._body += body
            else:
                self._body = bytearray(self._body) + body

    def on_message_complete(self) -> None:
        """Hand it over, its path without the query."""
        parser = self._parser
        if b"upgrade" in self._headers and self.refused is None and parser.should_upgrade():
            return
        self.begun_at = None
        if self.refused is not None:
            return
        path = self._url.partition(b"?")[0]
        if path[:7].lower() == b"http://":
            # A proxy may send the whole address.
            path = b"/" + path[7:].partition(b"/")[2]
        headers, body = self._headers, bytes(self._body)
        self._headers, self._body = NO_HEADERS, b""
        self._line.take(
            parser.get_method(),
            path,
            headers,
            body,
            self._version,
            parser.should_keep_alive(),
        )
