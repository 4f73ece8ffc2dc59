"""A process that owns a dispatcher and its ledger, made to be killed; one JSON object a line.

In: `{"n", "key", "prompt"}` asks, `{"break": true}` kills a GPU at work. Out: `{"n", "status",
"body", "replayed"}`. It says its port when it serves, and ends when its standard input does.
"""

import asyncio
import json
import sys
from itertools import count
from typing import Any

from labkit.core.door import Send
from labkit.core.idempotency import Key
from labkit.core.messages import End, Output, Request
from labkit.live.configure import live_settings
from labkit.live.keyed import STATUS, KeyedLive, KeyedShell, fingerprint
from labkit.live.ledger import SqliteJournal

_ids = count(1)


class _Line(asyncio.Protocol):
    """One client's connection; its requests are offered on the engine's own loop."""

    def __init__(self, shell: KeyedShell) -> None:
        self.shell = shell
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            if "break" in asked:
                self._break()
            else:
                self._ask(asked["n"], asked["key"], asked["prompt"])

    def _ask(self, n: int, key: str, prompt: str) -> None:
        shell = self.shell
        request = Request(next(_ids), prompt, shell.clock(), model=shell.version_of(0))

        def sink(_: int, told: Output | End | Send) -> None:
            if isinstance(told, Send):
                self._say(n, told.status, told.body.decode(), told.replayed)
            elif isinstance(told, End):
                self._say(n, STATUS[told.outcome], told.detail, False)

        shell.call([request], Key("storm", "POST", key), fingerprint(prompt), sink)

    def _say(self, n: int, status: int, body: str, replayed: bool) -> None:
        told = {"n": n, "status": status, "body": body, "replayed": replayed}
        self._transport.write(json.dumps(told).encode() + b"\n")

    def _break(self) -> None:
        shell = self.shell
        if shell.on_gpu:
            shell.fleet.kill(max(shell.on_gpu, key=lambda gpu: shell.departed_at[gpu]))


def main(ledger: str, gpus: int, workers: str) -> None:
    """Serve until standard input ends."""
    journal = SqliteJournal(ledger)
    with KeyedLive(live_settings(gpus), gpus=gpus, workers=workers, journal=journal) as live:
        shell, loop = live.shell, live._serving().loop
        server = asyncio.run_coroutine_threadsafe(
            loop.create_server(lambda: _Line(shell), "127.0.0.1", 0), loop
        ).result()
        print(server.sockets[0].getsockname()[1], flush=True)
        sys.stdin.read()
        loop.call_soon_threadsafe(server.close)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
