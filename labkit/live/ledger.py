"""The journal of keyed outcomes: written in groups by the ferry rule, read back after a crash.

SQLite in WAL mode with `synchronous=NORMAL`: what was stored survives the death of the process,
`kill -9` included, because the operating system has it. A power cut may take the last groups with
it, though never half of one. The index in memory (`labkit.core.idempotency`) is the truth while the
process lives; nothing is ever looked up here but once, at the start. What was in flight when the
process died was never written, and so its key is free.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from labkit.core.batching import FerryRule
from labkit.core.door import Commit
from labkit.core.idempotency import KEEP_FOR, MOST_KEYS, Entry, Key
from labkit.core.units import MS, NEVER, S
from labkit.live.ledger_file import connect, trouble

GROUP_ROWS = 256
GROUP_WAIT = 3 * MS
PRUNED_AT_ONCE = 2 * GROUP_ROWS
"""Old rows taken out with every group: more than come in, and never enough to be felt."""

Stored = Callable[[Sequence[Commit], Exception | None], None]
"""Is told of each group once it is durable, or why it is not; on a thread of the journal's own."""


class Journal(Protocol):
    """Where keyed outcomes are kept beyond the life of a process."""

    def open(self, clock: Callable[[], int], stored: Stored) -> list[tuple[Key, Entry]]:
        """Everything kept, for `KeyLedger.restore`; instants by `clock`, in microseconds."""

    def append(self, commit: Commit, now: int) -> None:
        """Keep this outcome and say so by `stored`; returns at once."""

    def close(self) -> None:
        """Write what is left and let go of everything; `stored` is told of all of it before."""


class MemoryJournal:
    """Keeps nothing, and says at once that it has: keys last as long as the process."""

    def open(self, clock: Callable[[], int], stored: Stored) -> list[tuple[Key, Entry]]:
        """Nothing was kept."""
        self._stored = stored
        return []

    def append(self, commit: Commit, now: int) -> None:
        """As durable as it will ever be; `stored` is called before this returns."""
        self._stored((commit,), None)

    def close(self) -> None:
        """There is nothing to let go of."""


class Group:
    """Outcomes that wait to be written together: a bank like any other, told the time."""

    def __init__(self, rule: FerryRule) -> None:
        self.rule = rule
        self.depth = 0
        self.oldest_at = NEVER
        self._waiting: deque[tuple[int, Commit]] = deque()

    @property
    def due_at(self) -> int:
        """When the next group leaves; `NEVER` when nobody waits."""
        return self.rule.due_at(self)

    def add(self, commit: Commit, now: int) -> None:
        """One more."""
        self._waiting.append((now, commit))
        self._look()

    def take(self) -> list[Commit]:
        """The next group, first come first served."""
        seats = min(self.rule.max_batch, len(self._waiting))
        taken = [self._waiting.popleft()[1] for _ in range(seats)]
        self._look()
        return taken

    def _look(self) -> None:
        self.depth = len(self._waiting)
        self.oldest_at = self._waiting[0][0] if self._waiting else NEVER


