"""When to come back: when the next boat leaves, the queue over its drain rate, and some chance."""

from collections.abc import Callable
from math import ceil

LEAST_S, MOST_S = 1, 60
"""Clients ignore a Retry-After of 0, and give up above two minutes."""

NOBODY_S = 5.0
"""What to say when nothing drains and nobody knows when it will."""

STALE_S = 5.0
MEMORY = 0.5
"""Weight of the past in the measured rate, one tick to the next."""


class DrainMeter:
    """Answers a second while more wait than one batch takes, from a count read now and then.

    Only then does the rate say what the GPUs can do; otherwise it says who came.
    """

    def __init__(self) -> None:
        self._rate: float | None = None
        self._rated_at = 0.0
        self._count = 0
        self._at: float | None = None
        self._was_busy = False

    def read(self, count: int, busy: bool, now: float) -> None:
        """The count as it stands at this second, and whether there is more than enough to do."""
        if self._at is not None and now > self._at and busy and self._was_busy:
            fresh = (count - self._count) / (now - self._at)
            past = fresh if self._rate is None else self._rate
            self._rate = MEMORY * past + (1 - MEMORY) * fresh
            self._rated_at = now
        self._count, self._at, self._was_busy = count, now, busy

    def rate(self, now: float) -> float | None:
        """What was measured, if that was lately."""
        return self._rate if now - self._rated_at <= STALE_S else None


def wait_for(
    first: float, depth: int, rate: float, longest: float, chance: Callable[[], float]
) -> float:
    """Seconds after which there should be room: until the first leaves, then depth over rate.

    Nobody stays in the queue for more than `longest` seconds, so it is clear by then. Spread over
    as long again, so that those who were refused together come back one by one.
    """
    clear = first + (min(depth / rate, longest) if rate > 0 else NOBODY_S)
    return min(clear * (1 + chance()), MOST_S)


def quota_headers(name: bytes, limit: int, seconds: float) -> bytes:
    """RateLimit headers of a queue of `limit` places in which none is free for so long."""
    whole = max(round(seconds), LEAST_S)
    return b'ratelimit-policy: "%b";q=%d\r\nratelimit: "%b";r=0;t=%d\r\n' % (
        name,
        limit,
        name,
        whole,
    )


def retry_headers(seconds: float) -> bytes:
    """Retry-After in whole seconds from 1 to 60, and the same finer for clients that read it."""
    whole = min(max(ceil(seconds), LEAST_S), MOST_S)
    fine = min(max(round(seconds * 1_000), 1), MOST_S * 1_000)
    return b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (whole, fine)
