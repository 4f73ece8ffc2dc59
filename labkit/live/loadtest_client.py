"""Keep-alive connections to a server, one request at a time on each, and no task a request."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

MOST_KEPT = 1 << 20
"""Bytes of one response that are looked at; a longer one is still counted."""


class Response:
    """What came back for one request; instants in microseconds of the pool's clock.

    `status` 0: the connection broke. `first_at` and `last_at` are those of the body's first and
    last piece, `pieces` how many events a stream had.
    """

    __slots__ = ("body", "first_at", "headers", "last_at", "pieces", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.first_at = self.last_at = 0
        self.pieces = 0


Done = Callable[[Response], None]


class Wire(asyncio.Protocol):
    """One connection: `send` a request, and `done(response)` is called once."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._transport: Any = None
        self._done: Done | None = None
        self._response = Response()
        self._parser: Any = httptools.HttpResponseParser(self)

    def send(self, payload: bytes, done: Done) -> None:
        """Write one request; the connection must be idle."""
        self._done = done
        self._response = Response()
        self._transport.write(payload)

    def close(self) -> None:
        """Hang up."""
        self._done = None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for a first request."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Feed the parser; what is not HTTP ends the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Kept by lower-case name."""
        self._response.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        """Whole, or a piece of a stream."""
        response = self._response
        response.last_at = self._pool.clock()
        if not response.first_at:
            response.first_at = response.last_at
        response.pieces += body.count(b"data: {")
        if len(response.body) < MOST_KEPT:
            response.body = response.body + body if response.body else body

    def on_message_complete(self) -> None:
        """The response is whole, and the connection perhaps free for the next."""
        response, done = self._response, self._done
        response.status = self._parser.get_status_code()
        keep = self._parser.should_keep_alive()
        self._done = None
        self._parser = httptools.HttpResponseParser(self) if response.pieces else self._parser
        self._pool.free(self, keep)
        if done is not None:
            done(response)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told with status 0."""
        done, self._done = self._done, None
        self._pool.lost(self)
        if done is not None:
            self._response.status = 0
            done(self._response)


class Pool:
    """As many connections as are needed at once, at most `most`; others wait for a free one.

    Reuses the one that was free last. `failure` is why the last connection that could not be made
    could not; `crowded` counts the requests that had to wait for one that others were using.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int],
        host: str,
        port: int,
        most: int,
        ssl: Any = None,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.most = most
        self.failure: OSError | None = None
        self.crowded = 0
        self.opened = 0
        self._address = (host, port)
        self._ssl = ssl
        self._idle: list[Wire] = []
        self._all: set[Wire] = set()
        self._opening = 0
        self._waiting: deque[tuple[bytes, Done]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def warm(self, count: int) -> None:
        """Open some beforehand, so that no request waits for a handshake."""
        count = min(count, self.most - len(self._all))
        for start in range(0, count, 200):
            some = min(200, count - start)
            self._opening += some
            await asyncio.gather(*(self._open() for _ in range(some)))

    def send(self, payload: bytes, done: Done) -> None:
        """On an idle connection, else on a new one, else when one is free."""
        if self._idle:
            self._idle.pop().send(payload, done)
            return
        self._waiting.append((payload, done))
        self.crowded += not self._one_more()

    def _one_more(self) -> bool:
        """Begin to open a connection; false when there are as many as there may be."""
        if len(self._all) + self._opening >= self.most:
            return False
        self._opening += 1
        task = self.loop.create_task(self._open())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _open(self) -> None:
        try:
            _, wire = await self.loop.create_connection(
                lambda: Wire(self), *self._address, ssl=self._ssl
            )
        except OSError as error:
            self.failure = error
            if error.errno in (errno.EMFILE, errno.ENFILE) and self._all:
                # The system gives no more: go on with those there are.
                self.most = len(self._all)
                self.crowded += 1
            elif self._waiting:
                self._waiting.popleft()[1](Response())
            return
        finally:
            self._opening -= 1
        self.opened += 1
        self._all.add(wire)
        self.free(wire, True)

    def free(self, wire: Wire, keep: bool) -> None:
        """This one has nothing to do; whoever waits longest gets it."""
        if not keep:
            self._all.discard(wire)
            wire.close()
            if self._waiting:
                self._one_more()
        elif self._waiting:
            wire.send(*self._waiting.popleft())
        else:
            self._idle.append(wire)

    def lost(self, wire: Wire) -> None:
        """The server closed it, or the network did."""
        self._all.discard(wire)
        if wire in self._idle:
            self._idle.remove(wire)
        if len(self._waiting) > self._opening:
            self._one_more()

    def close(self) -> None:
        """Hang up everywhere."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        for wire in list(self._all):
            wire.close()
