"""Bodies of requests, sound and unsound, against a plain reading of the same bytes.

The plain reading is the standard library's `json` and a list of checks: slow, and written without
a look at how the door decodes. Where the two disagree, one of them is wrong.
"""

import json
import re
from math import isfinite
from random import Random
from typing import Any

from labkit.core.messages import Tier
from labkit.live.http.bodies import CAPS, ROLES, Asked, Caps, canonical, read_chat, read_completion
from labkit.live.http.refusals import Refusal

TIGHT = Caps(64, 32, 3)
"""Caps that random bodies really meet."""

ODD = [
    b"null", b"true", b"false", b"0", b"-0", b"1", b"-1", b"2", b"33", b"1.0", b"1e2", b"1e999",
    b"-1e999", b"1e-999", b"NaN", b"Infinity", b"-Infinity", b"01", b"1.", b".5", b"+1", b"0x1",
    b"9223372036854775808", b"18446744073709551616", b"9" * 40, b'""', b'"\\u0000"', b'"\\ud800"',
    b'"\\ud83d\\ude00"', b'"\\ude00\\ud83d"', b'"\xff"', b'"\xc3\xa9"', b'"\xed\xa0\x80"',
    b'"a\nb"', b'"\\q"', b'"x"', b"[]", b"{}", b"[[]]", b'{"a":{}}', b'["x"]', b'["x","y","z","w"]',
    b'"' + b"x" * 65 + b'"', b'"' + b"\xc3\xa9" * 33 + b'"', b"[1,2]", b'{"include_usage":true}',
    b'{"include_usage":1}', b"'x'", b"", b"\xef\xbb\xbf1", b"/* */1",
]  # fmt: skip
MESSAGES = [
    b'[{"role":"user","content":"hi"}]',
    b'[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text"}]}]',
    b'[{"role":"user"},{"role":"assistant","content":null}]',
    b'[{"role":"pirate","content":"hi"}]',
    b'[{"content":"hi"}]',
    b'[{"role":"tool","content":[{"type":"image_url","text":"x"}]}]',
    b'[{"role":"user","content":[{"text":"x"}]}]',
    b'[{"role":"user","content":"' + b"y" * 70 + b'"}]',
    b"[[]]",
    b"[null]",
    b"{}",
]
COMMON = [
    "max_tokens",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "seed",
    "user",
    "stop",
    "n",
]
COMPLETION = ["model", "prompt", *COMMON, "best_of", "echo", "suffix", "logprobs"]
CHAT = ["model", "messages", *COMMON, "max_completion_tokens", "logprobs", "tools"]
NUMBER = re.compile(rb"[0-9.]{300,}")


def body(rng: Random, chat: bool) -> bytes:
    """One body: most of the fields a client knows, some values odd, at times some bytes too."""
    known = CHAT if chat else COMPLETION
    pairs = [
        (b'"model"', b'"ferry"'),
        (b'"messages"', MESSAGES[0]) if chat else (b'"prompt"', b'"hello"'),
    ]
    if rng.random() < 0.1:
        pairs.pop(rng.randrange(2))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        name = rng.choice(known) if rng.random() < 0.7 else "unknown"
        if name == "messages" and rng.random() < 0.8:
            value = rng.choice(MESSAGES)
        else:
            value = nested(rng) if rng.random() < 0.1 else rng.choice(ODD)
        quoted = b'"%b"' % name.encode()
        if rng.random() < 0.9:
            pairs = [pair for pair in pairs if pair[0] != quoted]
        pairs.append((quoted, value))
    rng.shuffle(pairs)
    space = rng.choice((b"", b"", b" ", b"\n\t"))
    text = b"{%b}" % b",".join(b"%b%b:%b%b" % (space, n, space, v) for n, v in pairs)
    return garbled(rng, text) if rng.random() < 0.3 else text


