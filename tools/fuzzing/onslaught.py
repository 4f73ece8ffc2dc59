"""Many bad connections at once against a running server, and every byte that comes back read."""

import asyncio
import json
import re
import socket
import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass
from random import Random
from typing import Any

from labkit.live.http.refusals import CASES

from .server import Served
from .wires import sound_bodies, split, wire

ENDS = ("read", "read", "read", "half", "reset", "close", "stay")
"""How a client leaves: once nothing more comes; its own side first; with a reset; unread; at last,
after the others."""

QUIET_S = 0.15
"""A reader who has heard nothing for so long has heard all."""

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+$")
HEADER = re.compile(rb"[a-z0-9-]+: [\x20-\x7e]+$")
EVENT = re.compile(rb"(data: (\{.*\}|\[DONE\])\n\n)+")


@dataclass(frozen=True)
class Case:
    """What one client does."""

    pieces: list[bytes]
    end: str

    def saved(self) -> dict[str, Any]:
        """As JSON."""
        return {"pieces": [b64encode(piece).decode() for piece in self.pieces], "end": self.end}

    @classmethod
    def read(cls, saved: dict[str, Any]) -> "Case":
        """Of what `saved` wrote."""
        return cls([b64decode(piece) for piece in saved["pieces"]], saved["end"])


def cases(rng: Random, served: Served, number: int) -> list[Case]:
    """So many clients for one burst."""
    keys = [served.keys["paid"].encode(), served.keys["free"].encode()] * 5 + [b"nobody"]
    bodies = sound_bodies()
    return [Case(split(rng, wire(rng, keys, bodies)), rng.choice(ENDS)) for _ in range(number)]


def fire(port: int, burst: list[Case]) -> list[str]:
    """All of them at once; what is wrong with what came back."""

    async def together() -> list[str | None]:
        gone = asyncio.Event()
        clients = [asyncio.create_task(_client(port, case, gone)) for case in burst]
        leaving = [c for c, case in zip(clients, burst, strict=True) if case.end != "stay"]
        if leaving:
            await asyncio.wait(leaving)
        gone.set()
        return await asyncio.gather(*clients)

    return [told for told in asyncio.run(together()) if told is not None]


async def _client(port: int, case: Case, gone: asyncio.Event) -> str | None:
    loop = asyncio.get_running_loop()
    line = socket.socket()
    line.setblocking(False)
    try:
        await loop.sock_connect(line, ("127.0.0.1", port))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        heard = await _talk(loop, line, case, gone)
    except OSError:
        return None  # the server may hang up on whom it has refused
    finally:
        line.close()
    text = b"".join(case.pieces)
    return None if b"HEAD" in text else unsound(heard)


async def _talk(
    loop: asyncio.AbstractEventLoop, line: socket.socket, case: Case, gone: asyncio.Event
) -> bytes:
    for piece in case.pieces:
        await asyncio.wait_for(loop.sock_sendall(line, piece), 5.0)
        if len(case.pieces) < 10:
            await asyncio.sleep(0)
    if case.end == "reset":
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if case.end in ("reset", "close"):
        return b""
    if case.end == "half":
        line.shutdown(socket.SHUT_WR)
    if case.end == "stay":
        await gone.wait()
    heard = b""
    try:
        while piece := await asyncio.wait_for(loop.sock_recv(line, 1 << 18), QUIET_S):
            heard += piece
    except TimeoutError:
        pass
    return heard


def unsound(heard: bytes) -> str | None:
    """What is wrong with these responses; the last one may be cut off."""
    while heard:
        head, ended, rest = heard.partition(b"\r\n\r\n")
        if not ended:
            return None
        first, *lines = head.split(b"\r\n")
        found = STATUS.match(first)
        if found is None or not all(HEADER.match(line) for line in lines):
            return f"this is no head of a response: {head!r:.300}"
        status = int(found[1])
        if status == 100:
            heard = rest
            continue
        headers = dict(line.split(b": ", 1) for line in lines)
        body, after = _body(headers, rest)
        if body is None:
            return None
        told = _unsound_body(status, headers, body)
        if told is not None:
            return f"{told}: {head!r} {body!r:.300}"
        heard = after
    return None


def _body(headers: dict[bytes, bytes], rest: bytes) -> tuple[bytes | None, bytes]:
    """The body and what follows it; None for one that was cut off."""
    if b"content-length" in headers:
        length = int(headers[b"content-length"])
        return (rest[:length] if len(rest) >= length else None), rest[length:]
    if b"transfer-encoding" not in headers:
        return rest, b""
    body = b""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            return None, b""
        length = int(size, 16)
        body += rest[:length]
        if len(rest) < length + 2:
            return None, b""
        if rest[length : length + 2] != b"\r\n":
            return b"a chunk that does not end: " + rest[:80], b""
        rest = rest[length + 2 :]
        if not length:
            return body, rest


def _unsound_body(status: int, headers: dict[bytes, bytes], body: bytes) -> str | None:
    kind = headers.get(b"content-type", b"")
    if status >= 500 and status not in (503, 504):
        return "a server error"
    if status == 200 and kind.startswith(b"text/event-stream"):
        return None if EVENT.fullmatch(body) else "events that are none"
    if status == 200 and kind.startswith(b"text/plain"):
        return None
    if kind != b"application/json":
        return "a content type nobody announced"
    try:
        said = json.loads(body)
    except ValueError:
        return "JSON that is none"
    if status == 200:
        return None
    error = said.get("error", {})
    if error.get("code") not in CASES or CASES[error["code"]].status != status:
        return "an error with a code that does not belong to its status"
    if status in (429, 503, 504) and not 1 <= int(headers.get(b"retry-after", b"0")) <= 60:
        return "no time to come back"
    return None


class Dawdlers:
    """Clients who send half a request and then nothing; each must be ended in time."""

    def __init__(self, rng: Random, served: Served, number: int) -> None:
        head = b"POST /v1/completions HTTP/1.1\r\nhost: here\r\nauthorization: Bearer %b\r\n"
        start = head % served.keys["paid"].encode()
        said = start + b'content-length: 37\r\n\r\n{"model": "ferry", "prompt": "hello"}'
        chunked = start + b'transfer-encoding: chunked\r\n\r\n5\r\n{"mod\r\n'
        self.lines = []
        for _ in range(number):
            before, half = rng.choice(((b"", said), (b"", chunked), (said, chunked)))
            line = socket.create_connection(("127.0.0.1", served.port), 20)
            line.sendall(before + half[: rng.randrange(1, len(half))])
            self.lines.append(line)

    def finding(self) -> str | None:
        """Call it once their time is over; what is wrong."""
        alive = 0
        for line in self.lines:
            line.settimeout(3.0)
            try:
                while line.recv(1 << 16):
                    pass
            except TimeoutError:
                alive += 1
            except ConnectionError:
                pass
            line.close()
        return f"{alive} dawdlers were still connected" if alive else None
