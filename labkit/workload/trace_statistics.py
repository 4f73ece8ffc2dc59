"""What a trace is like: its rate, how bursty it is, and how long its requests are."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import Any

from labkit.core.units import S, to_seconds
from labkit.workload.traces import TraceRow


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean and nearest-rank percentiles of a length, in tokens; None without any row."""

    mean: float | None
    p50: int | None
    p95: int | None
    p99: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Figures of one trace; None where the rows are too few to say.

    `rate`: gaps a second, (rows - 1) / span. `gap_cv`: standard deviation of the gaps over their
    mean. `peak_to_mean`: the fullest second, in bins from the first row, over `rate`. Lengths leave
    failed rows out.
    """

    rows: int
    failed: int
    span_s: float
    rate: float | None
    gap_cv: float | None
    peak_to_mean: float | None
    input_tokens: Lengths
    output_tokens: Lengths

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def statistics(rows: Iterable[TraceRow]) -> TraceStatistics:
    """The figures of a trace in one pass; memory grows with different lengths, not with rows."""
    inputs: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    seen = failed = squares = peak = filled = second = begin = latest = 0
    for row in rows:
        if not seen:
            begin = latest = row.at
        seen += 1
        squares += (row.at - latest) ** 2
        latest = row.at
        bin_ = (row.at - begin) // S
        filled = filled + 1 if bin_ == second else 1
        second = bin_
        peak = max(peak, filled)
        failed += row.failed
        if not row.failed:
            inputs[row.input_tokens] += 1
            outputs[row.output_tokens] += 1
    span = latest - begin
    rate = (seen - 1) * S / span if span else None
    return TraceStatistics(
        rows=seen,
        failed=failed,
        span_s=to_seconds(span),
        rate=rate,
        gap_cv=_cv(span, squares, seen - 1) if span else None,
        peak_to_mean=peak / rate if rate else None,
        input_tokens=_lengths(inputs),
        output_tokens=_lengths(outputs),
    )


def _cv(total: int, squares: int, count: int) -> float:
    """Of `count` values with this sum and sum of squares; exact until the last division."""
    return sqrt(max(squares * count - total * total, 0)) / total


def _lengths(found: Counter[int]) -> Lengths:
    count = found.total()
    if not count:
        return Lengths(None, None, None, None, None)
    ordered = sorted(found.items())
    ranks = {percent: max(ceil(percent * count / 100), 1) for percent in (50, 95, 99)}
    values: dict[int, int] = {}
    below = 0
    for value, times in ordered:
        below += times
        for percent, rank in ranks.items():
            if percent not in values and below >= rank:
                values[percent] = value
    mean = sum(value * times for value, times in ordered) / count
    return Lengths(mean, values[50], values[95], values[99], ordered[-1][0])