def nested(rng: Random) -> bytes:
    """Something deep, or a number as long as a book."""
    depth = rng.choice((3, 40, 300, 3_000, 100_000))
    return rng.choice(
        (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"9" * depth,
         b"[" * depth, b"1." + b"5" * depth, b'"' + b"\\" * depth + b'"')
    )  # fmt: skip


def garbled(rng: Random, text: bytes) -> bytes:
    """A few bytes lost, doubled, swapped or put in."""
    wire = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(wire) + 1)
        fresh = rng.choice(
            (b"", b"", rng.randbytes(rng.randrange(1, 4)), b'"', b"\\", b",", b"}", b"\x00",
             b"\xef\xbb\xbf", bytes(wire[at : at + 9]))
        )  # fmt: skip
        wire[at : at + rng.randrange(4)] = fresh
    return bytes(wire)


def finding(body: bytes, chat: bool) -> str | None:
    """What is wrong with how the door reads this body; None for nothing."""
    for caps in (TIGHT, CAPS[Tier.PAID]):
        try:
            ours: Asked | Refusal = (read_chat if chat else read_completion)(body, caps)
        except Refusal as refusal:
            ours = refusal
        except Exception as error:
            return f"raised {error!r}"
        told = disagreement(ours, body, chat, caps)
        if told is not None:
            return told
    try:
        return _fingerprint(body)
    except Exception as error:
        return f"its canonical form raised {error!r}"


def disagreement(ours: Asked | Refusal, body: bytes, chat: bool, caps: Caps) -> str | None:
    """How our reading differs from the plain one."""
    reading = Reading(body, chat, caps)
    if isinstance(ours, Refusal):
        if ours.status != 400:
            return f"status {ours.status}"
        if reading.free or reading.doubled:
            return None
        if ours.code not in reading.wrong:
            return f"refused with {ours.code} ({ours}), where plain checks say {reading.wrong}"
        return None
    if reading.free:
        return None
    if reading.wrong and not reading.doubled:
        return f"accepted, where plain checks say {reading.wrong}"
    if reading.asked is not None and ours != reading.asked:
        return f"read as {ours}, where plain checks read {reading.asked}"
    return None


def _fingerprint(body: bytes) -> str | None:
    """The same JSON written otherwise must be the same request."""
    form = canonical(body)
    if canonical(form) != form:
        return "its canonical form has another canonical form"
    try:
        again = json.dumps(json.loads(body), indent=1, ensure_ascii=True).encode()
    except (ValueError, RecursionError):
        return None
    if b"Infinity" in again or b"NaN" in again or form == body or NUMBER.search(body):
        return None
    if canonical(again) != form:
        return "the same JSON, indented, has another canonical form"
    return None


