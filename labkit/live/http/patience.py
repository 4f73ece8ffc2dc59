"""When to come back: when the next boat leaves, the queue over its drain rate, and some chance."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from labkit.core.settings import Settings
from labkit.core.units import NEVER, S
from labkit.live.desk import DeskEngine

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


class Timetable:
    """Tells whoever is refused when to come back, from what waits, drains and leaves now.

    `places[model][tier]`: how many may wait before one more of a tier is refused. `chance()` is
    from 0 to 1.
    """

    def __init__(
        self,
        settings: Settings,
        engine: DeskEngine,
        places: Mapping[str, Sequence[int]],
        chance: Callable[[], float],
    ) -> None:
        self.chance = chance
        self.drain = {model: DrainMeter() for model in settings.models}
        self._own = {model: settings.of(model) for model in settings.models}
        self._longest = [tier.timeout / S for tier in settings.tiers]
        self._engine = engine
        self._places = places

    def read(self, now: float) -> None:
        """Measure the drain rates."""
        returned, gateway = self._engine.shell.returned, self._engine.gateway
        for model, meter in self.drain.items():
            busy = gateway.depth(model) >= self._own[model].max_batch
            meter.read(returned[model], busy, now)

    def headers(self, code: str, model: str, tier: int) -> bytes:
        """Header lines for one whose call for this model was refused with this code.

        A queue that is full also says how many may wait in it, in all or of the call's tier.
        """
        busy = self._own[model].batch_time / S if code == "idempotency_in_flight" else 0.0
        seconds = self.seconds(model, tier, busy)
        extra = retry_headers(seconds)
        if code == "queue_full":
            extra += quota_headers(b"queue", max(self._places[model]), seconds)
        elif code == "tier_quota":
            extra += quota_headers(b"tier", self._places[model][tier], seconds)
        return extra

    def longest(self) -> bytes:
        """Header lines for one of whom nobody knows what for: the longest of all waits."""
        tiers = range(len(self._longest))
        return retry_headers(
            max(self.seconds(model, tier) for model in self._own for tier in tiers)
        )

    def seconds(self, model: str, tier: int, busy: float = 0.0) -> float:
        """Seconds after which this model should have room, once it was `busy` for some."""
        gateway, own = self._engine.gateway, self._own[model]
        gpus, on_gpu = gateway.gpus(model), self._engine.shell.on_gpu
        rate = self.drain[model].rate(self._engine.loop.time()) or self.nominal(model)
        aboard = sum(len(on_gpu[gpu].rows) for gpu in gpus if gpu in on_gpu)
        # What is due may be another model's, or the end of somebody's patience.
        due = 0 if gateway.due_at == NEVER else gateway.due_at - self._engine.shell.time()
        first = max(min(due, max(own.max_wait, own.batch_time)), 0) / S
        return wait_for(
            busy + first,
            max(gateway.depth(model) + aboard, 1),
            rate,
            self._longest[tier],
            self.chance,
        )

    def nominal(self, model: str) -> float:
        """Answers a second that this model's GPUs in service could give."""
        own = self._own[model]
        return len(self._engine.gateway.gpus(model)) * own.max_batch * S / own.batch_time


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
