"""Public traces as a stream of rows: read, skipped with a reason, scaled, cut, and sent.

A user downloads a trace from its publisher; `trace_shapes` says which shapes are known and where
they come from. The shape is told by the first line, not by the file's name.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from math import isfinite
from random import Random
from typing import NamedTuple
from warnings import warn

from labkit.core.messages import Request
from labkit.core.units import S, from_seconds
from labkit.workload.mix import PLAIN, Mix, senders
from labkit.workload.trace_lines import MAX_LINE, Source, TraceError, lines, source_name
from labkit.workload.trace_shapes import EXPECTED, BadRow, Shape, shape_of, show


class TraceRow(NamedTuple):
    """One request of a trace: `at` in microseconds from the first row, lengths in tokens.

    `failed`: the request came but was not answered when the trace was taken; its lengths say
    nothing. `hash_ids`: the prompt's blocks, when they were asked for. `line` counts from 1.
    """

    at: int
    input_tokens: int
    output_tokens: int
    model: str | None = None
    failed: bool = False
    hash_ids: tuple[int, ...] | None = None
    line: int | None = None


class Skip(NamedTuple):
    """A line that gave no row, and why."""

    line: int
    reason: str


class TraceWarning(UserWarning):
    """Rows were skipped and nobody had asked to be told."""


class Skips:
    """Collects what was skipped: every line counted, the first `keep` remembered."""

    def __init__(self, keep: int = 20) -> None:
        self.keep = keep
        self.count = 0
        self.first: list[Skip] = []

    def __call__(self, skip: Skip) -> None:
        self.count += 1
        if len(self.first) < self.keep:
            self.first.append(skip)

    def __str__(self) -> str:
        told = "; ".join(f"line {skip.line}: {skip.reason}" for skip in self.first[:3])
        more = "; ..." if self.count > 3 else ""
        return f"{self.count:,} lines skipped ({told}{more})" if self.count else "no lines skipped"


def read_trace(
    source: Source,
    on_skip: Callable[[Skip], None] | None = None,
    *,
    hash_ids: bool = False,
) -> Iterator[TraceRow]:
    """The rows of a trace, streamed in constant memory from a path or an open text or binary file.

    The file is opened and its first usable row read at once, so that a missing file, an unknown
    header, broken gzip or a file without a usable row raises `TraceError` here. A line that gives
    no row (garbage, blank, or earlier than the row before it, since a stream cannot be sorted) is
    told to `on_skip`; without one, a `TraceWarning` sums them up at the end. Failed requests are
    kept and flagged: they did arrive.
    """
    name = source_name(source)
    rows = _rows(lines(source), name, on_skip, hash_ids)
    return chain([next(rows)], rows)


def scale(rows: Iterable[TraceRow], factor: float) -> Iterator[TraceRow]:
    """The same rows at `factor` times the rate: time is compressed, lengths stay."""
    if not (isfinite(factor) and 1e-9 <= factor <= 1e9):
        raise TraceError(f"scale {factor:g}: must be more than 0 and finite, such as 2 or 0.5")
    return (TraceRow(round(row.at / factor), *row[1:]) for row in rows)


def slice(
    rows: Iterable[TraceRow], start_s: float = 0.0, end_s: float | None = None
) -> Iterator[TraceRow]:
    """The rows of [start_s, end_s) in seconds, counted from the start of the slice."""
    if not (isfinite(start_s) and start_s >= 0):
        raise TraceError(f"start {start_s:g} s: must be 0 or more")
    if end_s is not None and not (isfinite(end_s) and end_s > start_s):
        raise TraceError(f"end {end_s:g} s: must be later than the start, {start_s:g} s")
    return _between(rows, from_seconds(start_s), None if end_s is None else from_seconds(end_s))


def trace_requests(
    rows: Iterable[TraceRow],
    mix: Mix = PLAIN,
    rng: Random | None = None,
    *,
    first_id: int = 0,
    text: Callable[[TraceRow], str] | None = None,
) -> Iterator[Request]:
    """One request for each row, at the row's instant, ready for a simulated or a live gateway.

    Tenant, tier, model and prompt come from the mix: public traces hold no text. `text` makes the
    prompt from the row instead, for instance one as long as the row says.
    """
    who = senders(mix, rng)
    for number, row, (tenant, prompt) in zip(count(first_id), rows, who, strict=False):
        said = prompt if text is None else text(row)
        yield Request(number, said, row.at, tenant.tier, tenant.name, mix.model)


def _rows(
    source: Iterator[str | None],
    name: str,
    on_skip: Callable[[Skip], None] | None,
    hash_ids: bool,
) -> Iterator[TraceRow]:
    """The rows, after a check that there is at least one."""
    skips = Skips()

    def skip(line: int, reason: str) -> None:
        skips(Skip(line, reason))
        if on_skip is not None:
            on_skip(Skip(line, reason))

    numbered = enumerate(source, 1)
    shape, begun = _shape(numbered, name, hash_ids, skip)
    last: TraceRow | None = None
    try:
        for last in _usable(chain(begun, numbered), shape, skip):
            yield last
    finally:
        if last is not None and skips.count and on_skip is None:
            warn(f"{name}: {skips}; pass on_skip to see each", TraceWarning, stacklevel=2)
    if last is None:
        raise TraceError(
            f"{name}: no usable row in this {shape.name} trace; {skips}; "
            "check that it is the trace itself and is complete"
        )


def _shape(
    numbered: Iterator[tuple[int, str | None]],
    name: str,
    hash_ids: bool,
    skip: Callable[[int, str], None],
) -> tuple[Shape, list[tuple[int, str | None]]]:
    """The shape of the trace, and its first line again if that is a row."""
    for number, line in numbered:
        if line is not None and not line.strip():
            skip(number, "blank")
            continue
        try:
            shape = None if line is None else shape_of(line, hash_ids)
        except BadRow:
            shape = None
        if line is not None and '"format"' in line and '"said"' in line:
            raise TraceError(
                f"{name}: is a run saved with --save-trace, not a trace of arrivals; replay it: "
                f"labkit replay {name}"
            )
        if shape is None:
            found = f"more than {MAX_LINE:,} characters" if line is None else show(line)
            raise TraceError(
                f"{name}: line {number} is {found}, which begins no trace known here; "
                f"expected {EXPECTED}"
            )
        return shape, [(number, line)] if shape.header is None else []
    raise TraceError(f"{name}: is empty; expected {EXPECTED}")


def _usable(
    numbered: Iterable[tuple[int, str | None]],
    shape: Shape,
    skip: Callable[[int, str], None],
) -> Iterator[TraceRow]:
    first = latest = kept = 0
    for number, line in numbered:
        if line is None:
            skip(number, f"longer than {MAX_LINE:,} characters")
            continue
        try:
            fields = shape.parse(line)
        except BadRow as reason:
            skip(number, _why(line, shape, reason))
            continue
        if not kept:
            first = latest = fields.instant
        if fields.instant < latest:
            early = (latest - fields.instant) / S
            skip(number, f"{early:.6f} s earlier than line {kept}: out of order")
            continue
        latest, kept = fields.instant, number
        yield TraceRow(fields.instant - first, *fields[1:], line=number)


def _why(line: str, shape: Shape, reason: BadRow) -> str:
    if not line.strip():
        return "blank"
    return "the header again" if line == shape.header else str(reason)


def _between(rows: Iterable[TraceRow], start: int, end: int | None) -> Iterator[TraceRow]:
    for row in rows:
        if end is not None and row.at >= end:
            return
        if row.at >= start:
            yield TraceRow(row.at - start, *row[1:])
