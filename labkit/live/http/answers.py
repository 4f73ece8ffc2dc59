"""What a client gets: whole answers as JSON, and the same in pieces as server-sent events."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from labkit.live.http.bodies import Asked

DONE = b"data: [DONE]\n\n"


class Usage(msgspec.Struct):
    """Tokens, one a UTF-8 byte."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Choice(msgspec.Struct):
    """One answer of a completion, or one piece of it."""

    index: int
    text: str
    logprobs: None
    finish_reason: str | None


class Said(msgspec.Struct, omit_defaults=True):
    """What the assistant says, or the next piece of it."""

    role: str | None = None
    content: str | None = None


class ChatChoice(msgspec.Struct):
    """The one answer of a chat."""

    index: int
    message: Said
    logprobs: None
    finish_reason: str


class ChatPiece(msgspec.Struct):
    """One piece of it."""

    index: int
    delta: Said
    logprobs: None
    finish_reason: str | None


C = TypeVar("C")


class Body(msgspec.Struct, Generic[C], omit_defaults=True):
    """The body of a response, or one event of a stream, with its kind of choice."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[C]
    usage: Usage | None = None


def cut(output: str, most: int | None) -> tuple[str, str]:
    """An output within `most` tokens, and why it ends there: `stop` or `length`."""
    if most is None or len(output) * 4 <= most:
        return output, "stop"
    encoded = output.encode()
    if len(encoded) <= most:
        return output, "stop"
    return encoded[:most].decode(errors="ignore"), "length"


def tokens(text: str) -> int:
    """How many there are in a text."""
    return len(text) if text.isascii() else len(text.encode())


class Writer:
    """Writes the answers to one call: `name` is the id of the response, `created` in seconds."""

    __slots__ = ("_spent", "asked", "created", "id")

    def __init__(self, asked: Asked, name: str, created: int) -> None:
        self.asked = asked
        self.created = created
        self.id = ("chatcmpl-" if asked.chat else "cmpl-") + name
        self._spent = 0

    def whole(self, outputs: Sequence[str]) -> bytes:
        """One JSON body with an answer a prompt, in order."""
        asked = self.asked
        ends = [cut(output, asked.max_tokens) for output in outputs]
        choices: list[Any]
        if asked.chat:
            text, why = ends[0]
            choices = [ChatChoice(0, Said("assistant", text), None, why)]
        else:
            choices = [Choice(i, text, None, why) for i, (text, why) in enumerate(ends)]
        self._spent = sum([tokens(text) for text, _ in ends])
        kind = "chat.completion" if asked.chat else "text_completion"
        return _encode(Body(self.id, kind, self.created, asked.model, choices, self._usage()))

    # -- a stream: first, piece ..., finish for each choice; then last ----------------------------

    def first(self) -> bytes:
        """The event that opens a chat: who speaks. Nothing for a completion."""
        return self._piece(0, Said("assistant", ""), None) if self.asked.chat else b""

    def piece(self, index: int, text: str) -> bytes:
        """The next words of one answer."""
        self._spent += tokens(text)
        if self.asked.chat:
            return self._piece(index, Said(content=text), None)
        return self._event([Choice(index, text, None, None)])

    def finish(self, index: int, why: str) -> bytes:
        """One answer is complete; a client that never sees this has not got all of it."""
        if self.asked.chat:
            return self._piece(index, Said(), why)
        return self._event([Choice(index, "", None, why)])

    def last(self) -> bytes:
        """The end of the stream, after the token counts if they were asked for."""
        if not self.asked.usage:
            return DONE
        return self._event([], self._usage()) + DONE

    def stream(self, outputs: Sequence[str]) -> bytes:
        """A whole stream in one piece, for answers that came whole."""
        events = [self.first()]
        for index, output in enumerate(outputs):
            text, why = cut(output, self.asked.max_tokens)
            events += [self.piece(index, word) for word in words(text)]
            events.append(self.finish(index, why))
        return b"".join([*events, self.last()])

    def _usage(self) -> Usage:
        prompt = sum([tokens(prompt) for prompt in self.asked.prompts])
        return Usage(prompt, self._spent, prompt + self._spent)

    def _piece(self, index: int, said: Said, why: str | None) -> bytes:
        return self._event([ChatPiece(index, said, None, why)])

    def _event(self, choices: Sequence[Any], usage: Usage | None = None) -> bytes:
        kind = "chat.completion.chunk" if self.asked.chat else "text_completion"
        body = Body(self.id, kind, self.created, self.asked.model, choices, usage)
        return b"data: %b\n\n" % _encode(body)


def words(text: str) -> Iterator[str]:
    """A text in pieces that add up to it."""
    begin = 0
    for space in re.finditer(r"\s+", text):
        if space.start() > begin:
            yield text[begin : space.start()]
            begin = space.start()
    if begin < len(text):
        yield text[begin:]


def error_event(body: bytes) -> bytes:
    """The event by which a stream that has begun says that it ends without its answer."""
    return b"data: %b\n\n" % body


_encode = msgspec.json.Encoder().encode
