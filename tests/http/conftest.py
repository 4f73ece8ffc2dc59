"""A server in this process for the HTTP tests, and the books it must close with."""

import http.client
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from labkit.core.settings import SERVED, Settings
from labkit.core.units import MS
from labkit.live.http.server import Server
from labkit.live.keys import Keyring, demo

QUICK = Settings(
    max_wait=5 * MS,
    batch_time=20 * MS,
    overdue_after=250 * MS,
    depth_limit=400,
    tiers=tuple(replace(tier, share=100) for tier in SERVED),
)
"""Short times; no part of the queue is kept for anybody, but where a test says so."""


@dataclass(frozen=True)
class Answer:
    """One response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """What an error body says."""
        return self.json["error"]


@dataclass(frozen=True)
class Place:
    """A running server, and the shortest way to ask it something."""

    server: Server
    keys: dict[str, str]

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    def ask(
        self,
        path: str,
        body: Any = None,
        key: str | None = "paid",
        method: str | None = None,
        **headers: str,
    ) -> Answer:
        """One request on a connection of its own; `_` in a header's name stands for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["authorization"] = f"Bearer {self.keys.get(key, key)}"
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if payload is not None:
            sent.setdefault("content-type", "application/json")
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=20)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, payload, sent)
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, told, response.read())
        finally:
            connection.close()

    def complete(self, prompt: Any = "hello", **more: Any) -> Answer:
        """One completion; keyword arguments with capitals are headers, all others the body's."""
        headers = {name: more.pop(name) for name in list(more) if name[0].isupper()}
        key = more.pop("key", "paid")
        body = {"model": "ferry", "prompt": prompt, **more}
        return self.ask("/v1/completions", body, key, **headers)

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name and labels, as they are printed."""
        text = self.ask("/metrics", key=None).body.decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in lines}

    def request(self, body: bytes, head: bytes = b"", key: str = "paid") -> bytes:
        """The bytes of one completion, for `raw`; `head` are more header lines."""
        return (
            b"POST /v1/completions HTTP/1.1\r\nhost: here\r\nauthorization: Bearer %b\r\n"
            b"content-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
        ) % (self.keys[key].encode(), head, len(body), body)

    def line(self, payload: bytes) -> socket.socket:
        """A connection on which this has been sent."""
        line = socket.create_connection((self.server.host, self.server.port), 10)
        line.sendall(payload)
        return line

    def raw(self, payload: bytes, seconds: float = 5.0) -> bytes:
        """Send bytes as they are; what comes back until the server hangs up or is silent."""
        with socket.create_connection((self.server.host, self.server.port), seconds) as line:
            line.sendall(payload)
            heard = b""
            line.settimeout(seconds)
            try:
                while piece := line.recv(65_536):
                    heard += piece
            except TimeoutError:
                pass
            return heard


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


Serve = Callable[..., Place]


def _serving() -> Iterator[Serve]:
    """`serve(settings, **options)`: a server with fake GPUs; checked and closed at the end."""
    places: list[Place] = []

    def serve(settings: Settings = QUICK, **options: Any) -> Place:
        keys, accounts = demo()
        options = {"gpus": 2, "workers": "fake", "keyring": Keyring(accounts)} | options
        server = Server(settings, **options)
        server.start()
        places.append(Place(server, keys))
        return places[-1]

    yield serve
    for place in places:
        engine, front = place.server.engine, place.server.front
        if not engine.loop.is_closed():
            until(lambda front=front: front.counters.in_flight == 0)
            until(lambda engine=engine: engine.gateway.in_flight() == 0)
            place.server.close()
        assert front.counters.in_flight == 0
        assert (engine.gateway.depth(), engine.gateway.in_flight()) == (0, 0)
        assert (engine.shell.open, engine.shell.streams) == ({}, {})
        assert front._rendering == {}
        assert engine.shell.boarded in (None, {})
        assert engine.shell.unclaimed == 0
        assert engine.shell.sink_error is None
        assert engine.failure is None


@pytest.fixture
def serve() -> Iterator[Serve]:
    """See `_serving`; for one test."""
    yield from _serving()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One quick server with two fake GPUs for a whole module."""
    serving = _serving()
    yield next(serving)()
    next(serving, None)


@pytest.fixture(autouse=True)
def no_defects(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a client sends, the server's log has no defect in it."""
    with caplog.at_level(logging.WARNING, "labkit.http"):
        yield
    assert [record.message for record in caplog.records if record.name == "labkit.http"] == []
