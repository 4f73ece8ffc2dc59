"""An open-loop load test over HTTP: requests leave on schedule, whether or not answers come back.

Latency counts from the scheduled instant, retries and waiting for a connection included, so that
neither a slow server nor a slow generator hides anything.
"""

import asyncio
import gc
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from labkit.core.books import percentile
from labkit.core.messages import Request
from labkit.core.units import MS, S, to_ms, to_seconds
from labkit.gpu.tag import tag
from labkit.live.configure import loop_factory
from labkit.live.errors import LiveError
from labkit.live.loadtest_books import Outcome, labels
from labkit.live.loadtest_client import Pool, Response
from labkit.workload.streams import stream

Retries = Literal["off", "obedient", "stormy"]
MOST_ATTEMPTS = 3
AGAIN = frozenset({0, 408, 409, 429, 500, 502, 503, 504})
HEAD_START_S = 0.1
NAP_S = 0.0002
LONGEST_WAIT_S = 120.0
LOOK_S = 10.0
TELL_EVERY_S = 1.0
LINGER_S = 1.0
"""How long an interrupted test still waits for those on their way."""

HOPELESS = frozenset({301, 302, 303, 307, 308, 401, 403, 404, 405})
"""Statuses that say that the address, the key or the model is wrong, and not that all are busy."""

