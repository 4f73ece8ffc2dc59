"""Bytes for a connection: requests as clients write them, and as people do who mean harm."""

import json
from itertools import pairwise
from random import Random

HOST = b"host: here\r\n"
TRICKS = [
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"\r\n\r\n", b"\xff", b"%00", b"\x1b[2J",
    b"transfer-encoding: chunked\r\n", b"transfer-encoding: chunked, identity\r\n",
    b"Transfer-Encoding : chunked\r\n", b"transfer-encoding: gzip, chunked\r\n",
    b"transfer-encoding:\x0bchunked\r\n", b"transfer-encoding: \r\n", b" transfer-encoding: x\r\n",
    b"content-length: 5\r\n", b"content-length: 0\r\n", b"content-length: +5\r\n",
    b"content-length: 5, 5\r\n", b"content-length: -1\r\n", b"content-length: 0x5\r\n",
    b"content-length: 99999999999999999999\r\n", b"content-length: 1000001\r\n",
    b"content-length: 005\r\n", b"expect: 100-continue\r\n", b"expect: 200-ok\r\n",
    b"connection: close\r\n", b"connection: keep-alive\r\n", b"connection: close, keep-alive\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n", b"upgrade: websocket\r\n", b"host: there\r\n",
    b"x-fold: a\r\n b\r\n", b"x-big: " + b"y" * 17_000 + b"\r\n", b"x: y\r\n" * 120,
    b"0\r\n\r\n", b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"0x5\r\nhello\r\n", b"5 \r\nhello\r\n",
    b"5\nhello\r\n", b"ffffffffffffffffff\r\n", b"0\r\nauthorization: Bearer x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n", b"GET /healthz\r\n\r\n", b"HTTP/1.0",
    b"idempotency-key: \xff\r\n", b"idempotency-key: " + b"k" * 256 + b"\r\n",
    b"x-stainless-read-timeout: nan\r\n", b"x-stainless-read-timeout: 1e-9\r\n",
    b"x-stainless-retry-count: \xb2\r\n", b"content-type: text/plain\r\n",
    b"content-type: \xff\r\n",
    b"authorization: Basic x\r\n", b"authorization: Bearer " + b"z" * 9_000 + b"\r\n",
]  # fmt: skip
TARGETS = [
    b"/healthz", b"/readyz", b"/metrics", b"/openapi.json", b"/v1/models", b"/v1/models/ferry",
    b"/v1/models/%ff", b"/v1/completions", b"/v1/chat/completions", b"/lab/gpus",
    b"/lab/receipts", b"/lab/gpus/0/hug", b"/", b"//", b"*", b"/v1/../healthz",
    b"/%68ealthz", b"/healthz%00", b"/healthz?x=%0d%0a", b"/healthz#x",
    b"http://here/healthz", b"HTTP://here/healthz?x", b"https://here/healthz", b"here:80", b"",
    b"/healthz/", b"/HEALTHZ", b"/\xc3\xa9", b"/" + b"a" * 17_000, b"/v1/models;x=1", b"?", b"#",
]  # fmt: skip
METHODS = [b"GET", b"GET", b"GET", b"POST", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"DELETE",
           b"CONNECT", b"TRACE", b"get", b"PRI", b"M-SEARCH", b"QUERY", b"G\x00T", b""]  # fmt: skip
VERSIONS = [b"HTTP/1.1"] * 12 + [
    b"HTTP/1.0", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/2", b"http/1.1",
    b"HTTP/1.10", b"RTSP/1.0", b"", b"HTTP/1.1 ",
]  # fmt: skip


def wire(rng: Random, keys: list[bytes], bodies: list[bytes]) -> bytes:
    """One to five requests in a row; most of them sound, some of them bent, some bytes lost."""
    several = rng.choice((1, 1, 2, 3, 5))
    text = b"".join(request(rng, keys, bodies) for _ in range(several))
    return bent(rng, text) if rng.random() < 0.5 else text