class Reading:
    """What plain checks make of a body.

    `asked` is what it asks for; `wrong` are the codes it may be refused with, none for a sound one.
    `free`: so deep, or a number so long, that either answer will do. `doubled`: a key came twice,
    and the value that does not count may be refused as well.
    """

    def __init__(self, body: bytes, chat: bool, caps: Caps) -> None:
        self.wrong: set[str] = set()
        self.asked: Asked | None = None
        self.doubled = False
        self.free = NUMBER.search(body) is not None or _depth(body) > 200
        self._caps = caps
        if self.free:
            return
        try:
            sent = json.loads(
                body.decode(), object_pairs_hook=self._object, parse_constant=_refuse_constant
            )
            _check_surrogates(sent)
        except ValueError:
            # A wrong value may be seen before the place where the JSON ends to be any.
            self.wrong = {"invalid_json", "invalid_value"}
            return
        if not isinstance(sent, dict):
            self.wrong.add("invalid_value")
            return
        self._read(sent, chat)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        self.doubled = self.doubled or len(made) < len(pairs)
        return made

    def _read(self, sent: dict[str, Any], chat: bool) -> None:
        self._expect(isinstance(sent.get("model"), str))
        for name in ("stream", "echo") if not chat else ("stream", "logprobs"):
            self._expect(isinstance(sent.get(name), bool | None))
        whole = ("max_tokens", "seed", "n")
        for name in (*whole, *(("max_completion_tokens",) if chat else ("best_of", "logprobs"))):
            self._expect(_is_whole(sent.get(name)))
        for name in ("temperature", "top_p"):
            self._expect(_is_number(sent.get(name)))
        for name in ("user",) if chat else ("user", "suffix"):
            self._expect(isinstance(sent.get(name), str | None))
        options = sent.get("stream_options")
        self._expect(isinstance(options, dict | None))
        usage = options.get("include_usage") if isinstance(options, dict) else None
        self._expect(isinstance(usage, bool | None))
        prompts = self._messages(sent) if chat else self._prompts(sent)
        self._limits(sent, chat)
        if not self.wrong:
            most = sent.get("max_completion_tokens") if chat else None
            most = sent.get("max_tokens") if most is None else most
            stream = bool(sent.get("stream"))
            most = None if most is None else int(most)
            self.asked = Asked(chat, sent["model"], prompts, most, stream, bool(usage))

    def _expect(self, sound: bool, code: str = "invalid_value") -> None:
        if not sound:
            self.wrong.add(code)

    def _limits(self, sent: dict[str, Any], chat: bool) -> None:
        for name in ("max_tokens", *(("max_completion_tokens",) if chat else ())):
            most = sent.get(name)
            if most is not None and _is_whole(most):
                self._expect(most >= 1)
                self._expect(most <= self._caps.max_tokens, "context_length_exceeded")
        neutral = {"n": 1, "logprobs": False, "tools": []} if chat else {
            "n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": None
        }  # fmt: skip
        for name, value in neutral.items():
            self._expect(sent.get(name) in (None, value), "unsupported_value")
        stop = sent.get("stop") if sent.get("stop") is not None else ""
        texts = stop if isinstance(stop, list) else [stop]
        self._expect(all(isinstance(text, str) for text in texts))
        self._expect(stop in ("", []), "unsupported_value")

    def _prompts(self, sent: dict[str, Any]) -> list[str]:
        prompt = sent.get("prompt")
        prompts = [prompt] if isinstance(prompt, str) else prompt
        if not isinstance(prompts, list) or not all(isinstance(p, str) for p in prompts):
            self._expect(False)
            return []
        self._expect(bool(prompts))
        self._expect(len(prompts) <= self._caps.prompts, "batch_too_large")
        for one in prompts:
            self._expect(len(one.encode()) <= self._caps.prompt, "context_length_exceeded")
        return prompts

    def _messages(self, sent: dict[str, Any]) -> list[str]:
        messages = sent.get("messages")
        self._expect(isinstance(messages, list) and bool(messages))
        self._expect(isinstance(sent.get("tools"), list | None))
        texts = [self._text(message) for message in messages or ()] if not self.wrong else []
        prompt = "\n".join(texts)
        self._expect(len(prompt.encode()) <= self._caps.prompt, "context_length_exceeded")
        return [prompt]

    def _text(self, message: Any) -> str:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            self._expect(False)
            return ""
        self._expect(message["role"] in ROLES)
        content = message.get("content")
        if isinstance(content, str):
            return content
        self._expect(isinstance(content, list | None))
        texts = []
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                self._expect(False)
                continue
            self._expect(isinstance(part.get("text"), str | None))
            self._expect(part["type"] == "text" and part.get("text") is not None,
                         "unsupported_value")  # fmt: skip
            texts.append(str(part.get("text")))
        return "".join(texts)


def _is_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and isfinite(value))


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (value is None or value == int(value))


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _check_surrogates(sent: Any) -> None:
    json.dumps(sent, ensure_ascii=False).encode()


def _depth(body: bytes) -> int:
    """At most how deep it may be."""
    return body.count(b"[") + body.count(b"{")
