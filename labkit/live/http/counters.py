"""What is counted at the door, as plain integers that cost next to nothing to write."""

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram, in seconds; 0.5 is the objective."""


class Histogram:
    """How long calls took, from the last byte of the request; seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        """Enter one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class Counters:
    """The books of the door: a response counts once, by route and status, and a call by outcome.

    `answer` and `first_piece` are by tier and model.
    """

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, int]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.answer: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self.first_piece: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self.in_flight = 0
        self.streams_broken = 0
        self.replays = 0
        self.retries = 0
        self.unknown_keys = 0
