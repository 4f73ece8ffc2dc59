"""What a load test's picture shows: who was answered, when they were due, and how fast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from labkit.core.books import percentile
from labkit.core.units import MS, S

ANSWERED = 200
BROKEN = 0
NO_ANSWER = -1
"""In place of a status: nothing came back before the test ended."""

SLOTS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3_600, 21_600, 86_400)
MOST_SLOTS = 60

MEANINGS = {
    ANSWERED: "answered",
    BROKEN: "broken off",
    NO_ANSWER: "without a response",
    401: "unknown key",
    403: "not allowed",
    404: "not found",
    408: "too slow",
    409: "key in use",
    422: "cannot be done",
    429: "too many",
    503: "no room",
    504: "out of time",
}

Floats = NDArray[np.float64]


class Books(Protocol):
    """What a load test leaves behind; instants and durations in microseconds.

    One row a response: `at` (due), `took`, `status` (0: broken off). `unanswered`: when those
    without one were due. One row a stream: `first` and `first_at`, `step` and `step_at`.
    """

    @property
    def at(self) -> Sequence[int]:
        """When each request was due."""

    @property
    def took(self) -> Sequence[int]:
        """How long each took."""

    @property
    def status(self) -> Sequence[int]:
        """How each ended; 0: broken off."""

    @property
    def unanswered(self) -> Sequence[int]:
        """When those without a response were due."""

    @property
    def who(self) -> Sequence[int]:
        """The number of the key that each carried."""

    @property
    def labels(self) -> Sequence[str]:
        """What each key is called."""

    @property
    def first(self) -> Sequence[int]:
        """Until the first piece of each stream."""

    @property
    def first_at(self) -> Sequence[int]:
        """When each of those streams was due."""

    @property
    def step(self) -> Sequence[int]:
        """Between two pieces of a stream."""

    @property
    def step_at(self) -> Sequence[int]:
        """When the stream of each of those was due."""


@dataclass(frozen=True, slots=True)
class Times:
    """Durations (`ms`) beside the instants (`at`, seconds) at which their requests were due."""

    at: Floats
    ms: Floats

    @property
    def ordered(self) -> Floats:
        """The durations, ascending."""
        return np.sort(self.ms)

    def percentile(self, percent: float) -> float | None:
        """By nearest rank, as the books rank it; None when there are none."""
        return percentile(self.ordered.tolist(), percent)


@dataclass(frozen=True, slots=True)
class LoadShape:
    """One load test: due instants (seconds) by status, and the durations of the answered.

    `firsts` and `steps` are of streams: until the first piece, and between pieces. `by_key`: the
    answered of each key, where there are several.
    """

    due: Mapping[int, Floats]
    whole: Times
    firsts: Times
    steps: Times
    by_key: Mapping[str, Times] = field(default_factory=dict)

    @property
    def offered(self) -> int:
        """How many requests were sent."""
        return sum(map(len, self.due.values()))

    @property
    def span_s(self) -> float:
        """From the start to the last instant at which a request was due."""
        return max((float(at.max()) for at in self.due.values() if len(at)), default=0.0)

    @property
    def slot_s(self) -> float:
        """How many seconds are counted together where single requests would be too many."""
        fits = (slot for slot in SLOTS_S if self.span_s / slot <= MOST_SLOTS)
        return next(fits, SLOTS_S[-1])

    def words(self) -> str:
        """The picture in one sentence."""
        if not self.offered:
            return "A load test in which no request was due."
        good = len(self.whole.ms)
        who = "1 request" if self.offered == 1 else f"{self.offered:,} requests"
        said = f"{who} over {self.span_s:.3g} s: {good:,} answered"
        for status, at in self.due.items():
            if status != ANSWERED:
                said += f", {len(at):,} {meaning(status)}"
        if good:
            ordered = self.whole.ordered.tolist()
            marks = [f"P{p} {number(percentile(ordered, p) or 0)} ms" for p in (50, 95, 99)]
            said += f"; {', '.join(marks)}, slowest {number(ordered[-1])} ms"
        return said + "."


def load_shape(books: Books) -> LoadShape:
    """Read from the books of a load test, in the order in which the requests were due."""
    at, status = _seconds(books.at), np.asarray(books.status, np.int64)
    due = {int(one): np.sort(at[status == one]) for one in np.unique(status)}
    if len(books.unanswered):
        due[NO_ANSWER] = _seconds(books.unanswered)
    due = {one: due[one] for one in sorted(due, key=_order)}
    good = status == ANSWERED
    return LoadShape(
        due,
        Times(at[good], np.asarray(books.took, np.float64)[good] / MS),
        Times(_seconds(books.first_at), np.asarray(books.first, np.float64) / MS),
        Times(_seconds(books.step_at), np.asarray(books.step, np.float64) / MS),
        _by_key(books, at, good),
    )


def _by_key(books: Books, at: Floats, good: NDArray[np.bool_]) -> dict[str, Times]:
    """The answered of each key; nothing where all came with one."""
    labels = books.labels
    if len(labels) < 2:
        return {}
    who, took = np.asarray(books.who, np.int64), np.asarray(books.took, np.float64) / MS
    mine = [good & (who == number) for number in range(len(labels))]
    return {label: Times(at[one], took[one]) for label, one in zip(labels, mine, strict=True)}


def meaning(status: int) -> str:
    """What a status says, in two words."""
    return MEANINGS.get(status, "a fault" if status >= 500 else "refused")


def number(value: float) -> str:
    """Milliseconds as the picture writes them."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _seconds(instants: Sequence[int]) -> Floats:
    return np.asarray(instants, np.float64) / S


def _order(status: int) -> tuple[bool, bool, int]:
    """The answered first, whatever has no status last."""
    return status != ANSWERED, status in (BROKEN, NO_ANSWER), status
