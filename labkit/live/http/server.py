"""The server: an engine, a front and a listening socket, from start to the last response."""

import asyncio
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from labkit.core.settings import Settings
from labkit.live.configure import fleet_of, loop_factory
from labkit.live.desk import DeskEngine
from labkit.live.errors import LiveError
from labkit.live.fleet import Fleet
from labkit.live.http.access import AccessLog
from labkit.live.http.asgi import Uvicorn
from labkit.live.http.front import Front
from labkit.live.http.lab import LabRoutes
from labkit.live.http.protocol import Handle, Hub, Refused
from labkit.live.keys import KeyFile, KeyProblem, Keyring
from labkit.live.ledger import Journal
from labkit.live.openfiles import most_open

log = logging.getLogger("labkit.http")

TICK_S = 0.25
BACKLOG = 4_096
AT_ONCE = 25
"""Connections accepted in one step of the loop; a few steps of them fit the spare files."""

MOST_CONNECTIONS = 20_000

DRAIN_WITHIN_S = 10.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Carrier(Protocol):
    """What carries exchanges to the front and back: our own protocol, or a server of others'."""

    async def open(self, listener: socket.socket) -> None:
        """Accept connections on this socket from now on."""

    def sweep(self) -> None:
        """Once a second."""

    async def close(self, within: float) -> None:
        """Accept no more, let what is answered reach its client, hang up within these seconds."""


class OwnProtocol:
    """The carrier of our own: `labkit.live.http.protocol`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handle: Handle, refused: Refused, most: int
    ) -> None:
        self.hub = Hub(loop, handle, refused, most)
        self._listening: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """See `Carrier`."""
        # asyncio takes as many at once as may wait, before one of them can be turned away.
        self._listening = await self.hub.loop.create_server(
            self.hub.connection, sock=listener, backlog=AT_ONCE
        )
        listener.listen(BACKLOG)

    def sweep(self) -> None:
        """See `Carrier`; ends the slow and the idle."""
        self.hub.sweep()

    async def close(self, within: float) -> None:
        """See `Carrier`."""
        if self._listening is not None:
            self._listening.close()
        self.hub.close()
        deadline = self.hub.loop.time() + within
        while self.hub.open and self.hub.loop.time() < deadline:
            await asyncio.sleep(0.01)
        self.hub.abort()
        await asyncio.sleep(0)


class Server:
    """An OpenAI-compatible server on one thread, with one process a GPU behind it.

    `workers` and `options` as in `Live`; `uvicorn` carries it on that server. `start` returns when
    it can answer; `close` gives every open request an outcome first.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        gpus: int,
        workers: str | Sequence[str] | Fleet = "timer",
        options: Mapping[str, Any] | None = None,
        keyring: Keyring,
        key_file: KeyFile | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        journal: Journal | None = None,
        uvloop: bool = True,
        uvicorn: bool = False,
        trace: int | None = None,
        access: AccessLog | None = None,
        tunes_collector: bool = True,
        seed: int = 0,
    ) -> None:
        if len(settings.models) > gpus:
            raise LiveError(
                f"{len(settings.models)} models on {gpus} GPUs: each model needs one at least"
            )
        self.host, self.port = host, port
        self.access = access
        self.front = Front(settings, keyring, seed=seed, access=access)
        self.engine = DeskEngine(
            settings,
            fleet_of(workers, gpus, settings, options),
            render=self.front.render,
            loop=loop_factory(uvloop)(),
            journal=journal,
            seed=seed,
            ring=trace,
        )
        self.engine.tunes_collector = tunes_collector
        self.front.attach(self.engine)
        self.front.lab = LabRoutes(self.engine).serve
        self._key_file = key_file
        # Whoever read the keyring did it before: the first look reads the file once more.
        self._keys_at = -1
        self.carrier: Carrier = (
            Uvicorn(self.front.handle, self.front.refused)
            if uvicorn
            else OwnProtocol(
                self.engine.loop,
                self.front.handle,
                self.front.refused,
                most_open(MOST_CONNECTIONS),
            )
        )
        self._ticks = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring every GPU up, then listen; raises `LiveError` or `OSError`."""
        listener = self._bind()
        try:
            if self.access is not None:
                self.access.open()
            self.engine.start()
            self._on_loop(self._listen(listener))
        except BaseException:
            listener.close()
            self._end()
            raise

    def give_up(self) -> None:
        """Let a `start` that still waits for its GPUs raise, and leave nothing; from any thread."""
        self.engine.give_up()

    def close(self, within: float = DRAIN_WITHIN_S) -> int:
        """Admit nobody, answer everybody, then end; how many calls were cut off.

        While it drains it still listens: whoever comes is told so, and when to come back.
        """
        deadline = time.monotonic() + within
        cut = 0
        try:
            self.engine.call(self._drain)
            while self.front.counters.in_flight and time.monotonic() < deadline:
                time.sleep(0.01)
            cut = self.front.counters.in_flight
            self.engine.call(self.engine.shell.end_all, "engine_stopped")
            self._on_loop(self.carrier.close(max(deadline - time.monotonic(), 1.0)))
        except LiveError:
            cut = self.front.counters.in_flight
        finally:
            self._end()
        return cut

    def _end(self) -> None:
        self.engine.stop()
        if self.access is not None:
            self.access.close()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise LiveError(
                f"{self.host}:{self.port}: {error.strerror or error}; choose another --port, or 0"
            ) from error
        self.port = listener.getsockname()[1]
        listener.setblocking(False)
        return listener

    def _on_loop(self, coroutine: Any, within: float = 30.0) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.engine.loop).result(within)

    async def _listen(self, listener: socket.socket) -> None:
        await self.carrier.open(listener)
        self._tick()

    def _drain(self) -> None:
        self.front.readiness.draining = True
        self.engine.shell.close()

    # -- now and then -----------------------------------------------------------------------------

    def _tick(self) -> None:
        """Four times a second; once a second the slow and the idle are ended, and keys read."""
        loop = self.engine.loop
        self.front.tick(loop.time())
        self._ticks += 1
        if self._ticks % round(1 / TICK_S) == 0:
            self.carrier.sweep()
            self._read_keys()
        loop.call_later(TICK_S, self._tick)

    def _read_keys(self) -> None:
        """A key that is revoked stops working within a second; a broken file changes nothing."""
        if self._key_file is None or (at := self._key_file.changed_at()) == self._keys_at:
            return
        self._keys_at = at
        try:
            self.front.doorkeeper.keyring = Keyring(self._key_file.read())
        except KeyProblem as problem:
            log.warning("the key file %s; the old keys stay", problem)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in LOOPBACK or host.startswith("127.")
