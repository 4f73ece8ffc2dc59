"""Deadlines that the order of arrival does not tell: of requests, and of batches on their GPUs."""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from labkit.core.units import NEVER

SLACK = 64
"""Dead entries the heap may hold before it is compacted."""


class Deadlines:
    """A heap of (instant, request id); an entry of somebody who has left is dropped lazily.

    `waits(request_id)` says who still waits; entries are ids, so none holds a prompt.
    """

    def __init__(self, waits: Callable[[int], bool]) -> None:
        self._waits = waits
        self._heap: list[tuple[int, int]] = []
        self._compact_at = SLACK

    def watch(self, request_id: int, expires_at: int) -> None:
        """Note when this request expires, unless it never does."""
        if expires_at < NEVER:
            heappush(self._heap, (expires_at, request_id))
            if len(self._heap) > self._compact_at:
                # A set: whoever came back more than once is watched more than once.
                self._heap = list({entry for entry in self._heap if self._waits(entry[1])})
                heapify(self._heap)
                self._compact_at = 2 * len(self._heap) + SLACK

    def next(self) -> int:
        """The first instant at which somebody who still waits expires; `NEVER` if none."""
        while self._heap and not self._waits(self._heap[0][1]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def expired(self, now: int) -> list[int]:
        """The ids whose time is up, and who still wait."""
        gone = []
        while self.next() <= now:
            gone.append(heappop(self._heap)[1])
        return gone


class Overdue:
    """When each batch on a GPU counts as lost: `after` microseconds from its departure, or never.

    All have equally long, so that they stand in the order in which they left. `out(batch_id)` says
    which are still out; the others are dropped lazily.
    """

    def __init__(self, after: int | None, out: Callable[[int], bool]) -> None:
        self.after = after
        self._out = out
        self._line: deque[tuple[int, int]] = deque()

    def departed(self, batch_id: int, now: int) -> None:
        """Watch this batch from now on."""
        if self.after is not None:
            self._line.append((now + self.after, batch_id))

    def next(self) -> int:
        """The first instant at which a batch that is still out is overdue; `NEVER` if none."""
        line = self._line
        while line and not self._out(line[0][1]):
            line.popleft()
        return line[0][0] if line else NEVER

    def expired(self, now: int) -> list[int]:
        """The batches that are overdue, in the order in which they left."""
        gone = []
        while self.next() <= now:
            gone.append(self._line.popleft()[1])
        return gone
