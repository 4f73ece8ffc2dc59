"""Our server with a constant answer: whole but for queue and GPUs, or the HTTP protocol alone.

The ceilings that the full server is compared with. Whole, every call passes keys, caps, door,
metrics and books as ever, and its scheduler answers on arrival, or (`--late`) when a batch would be
over, so that as many calls are open; bare, the same bytes answer whatever was parsed.
"""

import argparse
import asyncio
import json
import signal
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import uvloop

from labkit.core.messages import Answer, Command, Request
from labkit.core.units import MS, NEVER
from labkit.live.collector import TunedCollector
from labkit.live.configure import live_settings
from labkit.live.http.exchange import Exchange
from labkit.live.http.protocol import Hub
from labkit.live.http.server import Server
from labkit.live.keys import Keyring, demo

MOST = 20_000
BATCH = 100 * MS
ENVELOPE = 235
"""Bytes of a completion besides its text, about."""


class Constant:
    """A scheduler that answers every request the moment it comes; in all else the real one."""

    def __init__(self, scheduler: Any, answer: str) -> None:
        self._scheduler = scheduler
        self._answers = (answer,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """No queue, no batch, no GPU."""
        return (Answer(0, (request,), self._answers),)


class Late(Constant):
    """The same, but everybody is answered as long after coming as a batch takes."""

    def __init__(self, scheduler: Any, answer: str) -> None:
        super().__init__(scheduler, answer)
        self._waiting: deque[tuple[int, Request]] = deque()
        self.due_at = NEVER

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """Wait, in order of arrival."""
        self._waiting.append((now + BATCH, request))
        self.due_at = self._waiting[0][0]
        return ()

    def advance(self, now: int) -> Sequence[Command]:
        """Whoever's time has come, together."""
        waiting, rows = self._waiting, []
        while waiting and waiting[0][0] <= now:
            rows.append(waiting.popleft()[1])
        self.due_at = waiting[0][0] if waiting else NEVER
        return (Answer(0, tuple(rows), self._answers * len(rows)),) if rows else ()


def whole(size: int, late: bool, ended: threading.Event) -> None:
    """`labkit serve` with a constant answer, until SIGTERM."""
    shown, accounts = demo()
    server = Server(live_settings(1), gpus=1, workers="fake", keyring=Keyring(accounts))
    door = server.engine.shell.door
    door.scheduler = (Late if late else Constant)(door.scheduler, "x" * max(size - ENVELOPE, 1))
    server.start()
    print(json.dumps({"url": server.url, "keys": shown}), flush=True)
    ended.wait()
    server.close(1.0)


async def bare(size: int, ended: threading.Event) -> None:
    """The protocol alone, until SIGTERM."""
    loop = asyncio.get_running_loop()
    body = b'{"text":"%b"}' % (b"x" * (size - 11))

    def answer(exchange: Exchange) -> None:
        exchange.respond(200, body)

    hub = Hub(loop, answer, lambda status: None, MOST)
    listening = await loop.create_server(hub.connection, "127.0.0.1", 0, backlog=4_096)
    print(json.dumps({"port": listening.sockets[0].getsockname()[1]}), flush=True)
    TunedCollector()
    while not ended.is_set():
        hub.sweep()
        await asyncio.sleep(0.1)
    hub.abort()
    listening.close()


def main() -> None:
    """`--size`: bytes of an answer's body."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--bare", action="store_true")
    asked = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    if asked.bare:
        uvloop.run(bare(asked.size, ended))
    else:
        whole(asked.size, asked.late, ended)


if __name__ == "__main__":
    main()
