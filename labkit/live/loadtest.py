"""An open-loop load test over HTTP: requests leave on schedule, whether or not answers come back.

Latency counts from the scheduled instant, retries and waiting for a connection included, so that
neither a slow server nor a slow generator hides anything.
"""

import asyncio
import gc
import ssl
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from labkit.core.books import summary
from labkit.core.messages import Request
from labkit.core.units import S, to_seconds
from labkit.gpu.tag import tag
from labkit.live.configure import loop_factory
from labkit.live.errors import LiveError
from labkit.live.loadtest_client import Pool, Response
from labkit.workload.streams import stream

Retries = Literal["off", "obedient", "stormy"]
MOST_ATTEMPTS = 3
AGAIN = frozenset({0, 408, 409, 429, 500, 502, 503, 504})
HEAD_START_S = 0.1
LEAST_NAP_S = 0.0002
LONGEST_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send what: any OpenAI-compatible server.

    `keys` take turns. `keyed`: the share of requests that carry an idempotency key.
    """

    url: str
    keys: tuple[str, ...] = ("",)
    model: str = "ferry"
    chat: bool = False
    stream: bool = False
    max_tokens: int | None = None
    keyed: float = 0.0
    retries: Retries = "off"
    connections: int = 10_000


@dataclass(slots=True)
class Outcome:
    """The books of a load test; instants and durations in microseconds.

    One row a request: when it was scheduled, how long until its last response, and its status
    (0: the connection broke or nothing came before the end).
    """

    at: "array[int]" = field(default_factory=lambda: array("q"))
    took: "array[int]" = field(default_factory=lambda: array("q"))
    status: "array[int]" = field(default_factory=lambda: array("h"))
    first: "array[int]" = field(default_factory=lambda: array("q"))
    step: "array[int]" = field(default_factory=lambda: array("q"))
    lag: "array[int]" = field(default_factory=lambda: array("q"))
    offered: int = 0
    attempts: int = 0
    lost: int = 0
    wrong_tag: int = 0
    broken_streams: int = 0
    replayed: int = 0
    returned: int = 0
    admitted_on_return: int = 0
    bad_retry_after: int = 0
    connections: int = 0
    wall_s: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)

    def report(self) -> dict[str, Any]:
        """The stable keys of `labkit loadtest --json`."""
        good = [took for took, status in zip(self.took, self.status, strict=True) if status == 200]
        statuses = Counter(self.status)
        return {
            "offered": self.offered,
            "answered": len(good),
            "lost": self.lost,
            "statuses": {str(status): statuses[status] for status in sorted(statuses)},
            "codes": dict(sorted(self.codes.items())),
            "wrong_tag": self.wrong_tag,
            "attempts": self.attempts,
            "replayed": self.replayed,
            "returned": self.returned,
            "admitted_on_return": self.admitted_on_return,
            "bad_retry_after": self.bad_retry_after,
            "latency_ms": summary(good),
            "ttft_ms": summary(self.first),
            "tpot_ms": summary(self.step),
            "broken_streams": self.broken_streams,
            "generator_lag_ms": summary(self.lag),
            "connections": self.connections,
            "wall_s": round(self.wall_s, 3),
            "seconds": self.seconds(),
        }

    def seconds(self) -> list[dict[str, Any]]:
        """What was scheduled in each second: how many, how many answered, and how fast."""
        slots: dict[int, tuple[int, list[int]]] = {}
        for at, took, status in zip(self.at, self.took, self.status, strict=True):
            sent, good = slots.get(at // S, (0, []))
            if status == 200:
                good.append(took)
            slots[at // S] = (sent + 1, good)
        rows = []
        for second in sorted(slots):
            sent, good = slots[second]
            shown = summary(good)
            rows.append(
                {
                    "second": second,
                    "sent": sent,
                    "answered": len(good),
                    "p50_ms": shown["p50"],
                    "p95_ms": shown["p95"],
                }
            )
        return rows


class _Sending:
    """One request on its way, from its instant to its last response."""

    __slots__ = ("at", "attempts", "load", "payload", "prompt")

    def __init__(self, load: "LoadTest", at: int, prompt: str, payload: bytes) -> None:
        self.load = load
        self.at = at
        self.prompt = prompt
        self.payload = payload
        self.attempts = 0

    def send(self) -> None:
        """Once more."""
        self.attempts += 1
        self.load.outcome.attempts += 1
        self.load.pool.send(self.payload, self.done)

    def done(self, response: Response) -> None:
        """A response, or the end of the connection."""
        self.load.heard(self, response)


class LoadTest:
    """Sends the requests of `arrivals` (instants and prompts) to a target."""

    def __init__(
        self,
        target: Target,
        arrivals: Iterable[Request],
        *,
        warm: int = 50,
        patience_s: float = 30.0,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
        uvloop: bool = True,
    ) -> None:
        self.target = target
        self.outcome = Outcome()
        self._arrivals: Iterator[Request] = iter(arrivals)
        self._warm = min(warm, target.connections)
        self._patience_s = patience_s
        self._rng: Random = stream(seed, "loadtest")
        self._progress = progress
        self._new_loop = loop_factory(uvloop)
        self._address = _address(target.url)
        self._open = 0
        self._numbers = count()
        self._tags = False
        self._heads: dict[str, bytes] = {}

    def run(self) -> Outcome:
        """To the last response, or `patience_s` after the last arrival.

        Raises `LiveError` when the server, the key or the model will not do.
        """
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(self._run())
        return self.outcome

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        host, port, secure = self._address
        context = ssl.create_default_context() if secure else None
        self.pool = Pool(loop, now, host, port, self.target.connections, context)
        try:
            await self._look(loop)
            await self.pool.warm(self._warm)
            await self._without_collector()
        finally:
            self.outcome.connections = self.pool.opened
            self.outcome.lost = self._open
            self.pool.close()
            # A connection is really closed one turn of the loop later.
            await asyncio.sleep(0.01)

    async def _without_collector(self) -> None:
        """Thousands of requests on their way are no garbage: nobody need look for any."""
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            await self._offer()
        finally:
            gc.enable()
            gc.unfreeze()

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask what models there are: a wrong URL, key or model is told before any load."""
        came: asyncio.Future[Response] = loop.create_future()
        head = b"GET %b HTTP/1.1\r\n%b\r\n" % (
            (self._path() + "/models").encode(),
            self._head(self.target.keys[0]),
        )
        self.pool.send(head, came.set_result)
        try:
            response = await asyncio.wait_for(came, 10)
        except TimeoutError:
            raise LiveError(f"{self.target.url} does not answer within 10 s") from None
        if response.status == 0:
            raise LiveError(
                f"{self.target.url}: nobody listens there; start a server: labkit serve"
            )
        if response.status in (401, 403):
            raise LiveError(
                f"{self.target.url} does not know this key; give one with --key (labkit serve "
                "shows its demonstration keys when it starts)"
            )
        try:
            rows = msgspec.json.decode(response.body)["data"]
            names = {row["id"]: row.get("owned_by") for row in rows}
        except (msgspec.DecodeError, KeyError, TypeError):
            return
        known = {name.partition("@")[0]: owner for name, owner in names.items()} | names
        if self.target.model not in known:
            raise LiveError(
                f"{self.target.url} has no model {self.target.model!r}; it has {', '.join(names)}"
            )
        self._tags = known[self.target.model] == "labkit" and self.target.max_tokens is None

    async def _offer(self) -> None:
        """Everyone at their instant; then wait for those still on their way."""
        clock, lags = now, self.outcome.lag
        self._origin = clock() + round(HEAD_START_S * S)
        shown = clock()
        for request in self._arrivals:
            at = self._origin + request.arrived_at
            while (rest := at - clock()) > 0:
                await asyncio.sleep(max(rest / S, LEAST_NAP_S))
            lags.append(max(clock() - at, 0))
            self._send(request)
            if lags[-1] > 0 and len(lags) % 64 == 0:
                await asyncio.sleep(0)
            if self._progress is not None and clock() - shown > S // 4:
                shown = clock()
                self._progress(self.outcome.offered - self._open)
        deadline = clock() + round(self._patience_s * S)
        while self._open and clock() < deadline:
            await asyncio.sleep(0.01)
        self.outcome.wall_s = to_seconds(clock() - self._origin)

    # -- one request ------------------------------------------------------------------------------

    def _send(self, request: Request) -> None:
        number = next(self._numbers)
        self.outcome.offered += 1
        self._open += 1
        payload = self._payload(number, request.prompt)
        _Sending(self, request.arrived_at, request.prompt, payload).send()

    def heard(self, sending: _Sending, response: Response) -> None:
        """Enter what came, or send again where the client is to."""
        status = response.status
        if sending.attempts > 1:
            self.outcome.returned += 1
            self.outcome.admitted_on_return += status == 200
        if status in (429, 503) and not _good_retry_after(response.headers.get(b"retry-after")):
            self.outcome.bad_retry_after += 1
        if status in AGAIN and sending.attempts < MOST_ATTEMPTS and self.target.retries != "off":
            pause = _pause(response) if self.target.retries == "obedient" else 0.0
            asyncio.get_running_loop().call_later(pause, sending.send)
            return
        self._enter(sending, response)

    def _enter(self, sending: _Sending, response: Response) -> None:
        outcome = self.outcome
        self._open -= 1
        outcome.at.append(sending.at)
        outcome.took.append(now() - self._origin - sending.at)
        outcome.status.append(response.status)
        if b"idempotent-replayed" in response.headers:
            outcome.replayed += 1
        if response.status != 200:
            outcome.codes[_code(response)] += 1
        elif self.target.stream:
            self._enter_stream(sending, response)
        elif self._tags and tag(sending.prompt).encode() not in response.body:
            outcome.wrong_tag += 1

    def _enter_stream(self, sending: _Sending, response: Response) -> None:
        outcome = self.outcome
        began, ended = response.first_at, response.last_at
        outcome.first.append(began - self._origin - sending.at)
        if response.pieces > 1:
            outcome.step.append((ended - began) // (response.pieces - 1))
        if b'"error"' in response.body or b"[DONE]" not in response.body:
            outcome.broken_streams += 1

    def _payload(self, number: int, prompt: str) -> bytes:
        target = self.target
        body: dict[str, Any] = {"model": target.model}
        if target.chat:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if target.max_tokens is not None:
            body["max_tokens"] = target.max_tokens
        if target.stream:
            body["stream"] = True
        encoded = msgspec.json.encode(body)
        key = target.keys[number % len(target.keys)]
        head = self._heads.get(key)
        if head is None:
            path = self._path() + ("/chat/completions" if target.chat else "/completions")
            head = self._heads[key] = (
                b"POST %b HTTP/1.1\r\n%bcontent-type: application/json\r\n"
                % (
                    path.encode(),
                    self._head(key),
                )
            )
        extra = b""
        if target.keyed and self._rng.random() < target.keyed:
            extra = b"idempotency-key: %016x\r\n" % self._rng.getrandbits(64)
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (head, extra, len(encoded), encoded)

    def _head(self, key: str) -> bytes:
        host, port, _ = self._address
        auth = f"authorization: Bearer {key}\r\n" if key else ""
        return f"host: {host}:{port}\r\nuser-agent: labkit-loadtest\r\n{auth}".encode()

    def _path(self) -> str:
        path = urlsplit(self.target.url).path.rstrip("/")
        return path or "/v1"


def now() -> int:
    """Microseconds; the clocks of some loops tick in milliseconds."""
    return time.monotonic_ns() // 1_000


def _address(url: str) -> tuple[str, int, bool]:
    parts: SplitResult = urlsplit(url)
    secure = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LiveError(f"{url!r} is no URL of a server; give one such as http://127.0.0.1:8000")
    return parts.hostname, parts.port or (443 if secure else 80), secure


def _good_retry_after(value: bytes | None) -> bool:
    return value is not None and value.isdigit() and 1 <= int(value[:9]) <= 60


def _pause(response: Response) -> float:
    """Seconds the server asks for; half a second where it asks for nothing."""
    for name, unit in ((b"retry-after-ms", 1_000.0), (b"retry-after", 1.0)):
        try:
            return min(max(float(response.headers[name]) / unit, 0.0), LONGEST_WAIT_S)
        except (KeyError, ValueError):
            continue
    return 0.5


def _code(response: Response) -> str:
    """The code in an error body, else the status."""
    if not response.status:
        return "connection_broke"
    try:
        return str(msgspec.json.decode(response.body)["error"]["code"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return str(response.status)


def summary_rows(report: dict[str, Any]) -> Sequence[tuple[str, ...]]:
    """The report in a few rows, for people."""
    latency, lag = report["latency_ms"], report["generator_lag_ms"]
    rows: list[tuple[str, ...]] = [
        ("offered", f"{report['offered']:,}", f"{report['connections']:,} connections"),
        ("answered", f"{report['answered']:,}"),
    ]
    rows += [
        (f"status {status}" if status != "0" else "broken", f"{number:,}")
        for status, number in report["statuses"].items()
        if status != "200"
    ]
    if report["lost"]:
        rows.append(("no response", f"{report['lost']:,}"))
    if latency["p50"] is not None:
        shown = " / ".join(f"{latency[name]:.1f}" for name in ("p50", "p95", "p99"))
        rows.append(("latency", f"{shown} ms", f"P50 / P95 / P99; max {latency['max']:.1f}"))
    for name, label in (("ttft_ms", "first piece"), ("tpot_ms", "between pieces")):
        if report[name]["p50"] is not None:
            shown = f"{report[name]['p50']:.1f} / {report[name]['p95']:.1f} ms"
            rows.append((label, shown, "P50 / P95"))
    if report["returned"]:
        share = report["admitted_on_return"] / report["returned"]
        rows.append(("came back", f"{report['returned']:,}", f"{share:.0%} were let in"))
    if lag["p50"] is not None:
        rows.append(("lag", f"{lag['p50']:.1f} ms", f"of the generator; max {lag['max']:.1f}"))
    return rows
