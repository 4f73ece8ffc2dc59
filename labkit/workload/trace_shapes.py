"""The shapes of public traces: which one a first line announces, and what a row of it says.

- Azure LLM inference, 2023 and 2024 (github.com/Azure/AzurePublicDataset, CC-BY 4.0):
  `TIMESTAMP,ContextTokens,GeneratedTokens`; times with up to nine digits after the point, with or
  without an offset from UTC, mixed in one file.
- BurstGPT (github.com/HPMLL/BurstGPT, CC-BY 4.0): seconds; columns are found by name, because
  later releases put new ones between the old. A row without answer tokens is a request that failed
  when the trace was taken.
- Mooncake (github.com/kvcache-ai/Mooncake, Apache-2.0): JSON lines with milliseconds, lengths, and
  the ids of the 512-token blocks of the prompt.
"""

import csv
import json
import re
from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final, NamedTuple

from labkit.core.units import MS, S

EXPECTED: Final = (
    "TIMESTAMP,ContextTokens,GeneratedTokens (Azure), "
    "Timestamp,...,Request tokens,Response tokens,... (BurstGPT) or "
    '{"timestamp": ..., "input_length": ..., "output_length": ...} (Mooncake)'
)
MOST_TOKENS_DIGITS: Final = 9

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?"
    r"(?:Z|([+-])([01]\d|2[0-3]):?([0-5]\d))?",
    re.ASCII,
)
_SECONDS = re.compile(r"(\d{1,12})(?:\.(\d{1,12}))?", re.ASCII)


class BadRow(ValueError):
    """A row that says nothing usable, and why."""


class Fields(NamedTuple):
    """What one row says; `instant` in microseconds on the trace's own clock."""

    instant: int
    input_tokens: int
    output_tokens: int
    model: str | None = None
    failed: bool = False
    hash_ids: tuple[int, ...] | None = None


Parse = Callable[[str], Fields]


class Shape(NamedTuple):
    """One kind of trace; `header` is its first line, None when that is already a row."""

    name: str
    parse: Parse
    header: str | None


def shape_of(first: str, hash_ids: bool = False) -> Shape | None:
    """The shape that a first line announces; None when it is none that is known."""
    if first.lstrip().startswith("{"):
        return Shape("Mooncake", lambda line: _mooncake(line, hash_ids), None)
    names = ["".join(name.lower().split()).replace("_", "") for name in _columns(first)]
    if {"timestamp", "contexttokens", "generatedtokens"} <= set(names):
        azure = [names.index(name) for name in ("timestamp", "contexttokens", "generatedtokens")]
        return Shape("Azure", _Azure(len(names), azure), first)
    if {"timestamp", "requesttokens", "responsetokens"} <= set(names):
        burst = [names.index(name) for name in ("timestamp", "requesttokens", "responsetokens")]
        model = names.index("model") if "model" in names else None
        return Shape("BurstGPT", _BurstGPT(len(names), burst, model), first)
    return None


class _Azure:
    def __init__(self, width: int, places: Sequence[int]) -> None:
        self.width = width
        self.at, self.input, self.output = places

    def __call__(self, line: str) -> Fields:
        row = _row(line, self.width)
        return Fields(
            _stamp(row[self.at]),
            _tokens("ContextTokens", row[self.input]),
            _tokens("GeneratedTokens", row[self.output]),
        )


class _BurstGPT:
    def __init__(self, width: int, places: Sequence[int], model: int | None) -> None:
        self.width = width
        self.at, self.input, self.output = places
        self.model = model

    def __call__(self, line: str) -> Fields:
        row = _row(line, self.width)
        answer = _tokens("Response tokens", row[self.output])
        return Fields(
            _seconds(row[self.at]),
            _tokens("Request tokens", row[self.input]),
            answer,
            row[self.model].strip() if self.model is not None else None,
            answer == 0,
        )


def _mooncake(line: str, keep: bool) -> Fields:
    try:
        row: Any = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not a JSON object ({error})") from None
    if not isinstance(row, dict):
        raise BadRow(f"a JSON {type(row).__name__}, not an object")
    for name in ("timestamp", "input_length", "output_length"):
        if name not in row:
            raise BadRow(f"no field {name!r}")
    at = row["timestamp"]
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e15:
        raise BadRow(f"timestamp {show(at)} is not a number of milliseconds")
    return Fields(
        round(at * MS),
        _tokens("input_length", json.dumps(row["input_length"])),
        _tokens("output_length", json.dumps(row["output_length"])),
        hash_ids=_hash_ids(row.get("hash_ids")) if keep else None,
    )


def _hash_ids(ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise BadRow(f"hash_ids {show(ids)} is not a list of whole numbers")
    return tuple(ids)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _columns(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise BadRow(f"not a row of CSV ({error})") from None


def _row(line: str, width: int) -> list[str]:
    row = _columns(line)
    if len(row) != width:
        raise BadRow(f"{len(row)} fields where the header has {width}")
    return row


def _stamp(text: str) -> int:
    found = _STAMP.fullmatch(text.strip())
    if found is None:
        raise BadRow(f"time {show(text)} is not like 2023-11-16 18:15:46.680590")
    day, hour, minute, second, fraction, sign, ahead_h, ahead_m = found.groups()
    clock = (int(hour) * 60 + int(minute)) * 60 + int(second)
    if sign:
        ahead = (int(ahead_h) * 60 + int(ahead_m)) * 60
        clock += ahead if sign == "-" else -ahead
    return (_day(day) * 86_400 + clock) * S + _fraction(fraction)


@lru_cache(maxsize=64)
def _day(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal()
    except ValueError as error:
        raise BadRow(f"date {text!r}: {error}") from None


def _seconds(text: str) -> int:
    found = _SECONDS.fullmatch(text.strip())
    if found is None:
        raise BadRow(f"time {show(text)} is not a number of seconds")
    return int(found[1]) * S + _fraction(found[2])


def _fraction(digits: str | None) -> int:
    """The digits after the point as the nearest whole microsecond."""
    if not digits:
        return 0
    return (int(digits[:9].ljust(9, "0")) + 500) // 1000


def _tokens(name: str, text: str) -> int:
    text = text.strip().removesuffix(".0")
    if not (text.isascii() and text.isdecimal()):
        raise BadRow(f"{name} {show(text)} is not a whole number, 0 or more")
    if len(text) > MOST_TOKENS_DIGITS:
        raise BadRow(f"{name} {show(text)} is more tokens than any model takes")
    return int(text)


def show(value: object) -> str:
    """A value in a message: escaped, and cut to a length one can read."""
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:36]}... ({len(text):,} characters)"
