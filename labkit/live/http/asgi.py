"""The same front on a server of other people's: an ASGI callable, and uvicorn to run it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from labkit.live.errors import LiveError
from labkit.live.http.bodies import MOST_BODY
from labkit.live.http.exchange import JSON, Exchange
from labkit.live.http.protocol import IDLE_S, Handle, Refused
from labkit.live.http.refusals import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Answering(Exchange):
    """An exchange whose response is a queue of ASGI messages; None ends it, whole or cut."""

    __slots__ = ("messages",)

    def __init__(self, scope: Message, body: bytes, started_at: float) -> None:
        headers = {name: value for name, value in reversed(scope["headers"])}
        peer = (scope.get("client") or ("",))[0]
        path = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0]
        super().__init__(scope["method"].encode(), path, headers, body, peer, started_at)
        self.messages: asyncio.Queue[Message | None] = asyncio.Queue()

    def respond(self, status: int, body: bytes, kind: bytes = JSON, extra: bytes = b"") -> None:
        """Two messages."""
        length = (b"content-length", b"%d" % len(body))
        self._start(status, kind, extra, length)
        self._body(b"" if self.method == b"HEAD" else body, more=False)

    def begin(self, kind: bytes, extra: bytes, first: bytes) -> None:
        """The length is the server's affair."""
        self._start(200, kind, extra)
        self._body(first, more=True)

    def push(self, piece: bytes) -> None:
        """One message."""
        self._body(piece, more=True)

    def end(self) -> None:
        """An empty last one."""
        self._body(b"", more=False)

    def cut(self) -> None:
        """A server that misses the last message closes the connection."""
        self.left = None
        self.messages.put_nowait(None)

    def _start(self, status: int, kind: bytes, extra: bytes, *more: tuple[bytes, bytes]) -> None:
        lines = [line.partition(b": ") for line in extra.split(b"\r\n") if line]
        headers = [(b"content-type", kind), *more, *((name, value) for name, _, value in lines)]
        self.messages.put_nowait(
            {"type": "http.response.start", "status": status, "headers": headers}
        )

    def _body(self, body: bytes, *, more: bool) -> None:
        self.messages.put_nowait({"type": "http.response.body", "body": body, "more_body": more})
        if not more:
            self.left = None
            self.messages.put_nowait(None)


class AsgiApp:
    """An ASGI 3 application; `handle` answers on the loop that calls it.

    `refused` hears the status of what never came to `handle`.
    """

    def __init__(self, handle: Handle, refused: Refused) -> None:
        self._handle = handle
        self._refused = refused

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request, and a look-out for a client who leaves before it is answered."""
        if scope["type"] != "http":
            return
        loop = asyncio.get_running_loop()
        body = await _read(receive)
        if body is None:
            return
        exchange = _Answering(scope, body, loop.time())
        if len(body) > MOST_BODY:
            refusal = Refusal("body_too_large")
            self._refused(refusal.status)
            exchange.respond(refusal.status, refusal.body(), extra=b"connection: close\r\n")
        else:
            self._handle(exchange)
        lookout = loop.create_task(_gone(exchange, receive))
        try:
            while message := await exchange.messages.get():
                await send(message)
        finally:
            lookout.cancel()
            if exchange.left is not None:
                exchange.left()


async def _read(receive: Receive) -> bytes | None:
    """The body, or as much as is over the cap; None when the client left meanwhile."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > MOST_BODY or not message.get("more_body", False):
            return bytes(body)


async def _gone(exchange: _Answering, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if exchange.left is not None:
        exchange.left()
    exchange.messages.put_nowait(None)


class Uvicorn:
    """A carrier (see `labkit.live.http.server`) that is uvicorn on the engine's loop."""

    def __init__(self, handle: Handle, refused: Refused) -> None:
        try:
            import uvicorn
        except ImportError:
            raise LiveError("uvicorn is not installed: pip install uvicorn") from None
        config = uvicorn.Config(
            AsgiApp(handle, refused),
            http="httptools",
            lifespan="off",
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=round(IDLE_S),
        )
        self._server = uvicorn.Server(config)
        self._serving: asyncio.Task[None] | None = None

    async def open(self, listener: socket.socket) -> None:
        """Returns once it accepts connections."""
        self._serving = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[listener])
        )
        while not self._server.started:
            if self._serving.done():
                raise LiveError("uvicorn ended as soon as it was started")
            await asyncio.sleep(0.005)

    def sweep(self) -> None:
        """It ends its idle connections itself."""

    async def close(self, within: float) -> None:
        """As uvicorn closes: idle connections at once, the others when they are answered."""
        self._server.should_exit = True
        if self._serving is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._serving), within)
            self._serving.cancel()