class SqliteJournal:
    """One file, one writer thread, groups of 256 rows or 3 ms; one process at a time.

    Rows are bounded by age (`keep_for` microseconds) and number (`most`): with every group the
    oldest go, and SQLite uses their pages again, so the file stops growing and is never rewritten.
    Instants are kept by the wall clock and told by the caller's.
    """

    def __init__(
        self,
        path: str | Path,
        keep_for: int = KEEP_FOR,
        most: int = MOST_KEYS,
        rule: FerryRule | None = None,
        wall: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.path = Path(path)
        self.keep_for = keep_for
        self.most = most
        self.groups = 0
        self._wall = wall
        self._group = Group(rule or FerryRule(GROUP_ROWS, GROUP_WAIT))
        self._ready = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    # -- life -------------------------------------------------------------------------------------

    def open(self, clock: Callable[[], int], stored: Stored) -> list[tuple[Key, Entry]]:
        """Read what was kept, then start to write.

        Raises `LiveError` when the file is another's, in use, damaged, or cannot be made.
        """
        self._clock, self._stored, self._closing = clock, stored, False
        self._ahead = self._wall() - clock()
        self._db = self._connect()
        try:
            kept = list(self._kept())
        except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
            # The last three: rows that SQLite can read and this lab never wrote.
            self._db.close()
            raise trouble(self.path, error) from error
        self._thread = threading.Thread(target=self._write_on, name="labkit-ledger", daemon=True)
        self._thread.start()
        return kept

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path)

    def _kept(self) -> Iterator[tuple[Key, Entry]]:
        rows = self._db.execute(
            "SELECT tenant, scope, text, fingerprint, status, body, since FROM outcomes "
            "WHERE since > ? ORDER BY id",
            (self._wall() - self.keep_for,),
        )
        for *words, fingerprint, status, body, since in rows:
            key = Key(*(word.decode("utf-8", "surrogatepass") for word in words))
            yield key, Entry(fingerprint, 0, since - self._ahead, status, body)

    def append(self, commit: Commit, now: int) -> None:
        """Hand it to the writer; it is woken by the first of a group and by a full one."""
        with self._ready:
            self._group.add(commit, now)
            if self._group.depth in (1, self._group.rule.max_batch):
                self._ready.notify()

    def close(self) -> None:
        """Write what is left, then let go of the file; harmless when it was never opened."""
        if self._thread is None:
            return
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join()
        self._thread = None
        self._db.close()

    # -- the writer's thread ----------------------------------------------------------------------

    def _write_on(self) -> None:
        while group := self._next_group():
            try:
                self._write(group)
            except Exception as error:
                if len(group) == 1:
                    self._stored(group, error)
                else:
                    self._write_apart(group)
            else:
                self._stored(group, None)

    def _write_apart(self, group: Sequence[Commit]) -> None:
        """One that cannot be written costs the others nothing but their company."""
        good: list[Commit] = []
        for commit in group:
            try:
                self._write((commit,))
            except Exception as error:
                self._stored((commit,), error)
            else:
                good.append(commit)
        if good:
            self._stored(good, None)

    def _next_group(self) -> list[Commit]:
        """Wait until one is due; empty when the journal closes and nothing is left."""
        with self._ready:
            while not self._closing:
                rest = self._group.due_at - self._clock()
                if rest <= 0:
                    break
                self._ready.wait(None if self._group.due_at == NEVER else rest / S)
            return self._group.take()

    def _write(self, group: Sequence[Commit]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            cursor = self._db.executemany(
                "INSERT OR REPLACE INTO outcomes "
                "(tenant, scope, text, fingerprint, status, body, since) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [self._row(commit) for commit in group],
            )
            self._prune(cursor)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self.groups += 1

    def _row(self, commit: Commit) -> tuple[object, ...]:
        words = [word.encode("utf-8", "surrogatepass") for word in commit.key]
        entry = commit.entry
        # Dated by whichever clock is ahead: one that was set, or a laptop that slept, must not
        # make an outcome old on the day it is written.
        since = entry.since + max(self._ahead, self._wall() - self._clock())
        return (*words, entry.fingerprint, entry.status, entry.body, since)

    def _prune(self, cursor: sqlite3.Cursor) -> None:
        """Ids only grow, so at most `most` rows are left above the newest id less `most`.

        Old is what both clocks call old.
        """
        now = min(self._wall(), self._clock() + self._ahead)
        cursor.execute(
            "DELETE FROM outcomes WHERE id IN "
            "(SELECT id FROM outcomes WHERE since <= ? ORDER BY since LIMIT ?)",
            (now - self.keep_for, PRUNED_AT_ONCE),
        )
        cursor.execute(
            "DELETE FROM outcomes WHERE id <= (SELECT max(id) FROM outcomes) - ?", (self.most,)
        )