def request(rng: Random, keys: list[bytes], bodies: list[bytes]) -> bytes:
    """One request: a sound completion, or any method, target and version."""
    if rng.random() < 0.5:
        return completion(rng, rng.choice(keys), rng.choice(bodies))
    method, target = rng.choice(METHODS), rng.choice(TARGETS)
    head = b"%b %b %b\r\n" % (method, target, rng.choice(VERSIONS))
    lines = [HOST] if rng.random() < 0.95 else []
    if rng.random() < 0.3:
        lines.append(b"authorization: Bearer %b\r\n" % rng.choice(keys))
    lines += [rng.choice(TRICKS) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    rng.shuffle(lines)
    return head + b"".join(lines) + b"\r\n"


def completion(rng: Random, key: bytes, body: bytes) -> bytes:
    """A POST with this body, its length said, or in chunks."""
    target = b"/v1/chat/completions" if b'"messages"' in body else b"/v1/completions"
    lines = [HOST, b"authorization: Bearer %b\r\n" % key, b"content-type: application/json\r\n"]
    if rng.random() < 0.1:
        lines.append(b"idempotency-key: %d\r\n" % rng.randrange(5))
    if rng.random() < 0.1:
        lines.append(b"expect: 100-continue\r\n")
    if rng.random() < 0.1:
        lines.append(rng.choice(TRICKS))
    if rng.random() < 0.7:
        lines.append(b"content-length: %d\r\n" % len(body))
    else:
        lines.append(b"transfer-encoding: chunked\r\n")
        body = chunked(rng, body)
    rng.shuffle(lines)
    return b"POST %b HTTP/1.1\r\n%b\r\n%b" % (target, b"".join(lines), body)


def chunked(rng: Random, body: bytes) -> bytes:
    """The body in chunks, perhaps with extensions and trailers."""
    step = rng.choice((1, 7, 1_000)) if len(body) < 10_000 else 1_000
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    extra = rng.choice((b"", b"", b"", b";a=b", b';a="b;c"'))
    text = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extra, piece) for piece in pieces)
    return text + b"0\r\n" + rng.choice((b"", b"", b"x-trailer: y\r\n", HOST)) + b"\r\n"


def bent(rng: Random, text: bytes) -> bytes:
    """The same with a trick or two in it, bytes gone, doubled or changed, or its end missing."""
    made = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(made) + 1)
        until = at + rng.choice((0, 0, 1, 2, 8))
        fresh = rng.choice((b"", rng.choice(TRICKS), rng.randbytes(2), bytes(made[at : at + 40])))
        made[at:until] = fresh
    if rng.random() < 0.2:
        del made[rng.randrange(len(made) + 1) :]
    return bytes(made)


def split(rng: Random, text: bytes) -> list[bytes]:
    """The same bytes in pieces: whole, in a few, or one by one."""
    if rng.random() < 0.2 and len(text) < 2_000:
        return [text[at : at + 1] for at in range(len(text))]
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(5)))
    edges = [0, *cuts, len(text)]
    return [text[a:b] for a, b in pairwise(edges) if b > a]


def sound_bodies() -> list[bytes]:
    """Bodies that are served, or refused for what they say."""
    said = [{"role": "user", "content": "hi"}]
    asked: list[dict[str, object]] = [
        {"prompt": "hello"},
        {"prompt": "a b c", "stream": True},
        {"prompt": ["a", "b"], "stream": True, "stream_options": {"include_usage": True}},
        {"prompt": ["x"] * 100},
        {"prompt": "x", "max_tokens": 0},
        {"messages": said},
        {"messages": said, "stream": True},
        {"prompt": "x", "user": "u" * 100_000},
    ]
    made = [json.dumps({"model": "ferry"} | body).encode() for body in asked]
    return [*made, b'{"model":"canoe","prompt":"x"}', b"", b"{", b"[" * 500]
