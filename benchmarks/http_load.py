"""The load of the HTTP contest, in a process of its own: the same for every server.

Reads one JSON object (`Asked`) from standard input and prints what came of it. Requests go over the
keep-alive connections of `labkit loadtest`, all made beforehand, and a generator's own collector is
off while it measures. An answer counts when its status is 200 and it carries its prompt's tag.
"""

import asyncio
import gc
import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Any
from urllib.parse import urlsplit

import msgspec

from labkit.core.books import summary
from labkit.core.units import S
from labkit.gpu.tag import tag
from labkit.live.configure import loop_factory
from labkit.live.loadtest import now, until
from labkit.live.loadtest_client import Pool, Response
from labkit.workload import ferry_prompts, poisson, stream

HEAD_START_S = 0.1
PATIENCE_S = 3.0
"""After the last arrival; whoever has no answer then gets none."""

AGAIN_S = 0.05
"""Until a refused client of a closed loop asks again."""

MOST_CONNECTIONS = 10_000
SENTENCES = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """One load on one server.

    `rate`: requests a second of an open loop of Poisson arrivals; None for a closed loop of
    `clients`. `listed`: the body is a list of one prompt. `keys`: bearer keys that take turns.
    `keyed`: the share that carries an idempotency key. `tagged`: answers carry a tag.
    """

    url: str
    path: str
    seconds: float
    rate: float | None = None
    clients: int = 0
    listed: bool = False
    keys: tuple[str, ...] = ("",)
    keyed: float = 0.0
    tagged: bool = True
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Letter:
    """One request as it is sent, and what its answer must contain."""

    payload: bytes
    proof: bytes


def letters(asked: Asked) -> Iterator[Letter]:
    """Requests without end, no two alike."""
    said = ferry_prompts(SENTENCES, stream(asked.seed, "prompts"))
    chance: Random = stream(asked.seed, "keys")
    heads = cycle([_head(asked, key) for key in asked.keys])
    for number, head in enumerate(heads):
        prompt = f"{said[number % SENTENCES]} ({number})"
        body = {"prompts": [prompt]} if asked.listed else {"model": "ferry", "prompt": prompt}
        encoded = msgspec.json.encode(body)
        extra = b""
        if asked.keyed and chance.random() < asked.keyed:
            extra = b"idempotency-key: %016x\r\n" % chance.getrandbits(64)
        payload = b"%b%bcontent-length: %d\r\n\r\n%b" % (head, extra, len(encoded), encoded)
        yield Letter(payload, tag(prompt).encode() if asked.tagged else b"")


def _head(asked: Asked, key: str) -> bytes:
    parts = urlsplit(asked.url)
    auth = f"authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST {asked.path} HTTP/1.1\r\nhost: {parts.netloc}\r\n{auth}"
        "content-type: application/json\r\n"
    ).encode()


class Load:
    """What both loops share: the connections, and the count of what came back."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.took = array("q")
        self.statuses: Counter[int] = Counter()

    def run(self) -> dict[str, Any]:
        """To the last answer that counts."""
        with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
            return runner.run(self._run())

    async def offer(self) -> dict[str, Any]:
        """The load itself; every loop has its own."""
        raise NotImplementedError

    def warm(self) -> int:
        """How many connections are opened beforehand."""
        raise NotImplementedError

    def shown_statuses(self) -> dict[str, int]:
        """How many responses of each; 0 is a connection that broke."""
        return {str(status): number for status, number in sorted(self.statuses.items())}

    async def _run(self) -> dict[str, Any]:
        parts = urlsplit(self.asked.url)
        loop = asyncio.get_running_loop()
        self.pool = Pool(loop, now, str(parts.hostname), parts.port or 80, MOST_CONNECTIONS)
        try:
            await self.pool.warm(min(self.warm(), MOST_CONNECTIONS))
            gc.collect()
            gc.disable()
            return await self.offer()
        finally:
            self.pool.close()
            await asyncio.sleep(0.01)

    def post(self, letter: Letter, since: int, then: Callable[[bool], None]) -> None:
        """Send one, its latency counted from `since`; `then` hears whether it was answered."""
        proof = letter.proof

        def came(response: Response) -> None:
            self.statuses[response.status] += 1
            right = response.status == 200 and proof in response.body
            if right:
                self.took.append(now() - since)
            then(right)

        self.pool.send(letter.payload, came)


class OpenLoop(Load):
    """Requests leave on schedule, whether or not answers come back."""

    def __init__(self, asked: Asked, rate: float) -> None:
        super().__init__(asked)
        self.rate = rate
        self.instants = poisson(rate, asked.seconds, stream(asked.seed, "arrivals"))
        # What can be made beforehand need not be made beside the server.
        self.letters = list(islice(letters(asked), len(self.instants)))
        self.open = 0

    def warm(self) -> int:
        """As many as are on their way at once when the server does well."""
        return round(self.rate * 0.25) + 10

    async def offer(self) -> dict[str, Any]:
        """Everyone at their instant, then the last answers."""
        lags = array("q")
        origin = now() + round(HEAD_START_S * S)
        for instant, letter in zip(self.instants, self.letters, strict=True):
            at = origin + instant
            await until(at)
            lags.append(now() - at)
            self.open += 1
            self.post(letter, at, self._over)
            if lags[-1] > 0 and len(lags) % 64 == 0:
                await asyncio.sleep(0)
        deadline = now() + round(PATIENCE_S * S)
        while self.open and now() < deadline:
            await asyncio.sleep(0.01)
        return self._found(lags)

    def _over(self, right: bool) -> None:
        self.open -= 1

    def _found(self, lags: "array[int]") -> dict[str, Any]:
        latency = summary(self.took)
        return {
            "rate": self.rate,
            "offered": len(self.instants),
            "answered": len(self.took),
            "statuses": self.shown_statuses(),
            "p50_ms": latency["p50"],
            "p95_ms": latency["p95"],
            "generator_lag_p95_ms": summary(lags)["p95"],
        }


class ClosedLoop(Load):
    """Clients that ask again when they are answered; the first quarter of the time is not counted.

    Whoever is refused asks again a little later. The last requests are not waited for.
    """

    def warm(self) -> int:
        """One a client."""
        return self.asked.clients

    async def offer(self) -> dict[str, Any]:
        """Everybody at once, then each in turn until the time is over."""
        asked, loop, letter = self.asked, asyncio.get_running_loop(), letters(self.asked)

        def again(right: bool = True) -> None:
            if right:
                self.post(next(letter), now(), again)
            else:
                loop.call_later(AGAIN_S, again)

        for _ in range(asked.clients):
            again()
        await asyncio.sleep(asked.seconds / 4)
        began, before = now(), len(self.took)
        await asyncio.sleep(asked.seconds * 3 / 4)
        return {
            "clients": asked.clients,
            "per_s": round((len(self.took) - before) / (now() - began) * S, 1),
            "statuses": self.shown_statuses(),
        }


def main() -> None:
    """One load, as asked on standard input."""
    asked = Asked(**json.load(sys.stdin))
    load = ClosedLoop(asked) if asked.rate is None else OpenLoop(asked, asked.rate)
    json.dump(load.run(), sys.stdout)


if __name__ == "__main__":
    main()
