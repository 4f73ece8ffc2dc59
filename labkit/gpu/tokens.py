"""Bytes as tokens: how a prompt enters its seat and how a line is read out of one.

A seat is a row of `COLUMNS` tokens: the subject, left aligned in `WINDOW` columns, then `GO`, then
the line, then `END`. The left alignment keeps each byte of the subject at one distance from its
copy in the line, which two layers learn in seconds. Standard library only.
"""

from collections.abc import Sequence

from labkit.gpu.grammar import LINE_BYTES, SUBJECT_BYTES, subject_of

PAD = 256
GO = 257
END = 258
VOCABULARY = 259

WINDOW = SUBJECT_BYTES
FIRST = WINDOW + 1
"""The column of the first byte of the line."""

COLUMNS = FIRST + LINE_BYTES + 1
"""Subject, GO, the longest line, END."""

POSITIONS = COLUMNS - 1
"""Columns that are read; the last one is only written."""

FULL_STEPS = WINDOW + LINE_BYTES
"""Steps that feed a window and write the longest line."""


def encode(prompt: str) -> list[int]:
    """The first `FIRST` tokens of the seat of this prompt."""
    subject = subject_of(prompt).encode()
    return [*subject, *[PAD] * (WINDOW - len(subject)), GO]


def lesson(subject: str, line: str) -> list[int]:
    """A full seat to learn from: the subject, then its line, then END to the last column."""
    seat = encode(subject) + list(line.encode())
    return seat + [END] * (COLUMNS - len(seat))


def decode(tokens: Sequence[int]) -> str:
    """The text of the tokens that a seat wrote, up to END.

    Text that was cut short of END keeps whole words only, if it has any. Bytes that are no
    character read as U+FFFD.
    """
    ended = next((i for i, token in enumerate(tokens) if token >= PAD), None)
    written = bytes(tokens[:ended])
    if ended is None and len(written) < LINE_BYTES:
        written = written.rpartition(b" ")[0] or written
    text = written.decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
