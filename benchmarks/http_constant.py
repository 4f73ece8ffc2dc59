"""Our HTTP protocol with nothing behind it: every request gets the same bytes, at once or late.

What the same connections, parser, loop and collector can do when no request waits for anybody: the
ceiling that the full server is compared with.
"""

import argparse
import asyncio
import json
import signal
from collections import deque

import uvloop

from labkit.live.collector import TunedCollector
from labkit.live.http.exchange import Exchange
from labkit.live.http.protocol import Hub

MOST = 20_000
TICK_S = 0.001


def body_of(size: int) -> bytes:
    """A JSON body of so many bytes."""
    return b'{"text":"%b"}' % (b"x" * (size - 11))


class Late:
    """Answers each request a set time after it came; one timer for all, as a batch has."""

    def __init__(self, loop: asyncio.AbstractEventLoop, body: bytes, delay_s: float) -> None:
        self._loop, self._body, self._delay_s = loop, body, delay_s
        self._waiting: deque[tuple[float, Exchange]] = deque()
        self._tick()

    def handle(self, exchange: Exchange) -> None:
        """Keep it."""
        self._waiting.append((self._loop.time() + self._delay_s, exchange))

    def _tick(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting.popleft()[1].respond(200, self._body)
        self._loop.call_later(TICK_S, self._tick)


async def serve(size: int, delay_s: float) -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    body = body_of(size)

    def at_once(exchange: Exchange) -> None:
        exchange.respond(200, body)

    handle = Late(loop, body, delay_s).handle if delay_s else at_once
    hub = Hub(loop, handle, lambda status: None, MOST)
    listening = await loop.create_server(hub.connection, "127.0.0.1", 0, backlog=4_096)
    print(json.dumps({"port": listening.sockets[0].getsockname()[1]}), flush=True)
    TunedCollector()
    while not over.is_set():
        hub.sweep()
        try:
            await asyncio.wait_for(over.wait(), 1.0)
        except TimeoutError:
            continue
    hub.abort()
    listening.close()


def main() -> None:
    """`--size`: bytes of the answer; `--delay-ms`: how long each waits, 0 for not at all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    asked = parser.parse_args()
    uvloop.run(serve(asked.size, asked.delay_ms / 1e3))


if __name__ == "__main__":
    main()
