"""Exact summaries of how long requests took, without looking at every one.

The requests of a batch end together, so inside a batch durations descend as arrivals ascend: how
many are at most `w` is one bisection a batch. A sample tells roughly where each percentile lies,
a count proves it, and only what lies close to it is sorted.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, islice
from math import ceil, sqrt
from operator import sub
from typing import NamedTuple

from labkit.core.books import PERCENTILES, summary_of
from labkit.core.units import MS, NEVER

FEW = 24
"""With fewer requests a batch than this, counting every one is quicker."""

STRIDE = 16
"""One request in so many is sampled, and from one batch to the next another one."""


class Group(NamedTuple):
    """Requests `first` up to, not including, `last`, which ended together at `end`."""

    end: int
    first: int
    last: int


class Durations(NamedTuple):
    """The sum, the number, the percentiles and the longest of some durations, in microseconds."""

    total: int
    number: int
    ranked: tuple[int, ...]
    longest: int

    def shown(self, longer: int = 0) -> dict[str, float | None]:
        """As `core.books.summary` in milliseconds, were each `longer` by so many microseconds."""
        if not self.number:
            return summary_of({})
        mean = (self.total + longer * self.number) / self.number / MS
        return {
            "mean": round(mean, 4),
            **{f"p{p}": (us + longer) / MS for p, us in zip(PERCENTILES, self.ranked, strict=True)},
            "max": (self.longest + longer) / MS,
        }


def durations(instants: Sequence[int], groups: Sequence[Group]) -> Durations:
    """All `group.end - instants[i]` of groups that follow each other without gaps."""
    if not groups:
        return Durations(0, 0, (), 0)
    number = groups[-1].last - groups[0].first
    ranks = [max(ceil(percent * number / 100), 1) for percent in PERCENTILES]
    ranked = None
    if number >= FEW * len(groups) and len(groups) >= STRIDE:
        ranked = _from_sample(instants, groups, ranks)
    if ranked is None:
        ranked = _from_count(instants, groups, ranks)
    begin, stop = groups[0].first, groups[-1].last
    whole = number == len(instants)
    arrived = sum(instants if whole else islice(instants, begin, stop))
    ended = sum([end * (last - first) for end, first, last in groups])
    longest = max([end - instants[first] for end, first, _ in groups])
    return Durations(ended - arrived, number, ranked, longest)


def _from_count(
    instants: Sequence[int], groups: Sequence[Group], ranks: Sequence[int]
) -> tuple[int, ...]:
    """The durations of these ranks, by counting every duration."""
    ends: list[int] = []
    for end, first, last in groups:
        ends += [end] * (last - first)
    begin, stop = groups[0].first, groups[-1].last
    tally = Counter(map(sub, ends, islice(instants, begin, stop)))
    ordered = sorted(tally)
    upto = list(accumulate(map(tally.__getitem__, ordered)))
    return tuple(ordered[bisect_left(upto, rank)] for rank in ranks)


def _from_sample(
    instants: Sequence[int], groups: Sequence[Group], ranks: Sequence[int]
) -> tuple[int, ...] | None:
    """The same by looking where a sample says they are; None if it was wrong about one."""
    sample = sorted(
        [
            end - at
            for i, (end, first, last) in enumerate(groups)
            for at in instants[first + i % STRIDE : last : STRIDE]
        ]
    )
    number = groups[-1].last - groups[0].first
    # Every batch is in the sample in proportion, so that hardly more than its edges err.
    margin = 0.25 / sqrt(len(groups))
    found: list[int] = []
    for rank in ranks:
        share = rank / number
        value = _between(instants, groups, rank, *_bounds(sample, share - margin, share + margin))
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def _bounds(sample: Sequence[int], low: float, high: float) -> tuple[int, int]:
    """The durations at these shares of the sample; beyond its ends, what nothing is beyond."""
    top = len(sample) - 1
    return (
        sample[int(low * top)] - 1 if low > 0 else -1,
        sample[ceil(high * top)] if high < 1 else NEVER,
    )


def _between(
    instants: Sequence[int], groups: Sequence[Group], rank: int, low: int, high: int
) -> int | None:
    """The duration of this rank, if it is more than `low` and at most `high`."""
    between: list[int] = []
    below = 0
    for end, first, last in groups:
        stop = bisect_left(instants, end - low, first, last)
        below += last - stop
        earliest = end - high
        while stop > first and instants[stop - 1] >= earliest:
            stop -= 1
            between.append(end - instants[stop])
    if not below < rank <= below + len(between):
        return None
    between.sort()
    return between[rank - below - 1]
