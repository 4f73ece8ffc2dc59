"""A storm in which the dispatcher itself is killed: its clients ask again, with their keys."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.books import summary
from labkit.core.units import S
from labkit.gpu.tag import carries
from labkit.live.census import Census
from labkit.live.configure import live_settings
from labkit.live.errors import LiveError
from labkit.live.keyed import outputs_of
from labkit.live.storm import (
    GPUS,
    IMPATIENCE_S,
    IMPATIENT,
    MOST_TRIES,
    RETRY_S,
    arrivals,
    spread,
    within,
)

FIRST_CRASH_S = 1.5
START_WITHIN_S = 60.0
PATIENCE_S = 30.0
MOST_CHECKED = 5_000
"""Keys answered before the last crash that are asked once more at the end."""


@dataclass(slots=True)
class Client:
    """One caller; `hit` when a crash, or the time until all was well again, fell into its life."""

    number: int
    prompt: str
    at: float
    tries: int = 0
    body: str | None = None
    hit: bool = False


class _Link(asyncio.Protocol):
    def __init__(self, heard: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> None:
        self._heard = heard
        self._lost = lost
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard(json.loads(line))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()


class CrashStorm:
    """The clients' side: one process to ask, killed now and then, and a note of every answer."""

    def __init__(self, ledger: Path, gpus: int, workers: str) -> None:
        self.command = [
            *(sys.executable, "-m", "labkit.live.storm_server"),
            *(str(ledger), str(gpus), workers),
        ]
        self.clients: list[Client] = []
        self.open: dict[int, Client] = {}
        self.latencies: list[int] = []
        self.hit_latencies: list[int] = []
        self.restarts: list[int] = []
        self.counts = dict.fromkeys(
            ("failed", "given_up", "conflicting", "wrong_tag", "retries", "replayed", "kills"), 0
        )
        self.checked = 0
        self.deaths = 0
        self.run_id = uuid.uuid4().hex[:8]
        self._restart: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._killed_at: float | None = None
        self._recovering = False
        self._ending = False
        self._checking: set[int] = set()

    # -- the process ------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Start a process and connect; every call that is open is sent (again)."""
        loop = asyncio.get_running_loop()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._server = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert self._server.stdout is not None
        line = await asyncio.wait_for(
            loop.run_in_executor(None, self._server.stdout.readline), START_WITHIN_S
        )
        if not line.strip().isdigit():
            raise LiveError("the process that serves the storm did not start; see stderr")
        transport, _ = await loop.create_connection(
            lambda: _Link(self._heard, self._lost), "127.0.0.1", int(line)
        )
        self._transport = transport
        for client in list(self.open.values()):
            self.counts["retries"] += client.hit
            self._send(client)

    def _lost(self) -> None:
        self._transport = None
        if not self._ending:
            self.deaths += 1
            self._recovering = True
            self._restart = asyncio.ensure_future(self._again())

    async def _again(self) -> None:
        self._bury()
        await self._serve()

    def _bury(self) -> None:
        server = self._server
        if server is not None:
            server.wait(START_WITHIN_S)
            for pipe in (server.stdin, server.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _crash(self) -> None:
        if self._server is None or self._transport is None:
            return
        self._killed_at, self._recovering = time.monotonic(), True
        for client in self.open.values():
            client.hit = True
        self._server.send_signal(signal.SIGKILL)

    def _break(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.counts["kills"] += 1
            self._transport.write(b'{"break": true}\n')

    # -- clients ----------------------------------------------------------------------------------

    def _come(self, client: Client) -> None:
        self.clients.append(client)
        self.open[client.number] = client
        client.hit = self._recovering
        self._send(client)
        if client.number % IMPATIENT == 0:
            asyncio.get_running_loop().call_later(IMPATIENCE_S, self._lose_patience, client)

    def _lose_patience(self, client: Client) -> None:
        if client.body is None:
            self.counts["retries"] += 1
            self._send(client)

    def _send(self, client: Client) -> None:
        # A line to a process that just died would be lost; the next one is told instead.
        if self._transport is not None and not self._transport.is_closing():
            asked = {"n": client.number, "key": self._key(client), "prompt": client.prompt}
            self._transport.write(json.dumps(asked).encode() + b"\n")

    def _key(self, client: Client) -> str:
        """Not that of an earlier storm, whose ledger this may be."""
        return f"{self.run_id}-{client.number}"

    def _heard(self, told: dict[str, Any]) -> None:
        now = time.monotonic()
        if self._killed_at is not None:
            self.restarts.append(round((now - self._killed_at) * S))
            self._killed_at = None
        client = self.clients[told["n"]]
        if told["status"] not in (200, 422):
            self._refused(client)
            return
        self.counts["replayed"] += told["replayed"]
        self._checking.discard(client.number)
        if client.body is not None:
            self.counts["conflicting"] += client.body != told["body"]
            return
        client.body = told["body"]
        self._first_answer(client, told["status"], now)

    def _first_answer(self, client: Client, status: int, now: float) -> None:
        self.open.pop(client.number, None)
        latency = round((now - client.at) * S)
        (self.hit_latencies if client.hit else self.latencies).append(latency)
        if status == 200:
            assert client.body is not None
            right = carries(outputs_of(client.body.encode())[0], client.prompt)
            self.counts["wrong_tag"] += not right
        else:
            self.counts["failed"] += 1
        if self._recovering and self._killed_at is None:
            self._recovering = any(other.hit for other in self.open.values())

    def _refused(self, client: Client) -> None:
        client.tries += 1
        if client.tries < MOST_TRIES:
            self.counts["retries"] += 1
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_S * client.tries, self._send, client)
        elif self.open.pop(client.number, None):
            self.counts["given_up"] += 1

    # -- the storm --------------------------------------------------------------------------------

    async def run(
        self,
        rate: float,
        seconds: float,
        crashes: int,
        kills_per_s: float,
        seed: int,
        progress: Callable[[int], None],
    ) -> None:
        """Serve, offer, crash, wait for all, ask again for what was answered, end the process."""
        await self._serve()
        loop, began = asyncio.get_running_loop(), time.monotonic()
        every = (seconds - FIRST_CRASH_S) / max(crashes, 1)
        for number in range(crashes):
            loop.call_later(FIRST_CRASH_S + number * every, self._crash)
        for number in range(int(seconds * kills_per_s)):
            loop.call_later((number + 0.5) / kills_per_s, self._break)
        for number, (at, prompt) in enumerate(arrivals(rate, seconds, seed)):
            due = began + at / S
            if (rest := due - time.monotonic()) > 0.0005:
                await asyncio.sleep(rest)
            self._come(Client(number, prompt, due))
            progress(number + 1)
        await self._until(lambda: not self.open)
        await self._check_replays()
        self._ending = True
        await loop.run_in_executor(None, self._stop)

    async def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done() and time.monotonic() < deadline:
            if self._restart is not None and self._restart.done():
                self._restart.result()
            await asyncio.sleep(0.01)

    async def _check_replays(self) -> None:
        """Ask once more for what was answered: the bytes must be the first ones."""
        answered = [client for client in self.clients if client.body is not None][:MOST_CHECKED]
        self.checked = len(answered)
        self._checking = {client.number for client in answered}
        for client in answered:
            self._send(client)
        await self._until(lambda: not self._checking)

    def _stop(self) -> None:
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._bury()


def crash_storm(
    rate: float,
    seconds: float,
    *,
    crashes: int = 1,
    kills_per_s: float = 0.0,
    seed: int = 1,
    gpus: int = GPUS,
    workers: str = "timer",
    ledger: Path | None = None,
    progress: Callable[[int], None] = lambda settled: None,
) -> dict[str, Any]:
    """The report of `labkit storm --crash`; the ledger is a file of its own when None is given.

    `latency_ms` is of clients in whose lives nothing crashed; `restart_latency_ms` of the others.
    """
    began = time.perf_counter()
    with Census() as census:
        with tempfile.TemporaryDirectory(prefix="labkit-storm-") as folder:
            it = CrashStorm(ledger or Path(folder) / "ledger.sqlite", gpus, workers)
            try:
                asyncio.run(it.run(rate, seconds, crashes, kills_per_s, seed, progress))
            finally:
                if it._server is not None and it._server.poll() is None:
                    it._server.kill()
                    it._bury()
        left = {"processes_left": census.processes(), "handles_left": census.handles()}
    report = _report(it, crashes, live_settings(gpus).budget)
    wall_s = round(time.perf_counter() - began, 3)
    given = {"rate": rate, "seconds": seconds, "gpus": gpus, "seed": seed}
    return {**report, "wall_s": wall_s, **left, **given}


def _report(it: CrashStorm, crashes: int, budget: int | None) -> dict[str, Any]:
    counts, latency = it.counts, summary(it.latencies)
    lost = len(it.open) + len(it._checking)
    bad = lost or counts["conflicting"] or counts["wrong_tag"]
    return {
        "offered": len(it.clients),
        "answered": len(it.latencies) + len(it.hit_latencies) - counts["failed"],
        "failed": counts["failed"],
        "given_up": counts["given_up"],
        "duplicated": counts["conflicting"],
        "lost": lost,
        "wrong_tag": counts["wrong_tag"],
        "retries": counts["retries"],
        "replayed": counts["replayed"],
        "checked": it.checked,
        "kills": counts["kills"],
        "crashes": crashes,
        "restart_ms": spread(it.restarts),
        "latency_ms": latency,
        "restart_latency_ms": summary(it.hit_latencies),
        "verdict": {
            "exactly_once": not bad,
            "within_budget": within(latency["p95"], budget),
            "all_back": len(it.restarts) == it.deaths == crashes,
        },
    }
