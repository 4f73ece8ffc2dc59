"""The bank of the river: who waits for one model, and who boards next."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.core.messages import Request
from labkit.core.units import NEVER

SLACK = 64
"""Dead entries that a line may hold before it is compacted."""


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that came back from a GPU and leave together again, apart from all others.

    `losses`: how many GPUs were lost with these aboard.
    """

    ids: tuple[int, ...]
    losses: int


class _Tier:
    """One tier's waiting requests: a line for each tenant, and who came first of all.

    Entries are ids, never requests: an entry that outlives its request holds no prompt.
    """

    __slots__ = ("count", "dead", "lines", "order", "turn")

    def __init__(self) -> None:
        self.count = 0
        self.dead = 0
        self.lines: dict[str, deque[int]] = {}
        self.turn: deque[deque[int]] = deque()
        self.order: deque[int] = deque()


class FairQueue:
    """Paid before free, tenants in turn inside a tier, first come first served inside a tenant.

    Requests that came back stand in a lane ahead of all tiers, in groups that are not mixed; the
    first group is never empty. `waiting` holds those in the tiers, `back` those in the lane: a
    line forgets the departed lazily and must not take somebody who came back for somebody who
    never left.
    `depth` counts all who wait; `oldest_at` is when the oldest of those outside the returned lane
    arrived, `NEVER` when there is none. The oldest is found in O(1) by a second line in order of
    arrival, from which the departed are removed lazily; either line is compacted when its dead
    entries outnumber the living. `timeouts` (microseconds, by tier) say how long one may wait.
    """

    def __init__(self, timeouts: Sequence[int]) -> None:
        self.timeouts = tuple(timeouts)
        self.waiting: dict[int, Request] = {}
        self.back: dict[int, Request] = {}
        self.returned: deque[Group] = deque()
        self.depth = 0
        self.oldest_at = NEVER
        self._tiers = tuple(_Tier() for _ in timeouts)

    def push(self, request: Request) -> bool:
        """Join the end of one's own line; whether that may change when anything is due.

        It may not for anybody behind the first of a tier, who is older and expires earlier.
        """
        request_id = request.id
        tier = self._tiers[request.tier]
        line = tier.lines.get(request.tenant)
        if line is None:
            line = tier.lines[request.tenant] = deque()
        if not line:
            tier.turn.append(line)
        line.append(request_id)
        first = not tier.order
        tier.order.append(request_id)
        tier.count += 1
        self.waiting[request_id] = request
        self.depth += 1
        if request.arrived_at < self.oldest_at:
            self.oldest_at = request.arrived_at
            return True
        return first

    def push_front(self, groups: Sequence[tuple[Sequence[Request], int]]) -> None:
        """Put returned (requests, losses) ahead of everything, keeping the order given."""
        for rows, losses in reversed(groups):
            self.returned.appendleft(Group(tuple(row.id for row in rows), losses))
            self.depth += len(rows)
            for row in rows:
                self.back[row.id] = row

    def take_returned(self) -> tuple[list[Request], int]:
        """The group at the head of the returned lane: its requests and its losses."""
        group = self.returned.popleft()
        rows = [self.back.pop(i) for i in group.ids if i in self.back]
        self.depth -= len(rows)
        self._skip_empty()
        return rows, group.losses

    def take(self, seats: int) -> list[Request]:
        """Remove up to `seats` requests: by tier, then one from each tenant in turn."""
        taken: list[Request] = []
        for tier in self._tiers:
            boarding = min(seats - len(taken), tier.count)
            self._fill(tier, boarding, taken)
            tier.count -= boarding
        self.depth -= len(taken)
        self.refresh()
        return taken

    def _fill(self, tier: _Tier, seats: int, taken: list[Request]) -> None:
        """Move exactly `seats` living requests of one tier aboard."""
        turn = tier.turn
        board, remove, next_line, again = taken.append, self.waiting.pop, turn.popleft, turn.append
        while seats:
            line = next_line()
            request = remove(line.popleft(), None)
            while request is None and line:
                tier.dead -= 1
                request = remove(line.popleft(), None)
            if line:
                again(line)
            if request is None:
                tier.dead -= 1
            else:
                board(request)
                seats -= 1
        if len(tier.lines) > 2 * len(turn) + SLACK:
            tier.lines = {name: line for name, line in tier.lines.items() if line}

    def remove(self, request_id: int) -> Request | None:
        """Leave the bank; None when this id does not wait here."""
        request = self.waiting.pop(request_id, None)
        if request is None:
            return self._remove_returned(request_id)
        self.depth -= 1
        tier = self._tiers[request.tier]
        tier.count -= 1
        tier.dead += 1
        if tier.dead > tier.count + SLACK:
            self._compact_lines(tier)
        self.refresh()
        return request

    def _remove_returned(self, request_id: int) -> Request | None:
        """Leave the returned lane."""
        request = self.back.pop(request_id, None)
        if request is not None:
            self.depth -= 1
            self._skip_empty()
        return request

    def _skip_empty(self) -> None:
        """Keep somebody at the head; a group further back of whom nobody is left waits for it."""
        returned, back = self.returned, self.back
        while returned and not any(i in back for i in returned[0].ids):
            returned.popleft()

    def __contains__(self, request_id: int) -> bool:
        """Whether this request waits here, in a tier or in the returned lane."""
        return request_id in self.waiting or request_id in self.back

    def refresh(self) -> None:
        """Find the oldest again after somebody left."""
        waiting = self.waiting
        oldest = NEVER
        for tier in self._tiers:
            order = tier.order
            while order and order[0] not in waiting:
                order.popleft()
            if order:
                oldest = min(oldest, waiting[order[0]].arrived_at)
                if len(order) > 2 * tier.count + SLACK:
                    tier.order = deque(i for i in order if i in waiting)
        self.oldest_at = oldest

    def _compact_lines(self, tier: _Tier) -> None:
        waiting = self.waiting
        for line in tier.lines.values():
            kept = [request_id for request_id in line if request_id in waiting]
            line.clear()
            line.extend(kept)
        tier.lines = {name: line for name, line in tier.lines.items() if line}
        tier.turn = deque(line for line in tier.turn if line)
        tier.dead = 0

    def stayed(self) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
        """How many wait outside the returned lane, and the first of them, by tier."""
        return (
            tuple(tier.count for tier in self._tiers),
            tuple(tier.order[0] if tier.order else None for tier in self._tiers),
        )

    def expires_at(self, request: Request) -> int:
        """The instant at which this request, still queued, expires."""
        return min(request.deadline, request.arrived_at + self.timeouts[request.tier])

    def next_expiry(self) -> int:
        """When the first request outside the returned lane outlives its tier's timeout."""
        soonest = NEVER
        for tier, timeout in zip(self._tiers, self.timeouts, strict=True):
            if tier.order:
                soonest = min(soonest, self.waiting[tier.order[0]].arrived_at + timeout)
        return soonest

    def expired(self, now: int) -> list[int]:
        """The ids outside the returned lane who have waited longer than their tier may."""
        gone: list[int] = []
        for tier, timeout in zip(self._tiers, self.timeouts, strict=True):
            for request_id in tier.order:
                request = self.waiting.get(request_id)
                if request is not None:
                    if request.arrived_at + timeout > now:
                        break
                    gone.append(request_id)
        return gone
