"""When to come back: how deep the queue is, over how fast it drains, and a little chance."""

from collections.abc import Callable
from math import ceil

LEAST_S, MOST_S = 1, 60
"""Clients ignore a Retry-After of 0, and give up above two minutes."""

NOBODY_S = 5.0
"""What to say when nothing drains and nobody knows when it will."""

MEMORY = 0.5
"""Weight of the past in the measured rate, one tick to the next."""


class DrainMeter:
    """Answers a second, from a count read now and then."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._count = 0
        self._at: float | None = None

    def read(self, count: int, now: float) -> None:
        """The count as it stands at this second."""
        if self._at is not None and now > self._at:
            fresh = (count - self._count) / (now - self._at)
            self.rate = MEMORY * self.rate + (1 - MEMORY) * fresh
        self._count, self._at = count, now


def wait_for(depth: int, rate: float, chance: Callable[[], float]) -> float:
    """Seconds after which there should be room; spread over as long again, so that those who were
    refused together do not come back together.
    """
    clear = depth / rate if rate > 0 else NOBODY_S
    return min(clear * (1 + chance()), MOST_S)


def retry_headers(seconds: float) -> bytes:
    """Retry-After in whole seconds from 1 to 60, and the same finer for clients that read it."""
    whole = min(max(ceil(seconds), LEAST_S), MOST_S)
    fine = min(max(round(seconds * 1_000), 1), MOST_S * 1_000)
    return b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (whole, fine)
