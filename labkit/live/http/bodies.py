"""What a client may send: decoded, checked against its tier's caps, errors naming the field."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from labkit.core.messages import Tier
from labkit.live.http.refusals import Refusal

MOST_BODY = 1_000_000
"""Bytes of a body; more is refused before it is read."""

MOST_PROMPTS = 100
"""Strings in one list: what one batch holds."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What one request of a tier may ask for: prompt and answer in tokens (one a UTF-8 byte)."""

    prompt: int
    max_tokens: int
    prompts: int = MOST_PROMPTS


CAPS: dict[int, Caps] = {Tier.PAID: Caps(16_384, 4_096), Tier.FREE: Caps(4_096, 1_024)}


Whole = int | Annotated[float, msgspec.Meta(multiple_of=1.0)]
"""JSON knows no integers: 16.0 is what some languages write for 16."""


class StreamOptions(msgspec.Struct):
    """How a stream ends: `include_usage` asks for one more event with the token counts."""

    include_usage: bool | None = None


class Completion(msgspec.Struct):
    """The body of /v1/completions. Sampling is accepted and has no effect: these models have none.

    `prompt` is one string, or up to 100 of them, answered together or not at all.
    """

    model: str
    prompt: str | list[str]
    max_tokens: Whole | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Whole | None = None
    user: str | None = None
    stop: str | list[str] | None = None
    n: Whole | None = None
    best_of: Whole | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Whole | None = None


class Part(msgspec.Struct):
    """A piece of a message; only text is understood."""

    type: str
    text: str | None = None


class Message(msgspec.Struct):
    """One turn of a conversation."""

    role: str
    content: str | list[Part] | None = None


class Chat(msgspec.Struct):
    """The body of /v1/chat/completions; the prompt is the contents of all messages, a line each."""

    model: str
    messages: list[Message]
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Whole | None = None
    user: str | None = None
    stop: str | list[str] | None = None
    n: Whole | None = None
    logprobs: bool | None = None
    tools: list[Any] | None = None


class Asked(msgspec.Struct, gc=False):
    """What a body comes down to, whichever of the two it was.

    `prompts` are one or more: a list, or the one string alone.
    """

    chat: bool
    model: str
    prompts: list[str]
    max_tokens: int | None
    stream: bool
    usage: bool


def read_completion(body: bytes, caps: Caps) -> Asked:
    """A body of /v1/completions within the caps; raises `Refusal` with the field."""
    sent = _decode(_completion, body)
    prompts = [sent.prompt] if isinstance(sent.prompt, str) else sent.prompt
    if len(prompts) > caps.prompts:
        raise Refusal(
            "batch_too_large",
            f"prompt has {len(prompts)} strings; {caps.prompts} is the most, send fewer at once",
            "prompt",
        )
    if not prompts:
        raise Refusal("invalid_value", "prompt is an empty list; give at least one", "prompt")
    for prompt in prompts:
        if len(prompt) * 4 > caps.prompt:
            _check_length(prompt, caps, "prompt")
    _check_common(sent, caps, _COMPLETION_NEUTRAL)
    options = sent.stream_options
    usage = bool(options and options.include_usage)
    return Asked(False, sent.model, prompts, _whole(sent.max_tokens), bool(sent.stream), usage)


def read_chat(body: bytes, caps: Caps) -> Asked:
    """A body of /v1/chat/completions within the caps; raises `Refusal` with the field."""
    sent = _decode(_chat, body)
    if not sent.messages:
        raise Refusal("invalid_value", "messages is empty; give at least one", "messages")
    prompt = "\n".join(_text(message, number) for number, message in enumerate(sent.messages))
    _check_length(prompt, caps, "messages")
    _check_common(sent, caps, _CHAT_NEUTRAL)
    most = sent.max_completion_tokens
    if most is not None:
        _check_most(most, caps, "max_completion_tokens")
    options = sent.stream_options
    usage = bool(options and options.include_usage)
    most = sent.max_tokens if most is None else most
    return Asked(True, sent.model, [prompt], _whole(most), bool(sent.stream), usage)


def canonical(body: bytes) -> bytes:
    """The same bytes for the same JSON, however it was written.

    JSON that nothing here can hold (a number out of every range, in a field nobody reads) is the
    same to the letter alone.
    """
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="deterministic")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body


ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_completion = msgspec.json.Decoder(Completion)
_chat = msgspec.json.Decoder(Chat)
_WHERE = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(\w+)`")
_COMPLETION_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "stop": (None, "", []),
    "best_of": (None, 1),
    "echo": (None, False),
    "suffix": (None, ""),
    "logprobs": (None,),
}
_CHAT_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "stop": (None, "", []),
    "logprobs": (None, False),
    "tools": (None, []),
}


def _decode(decoder: Any, body: bytes) -> Any:
    try:
        if not body.isascii():
            body.decode()  # the decoder does not look into fields that it does not know
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text = str(error)
        missing, where = _MISSING.search(text), _WHERE.search(text)
        path = [found[1] for found in (where, missing) if found]
        raise Refusal("invalid_value", _WHERE.sub("", text), ".".join(path) or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("invalid_json", f"the body is not JSON in UTF-8: {error}") from None


def _check_common(sent: Any, caps: Caps, neutral: dict[str, tuple[Any, ...]]) -> None:
    if sent.max_tokens is not None:
        _check_most(sent.max_tokens, caps, "max_tokens")
    for name, values in neutral.items():
        value = getattr(sent, name)
        if value is not None and value not in values:
            raise Refusal(
                "unsupported_value", f"{name} {value!r} is not served; leave it out", name
            )


def _whole(number: int | float | None) -> int | None:
    return None if number is None else int(number)


def _check_most(most: int | float, caps: Caps, param: str) -> None:
    if most < 1:
        raise Refusal("invalid_value", f"{param} {most}: must be 1 or more", param)
    if most > caps.max_tokens:
        raise Refusal(
            "context_length_exceeded",
            f"{param} {most} is over this tier's {caps.max_tokens}; ask for less",
            param,
        )


def _check_length(prompt: str, caps: Caps, param: str) -> None:
    length = len(prompt.encode())
    if length > caps.prompt:
        raise Refusal(
            "context_length_exceeded",
            f"the prompt has {length} tokens (one a byte), over this tier's {caps.prompt}; "
            "shorten it, or send it in parts",
            param,
        )


def _text(message: Message, number: int) -> str:
    where = f"messages[{number}]"
    if message.role not in ROLES:
        raise Refusal(
            "invalid_value",
            f"{where}.role {message.role!r}: use one of {', '.join(sorted(ROLES))}",
            f"{where}.role",
        )
    content = message.content
    if isinstance(content, str):
        return content
    for part in content or ():
        if part.type != "text" or part.text is None:
            raise Refusal(
                "unsupported_value",
                f"{where}.content has a part of type {part.type!r}; only text is understood",
                f"{where}.content",
            )
    return "".join(part.text or "" for part in content or ())
