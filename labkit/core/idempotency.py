"""One recorded outcome a key: a client's own retry neither pays nor computes twice."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from labkit.core.messages import Outcome
from labkit.core.units import S

KEEP_FOR = 24 * 3600 * S
"""Microseconds for which a finished key replays its outcome."""

MOST_KEYS = 1_000_000


class Key(NamedTuple):
    """Whose key it is, for what, and the client's own text; the same text elsewhere is another."""

    tenant: str
    scope: str
    text: str


class Standing(StrEnum):
    """What a request with a key finds."""

    NEW = "new"
    IN_FLIGHT = "in_flight"
    DONE = "done"
    OTHER_REQUEST = "other_request"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key's record; `status` and `body` once it is done, `since` in microseconds.

    `holder` is the request that computes it.
    """

    fingerprint: bytes
    holder: int
    since: int
    status: int | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Found:
    """What `begin` found: for `DONE` the outcome to replay, for `IN_FLIGHT` whom to wait for."""

    standing: Standing
    entry: Entry


KEPT = frozenset({Outcome.ANSWERED, Outcome.FAILED})
"""Outcomes that are recorded. A request that alone broke its workers is among them: clients retry
what looks temporary, and would break more. Every other outcome did no work and frees its key."""


class KeyLedger:
    """The index of keys in memory, told the time; a store may journal what it returns.

    A key is free, in flight, or done. Only done keys expire (after `keep_for` microseconds) or are
    dropped for room; a key in flight never is, and when nothing else is left a new key is refused.
    Waiters on a key in flight are counted: its work is cancelled only when none is left.
    """

    def __init__(self, keep_for: int = KEEP_FOR, most: int = MOST_KEYS) -> None:
        if keep_for <= 0 or most < 1:
            raise ValueError(f"keep_for {keep_for} us, most {most}: both must be more than 0")
        self.keep_for = keep_for
        self.most = most
        self._in_flight: dict[Key, Entry] = {}
        self._done: OrderedDict[Key, Entry] = OrderedDict()
        self._waiters: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._done)

    def __contains__(self, key: Key) -> bool:
        return key in self._in_flight or key in self._done

    def begin(self, key: Key, fingerprint: bytes, holder: int, now: int) -> Found | None:
        """Reserve a key or say what stands in the way; None when there is no room for one more.

        That it is another request is said before that it is in flight: waiting would not help.
        """
        self._forget_old(now)
        entry = self._in_flight.get(key) or self._done.get(key)
        if entry is None:
            if not self._make_room():
                return None
            entry = Entry(fingerprint, holder, now)
            self._in_flight[key], self._waiters[key] = entry, 1
            return Found(Standing.NEW, entry)
        if entry.fingerprint != fingerprint:
            return Found(Standing.OTHER_REQUEST, entry)
        if entry.status is not None:
            return Found(Standing.DONE, entry)
        self._waiters[key] += 1
        return Found(Standing.IN_FLIGHT, entry)

    def finish(
        self, key: Key, holder: int, outcome: Outcome, status: int, body: bytes, now: int
    ) -> Entry | None:
        """The holder's outcome: recorded and returned when it is kept, else the key is free.

        A late word from a holder that no longer holds the key changes nothing and returns None.
        """
        entry = self._in_flight.get(key)
        if entry is None or entry.holder != holder:
            return None
        del self._in_flight[key], self._waiters[key]
        if outcome not in KEPT:
            return None
        done = Entry(entry.fingerprint, holder, now, status, body)
        self._done[key] = done
        return done

    def leave(self, key: Key) -> bool:
        """One waiter less; True when nobody waits any more and the work may be cancelled."""
        waiters = self._waiters.get(key, 0)
        if waiters:
            self._waiters[key] = waiters - 1
        return waiters == 1

    def restore(self, entries: Iterable[tuple[Key, Entry]], now: int) -> None:
        """Take over what a journal kept: what was done replays, what was in flight is free.

        What is dated later than now, because a clock was set back, was done now at the latest.
        """
        for key, entry in sorted(entries, key=lambda pair: pair[1].since):
            if entry.status is not None:
                self._done[key] = replace(entry, since=min(entry.since, now))
        self._forget_old(now)
        while len(self) > self.most and self._done:
            self._done.popitem(last=False)

    def in_flight(self) -> int:
        """How many keys are being computed."""
        return len(self._in_flight)

    def _forget_old(self, now: int) -> None:
        while self._done:
            key = next(iter(self._done))
            if self._done[key].since + self.keep_for > now:
                return
            del self._done[key]

    def _make_room(self) -> bool:
        """Drop the oldest outcome if the store is full; never a key in flight."""
        if len(self) < self.most:
            return True
        if not self._done:
            return False
        self._done.popitem(last=False)
        return True
