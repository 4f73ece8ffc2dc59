"""HTTP/1.1 on a bare asyncio protocol: one connection, answered in order without a task.

One connection answers one request at a time, in order; what is pipelined waits, within a bound.
Whoever closes their side has left: half a connection is not served. An idle connection costs about
four kilobytes of this process.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from labkit.live.http.exchange import Exchange
from labkit.live.http.reading import Reader
from labkit.live.http.refusals import Refusal
from labkit.live.http.writing import Answering, farewell

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


class Connection(asyncio.Protocol):
    """One client's connection: what its reader takes in is handed over and answered in order."""

    __slots__ = (
        "_current",
        "_lingers_since",
        "_owes_continue",
        "_paused",
        "_peer",
        "_pumping",
        "_reader",
        "_stalled_at",
        "_transport",
        "_waiting",
        "hub",
    )

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._reader = Reader(self, hub.loop.time())
        self._current: Answering | None = None
        self._waiting: deque[Answering] = deque()
        self._transport: Any = None
        self._stalled_at: float | None = None
        self._lingers_since: float | None = None
        self._owes_continue = False
        self._pumping = False
        self._paused = False
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
        """Read on, unless it has been refused."""
        if self._lingers_since is not None:
            return
        reader = self._reader
        reader.feed(data, self.hub.loop.time())
        if reader.refused is not None:
            self._refuse(reader.refused)

    def eof_received(self) -> bool | None:
        """The client has left; the transport closes itself."""
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """Withdraw everything that was not answered."""
        self.hub.open.discard(self)
        current, self._current = self._current, None
        self._waiting.clear()
        self._reader.close()
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
        if self._reader.begun_at is not None:
            self._reader.begun_at = self.hub.loop.time()
        self._transport.resume_reading()

    # -- from the reader --------------------------------------------------------------------------

    def take(
        self,
        method: bytes,
        path: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        version: str,
        keep: bool,
    ) -> None:
        """Hand it over, or let it wait for those before it."""
        self._owes_continue = False
        heard_at = self._reader.heard_at
        self._waiting.append(
            Answering(self, keep, version, method, path, headers, body, self._peer, heard_at)
        )
        if self._current is None:
            self._pump()
        elif len(self._waiting) >= PAUSE_AT and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def expected(self) -> None:
        """Say "continue" when the answers before it are out: it must not land among them."""
        if self._current is None:
            self.write(_CONTINUE)
        else:
            self._owes_continue = True

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
        elif self._reader.refused is not None:
            self._refuse(self._reader.refused)
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
        self._reader.refused = refusal
        lingers = self._lingers_since is not None
        if lingers or self._current is not None or self._transport.is_closing():
            return
        self.hub.refused(refusal.status)
        self.write(farewell(refusal, self.hub.common))
        self._lingers_since = self.hub.loop.time()
        # Closed at once, the kernel would answer what is still on its way with a reset, and the
        # client might never read why.
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # -- once a second ----------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """End this connection if it is too slow, or idle for too long."""
        begun_at = self._reader.begun_at
        if self._lingers_since is not None:
            if now - self._lingers_since > LINGER_S:
                self._transport.abort()
        elif self._stalled_at is not None:
            if now - self._stalled_at > READ_WITHIN_S:
                self._transport.abort()
        elif self._paused:
            return
        elif begun_at is not None and now - begun_at > ARRIVE_WITHIN_S:
            self._refuse(Refusal("request_timeout"))
        elif self._current is None and now - self._reader.heard_at > IDLE_S:
            self._transport.close()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()

    def close_when_idle(self) -> None:
        """Now, unless a request is being answered or is arriving."""
        arriving = self._reader.begun_at is not None
        if self._current is None and not arriving and self._lingers_since is None:
            self._transport.close()