MOST_HOPELESS = 10
"""When the first so many responses are all of that kind, more of them would teach nothing."""


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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load test is: requests sent, answered and on their way, and the latest P95.

    `p95_ms` is that of the 200s of the last second, None when there were none.
    """

    sent: int
    ended: int
    on_the_way: int
    p95_ms: float | None


class _Sending:
    """One request on its way, from its instant to its last response."""

    __slots__ = ("at", "attempts", "load", "payload", "prompt", "who")

    def __init__(self, load: "LoadTest", at: int, prompt: str, payload: bytes, who: int) -> None:
        self.load = load
        self.at = at
        self.who = who
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
        progress: Callable[[Progress], None] | None = None,
        uvloop: bool = True,
    ) -> None:
        self.target = target
        self._whose = _whose(target.keys)
        self.outcome = Outcome(labels=labels(target.keys))
        self._arrivals: Iterator[Request] = iter(arrivals)
        self._warm = min(warm, target.connections)
        self._patience_s = patience_s
        self._rng: Random = stream(seed, "loadtest")
        self._progress = progress
        self._new_loop = loop_factory(uvloop)
        self._address = _address(target.url)
        self._on_the_way: set[_Sending] = set()
        self._told = 0
        self._hopeless: str | None = None
        self._numbers = count()
        self._tags = False
        self._heads: dict[str, bytes] = {}

    def run(self) -> Outcome:
        """To the last response, or `patience_s` after the last arrival.

        An interrupt (Ctrl-C) ends it early: the outcome so far, with `interrupted` set. Raises
        `LiveError` when the server, the key or the model will not do.
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
            for key in dict.fromkeys(self.target.keys):
                await self._look(loop, key)
            await self.pool.warm(self._warm)
            await self._without_collector()
        finally:
            self.outcome.connections = self.pool.opened
            self.outcome.crowded = self.pool.crowded
            for one in sorted(self._on_the_way, key=lambda one: one.at):
                self.outcome.unanswered.append(one.at)
                self.outcome.unanswered_who.append(one.who)
            self._on_the_way.clear()
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

    async def _look(self, loop: asyncio.AbstractEventLoop, key: str) -> None:
        """Ask what models there are: a wrong URL, key or model is told before any load."""
        url = self.target.url
        came: asyncio.Future[Response] = loop.create_future()
        head = b"GET %b HTTP/1.1\r\n%b\r\n" % (
            (self._path() + "/models").encode(),
            self._head(key),
        )
        self.pool.send(head, came.set_result)
        try:
            response = await asyncio.wait_for(came, LOOK_S)
        except TimeoutError:
            raise LiveError(f"{url} does not answer within {LOOK_S:g} s") from None
        if response.status == 0:
            raise LiveError(_why_silent(url, self.pool.failure))
        if response.status in (401, 403):
            raise LiveError(_wrong_key(url, key))
        try:
            rows = msgspec.json.decode(response.body)["data"]
            names = {row["id"]: row.get("owned_by") for row in rows}
        except (msgspec.DecodeError, KeyError, TypeError):
            return
        known = {name.partition("@")[0]: owner for name, owner in names.items()} | names
        if self.target.model not in known:
            raise LiveError(
                f"{url} has no model {self.target.model!r}; it has {', '.join(names)}: choose "
                "with --model"
            )
        self._tags = known[self.target.model] == "labkit" and self.target.max_tokens is None

    async def _offer(self) -> None:
        """Everyone at their instant; then wait for those still on their way."""
        self._origin = now() + round(HEAD_START_S * S)
        self._telling = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tell)
        patience_s = self._patience_s
        try:
            await self._send_all()
        except asyncio.CancelledError:
            # Ctrl-C: what came so far is still worth a report.
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            self.outcome.interrupted = True
            patience_s = min(patience_s, LINGER_S)
        try:
            deadline = now() + round(patience_s * S)
            while self._on_the_way and now() < deadline and self._hopeless is None:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.outcome.interrupted = True
        self._telling.cancel()
        self.outcome.wall_s = to_seconds(now() - self._origin)
        if self._hopeless is not None:
            raise LiveError(self._hopeless)

    async def _send_all(self) -> None:
        clock, lags = now, self.outcome.lag
        for request in self._arrivals:
            at = self._origin + request.arrived_at
            await until(at)
            if self._hopeless is not None:
                return
            lags.append(max(clock() - at, 0))
            self._send(request)
            if lags[-1] > 0 and len(lags) % 64 == 0:
                await asyncio.sleep(0)

    def _tell(self) -> None:
        """Once a second, whoever watches."""
        self._telling = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tell)
        outcome, start = self.outcome, self._told
        self._told = len(outcome.took)
        if self._progress is None:
            return
        lately = zip(outcome.took[start:], outcome.status[start:], strict=True)
        p95 = percentile(sorted(took for took, status in lately if status == 200), 95)
        self._progress(
            Progress(
                outcome.offered,
                self._told,
                len(self._on_the_way),
                None if p95 is None else to_ms(p95),
            )
        )

    # -- one request ------------------------------------------------------------------------------

    def _send(self, request: Request) -> None:
        number = next(self._numbers)
        self.outcome.offered += 1
        payload = self._payload(number, request.prompt)
        who = self._whose[number % len(self._whose)]
        sending = _Sending(self, request.arrived_at, request.prompt, payload, who)
        self._on_the_way.add(sending)
        sending.send()

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
        self._on_the_way.discard(sending)
        outcome.at.append(sending.at)
        outcome.took.append(now() - self._origin - sending.at)
        outcome.status.append(response.status)
        outcome.who.append(sending.who)
        if b"idempotent-replayed" in response.headers:
            outcome.replayed += 1
        if response.status != 200:
            code = _code(response)
            outcome.codes[code] += 1
            outcome.codes_of[sending.who, code] += 1
            self._despair(response)
        elif self.target.stream:
            self._enter_stream(sending, response)
        elif self._tags and tag(sending.prompt).encode() not in response.body:
            outcome.wrong_tag += 1

    def _enter_stream(self, sending: _Sending, response: Response) -> None:
        outcome = self.outcome
        began, ended = response.first_at, response.last_at
        outcome.first.append(began - self._origin - sending.at)
        outcome.first_at.append(sending.at)
        if response.pieces > 1:
            outcome.step.append((ended - began) // (response.pieces - 1))
            outcome.step_at.append(sending.at)
        if b'"error"' in response.body or b"[DONE]" not in response.body:
            outcome.broken_streams += 1

    def _despair(self, response: Response) -> None:
        """End the test when all that ever came says that what is asked for is not there."""
        statuses = self.outcome.status
        if len(statuses) == MOST_HOPELESS and HOPELESS.issuperset(statuses):
            self._hopeless = (
                f"the first {MOST_HOPELESS} requests to {self.target.url} were all refused, the "
                f"last with {response.status} ({_code(response)}); check --url, --key, --model "
                "and --chat"
            )

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


async def until(at: int) -> None:
    """Return at this instant of `now`, some 0.1 ms late, without keeping a processor busy.

    A loop that counts in milliseconds takes a shorter sleep for none, and would spin; so the last
    stretch is slept by the process, which hears what comes meanwhile that much later.
    """
    while (rest := at - now()) > 0:
        if rest > 2 * MS:
            await asyncio.sleep((rest - MS) / S)
        else:
            time.sleep(min(rest / S, NAP_S))
            await asyncio.sleep(0)


def _whose(keys: tuple[str, ...]) -> list[int]:
    """For each key in turn, its number among those that differ."""
    distinct = list(dict.fromkeys(keys))
    return [distinct.index(key) for key in keys]


def _address(url: str) -> tuple[str, int, bool]:
    parts: SplitResult = urlsplit(url)
    secure = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LiveError(f"{url!r} is no URL of a server; give one such as http://127.0.0.1:8000")
    return parts.hostname, parts.port or (443 if secure else 80), secure


def _why_silent(url: str, failure: OSError | None) -> str:
    """Why nothing at all came back from this URL, and what to do."""
    if failure is None:
        return f"{url}: hung up without an answer; check the port, and http or https"
    if isinstance(failure, ConnectionRefusedError):
        return f"{url}: nobody listens there; start a server: labkit serve"
    if isinstance(failure, ssl.SSLError):
        return f"{url}: no TLS there ({failure.reason or failure}); try http://"
    return f"{url}: cannot be reached ({failure.strerror or failure}); check the URL"


def _wrong_key(url: str, key: str) -> str:
    """What to do about a key that is not known, or that is missing."""
    said = f"does not know the key {key[:4]}..." if key else "wants a key"
    return (
        f"{url} {said}; give one with --key (labkit serve shows its demonstration keys when it "
        "starts)"
    )


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
