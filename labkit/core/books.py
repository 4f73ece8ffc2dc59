"""The books of one run: what became of every request, and how long it took."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil
from operator import mul, sub
from typing import Any

from labkit.core.messages import Answer, Command, Depart, End, Outcome
from labkit.core.units import MS, S

PERCENTILES = (50, 95, 99)


def percentile(ordered: Sequence[int], percent: float) -> int | None:
    """The nearest-rank percentile of an ascending sequence; None when it is empty."""
    if not ordered:
        return None
    return ordered[_rank(percent, len(ordered)) - 1]


def _rank(percent: float, count: int) -> int:
    """Counted from 1. Multiplied first: 55 / 100 * 100 is a little more than 55."""
    return max(ceil(percent * count / 100), 1)


def summary(values: Iterable[int]) -> dict[str, float | None]:
    """Mean, percentiles and maximum in milliseconds of durations in microseconds."""
    return summary_of(Counter(values))


def summary_of(tally: Mapping[int, int]) -> dict[str, float | None]:
    """The same of durations already counted: `tally[duration]` is how often it occurred.

    Counting comes first because whole microseconds repeat: it is twice as quick as sorting all.
    """
    ordered = sorted(tally)
    if not ordered:
        return dict.fromkeys(("mean", *(f"p{p}" for p in PERCENTILES), "max"))
    upto = list(accumulate(map(tally.__getitem__, ordered)))
    total = sum(map(mul, ordered, map(tally.__getitem__, ordered)))
    shown: dict[str, float | None] = {"mean": round(total / upto[-1] / MS, 4)}
    for percent in PERCENTILES:
        rank = _rank(percent, upto[-1])
        shown[f"p{percent}"] = ordered[bisect_left(upto, rank)] / MS
    shown["max"] = ordered[-1] / MS
    return shown


class Books:
    """Reads the commands a shell obeys and adds them up.

    Latency runs from arrival to answer, wait from arrival to the last departure; both count only
    requests that arrived at `warm_up` or later. Batches that were lost with their GPU count among
    `batches` and in `mean_batch`.
    """

    def __init__(self, warm_up: int = 0) -> None:
        self.warm_up = warm_up
        self.outcomes: Counter[Outcome] = Counter()
        self.rejected_by: Counter[str] = Counter()
        self.batches = 0
        self.aboard = 0
        self.busy = 0
        self._departed: dict[int, tuple[int, int]] = {}
        # Answers are on the hot path: what can be worked out afterwards is worked out afterwards.
        self._arrived: list[int] = []
        self._trips: list[tuple[int, int, int]] = []

    @property
    def waits(self) -> list[int]:
        """Microseconds from arrival to the last departure, one for each answer."""
        return list(self._since_arrival(0))

    @property
    def latencies(self) -> list[int]:
        """Microseconds from arrival to answer, one for each answer."""
        return list(self._since_arrival(1))

    def _since_arrival(self, end: int) -> Iterator[int]:
        ends: list[int] = []
        for trip in self._trips:
            ends += [trip[end]] * trip[2]
        return map(sub, ends, self._arrived)

    def note(self, command: Command, now: int) -> None:
        """Enter one command at the instant it was obeyed."""
        if isinstance(command, Answer):
            self._answered(command, now)
        elif isinstance(command, Depart):
            self.batches += 1
            self.aboard += len(command.rows)
            self._departed[command.batch_id] = (now, len(command.gpus))
        elif isinstance(command, End):
            self.outcomes[command.outcome] += 1
            if command.outcome is Outcome.REJECTED:
                self.rejected_by[command.detail] += 1

    def returned(self, batch_id: int, now: int) -> None:
        """A batch no longer occupies its GPUs: it finished, or was lost with them."""
        departed = self._departed.get(batch_id)
        if departed is not None:
            self.busy += (now - departed[0]) * departed[1]

    def _answered(self, answer: Answer, now: int) -> None:
        self.outcomes[Outcome.ANSWERED] += len(answer.rows)
        departed_at, _ = self._departed.pop(answer.batch_id)
        arrived = [row.arrived_at for row in answer.rows]
        if self.warm_up:
            arrived = [at for at in arrived if at >= self.warm_up]
        self._arrived += arrived
        self._trips.append((departed_at, now, len(arrived)))

    def _tallies(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """How often each wait and each latency occurred."""
        waits = Counter(self._since_arrival(0))
        times = {back - departed for departed, back, _ in self._trips}
        if len(times) == 1:
            time = times.pop()
            return waits, {wait + time: count for wait, count in waits.items()}
        return waits, Counter(self._since_arrival(1))

    def report(self, gpus: int, horizon: int, wall_s: float) -> dict[str, Any]:
        """The stable keys of `labkit sim --json` and `labkit live --json`.

        `gpus` times `horizon` (microseconds) is the GPU time there was.
        """
        waits, latencies = self._tallies()
        return {
            "requests": self.outcomes.total(),
            **{outcome.value: self.outcomes[outcome] for outcome in Outcome},
            "rejected_by": dict(sorted(self.rejected_by.items())),
            "latency_ms": summary_of(latencies),
            "wait_ms": summary_of(waits),
            "mean_batch": round(self.aboard / self.batches, 4) if self.batches else None,
            "batches": self.batches,
            "utilization": round(self.busy / (gpus * horizon), 6) if gpus * horizon else None,
            "horizon_s": horizon / S,
            "wall_s": round(wall_s, 3),
        }
