"""Which request is in which batch on which GPU, and what becomes of a batch that fails."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from labkit.core.messages import Reason, Request
from labkit.core.units import NEVER

PIECES = {1: 100, 2: 10, 3: 1}
"""How large a batch may be after that many losses: whole, in tens, alone."""

MAX_LOSSES = max(PIECES)


@dataclass(slots=True)
class Batch:
    """One batch bound to one epoch of a GPU; `departed_at` is `NEVER` until it starts.

    `losses`: GPUs already lost with these requests aboard. `gone`: rows nobody waits for.
    """

    id: int
    gpu: int
    rows: tuple[Request, ...]
    reason: Reason
    losses: int
    departed_at: int = NEVER
    gone: set[int] = field(default_factory=set)
    _ids: frozenset[int] | None = None

    @property
    def ids(self) -> frozenset[int]:
        """The ids aboard, worked out when somebody first asks: most batches are never asked.

        Only of a batch on a GPU, whose rows change no more.
        """
        if self._ids is None:
            self._ids = frozenset([row.id for row in self.rows])
        return self._ids

    def alive(self) -> tuple[Request, ...]:
        """The rows somebody still waits for, in order."""
        if not self.gone:
            return self.rows
        return tuple(row for row in self.rows if row.id not in self.gone)


class MappingTable:
    """The only place that knows which request is where.

    A batch id belongs to one epoch of one GPU and is closed with it: whatever comes back under a
    closed id is late, and is dropped and counted. Batches on GPUs are as few as the GPUs, and
    those held behind them may be thousands, so that only the held are indexed by request.
    """

    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        self.late = 0
        self._last_id = 0
        self._moving: dict[int, Batch] = {}
        self._held: dict[int, Batch] = {}

    def bind(self, rows: tuple[Request, ...], gpu: int, reason: Reason, losses: int) -> Batch:
        """Enter a new batch under the next id."""
        self._last_id += 1
        batch = Batch(self._last_id, gpu, rows, reason, losses)
        self.batches[batch.id] = self._moving[batch.id] = batch
        return batch

    def hold(self, batch: Batch) -> None:
        """This batch waits for its GPU behind another one."""
        del self._moving[batch.id]
        self._held.update({row.id: batch for row in batch.rows})

    def release(self, batch: Batch) -> None:
        """This batch waits no longer; harmless when it never did."""
        if batch.id not in self._moving:
            self._moving[batch.id] = batch
            for row in batch.rows:
                self._held.pop(row.id, None)

    def holds(self, request_id: int) -> bool:
        """Whether this request waits in a batch for the GPU that the batch is bound to."""
        return request_id in self._held

    def close(self, batch_id: int) -> Batch:
        """Forget a batch: it came back, was lost with its GPU, or nobody is left of it."""
        batch = self.batches.pop(batch_id)
        self.release(batch)
        del self._moving[batch_id]
        return batch

    def returns(self, batch_id: int) -> Batch | None:
        """Close a batch that came back; None when its id is unknown or fenced."""
        batch = self.batches.get(batch_id)
        if batch is None or batch.departed_at == NEVER:
            self.late += 1
            return None
        return self.close(batch_id)

    def find(self, request_id: int) -> Batch | None:
        """The batch this request is in, bound or on a GPU."""
        if request_id in self._held:
            return self._held[request_id]
        for batch in self._moving.values():
            if request_id in batch.ids and request_id not in batch.gone:
                return batch
        return None

    def drop(self, request_id: int) -> Batch | None:
        """Nobody waits for this row any more: it keeps its seat, and its answer is dropped."""
        batch = self.find(request_id)
        if batch is not None:
            batch.gone.add(request_id)
            self._held.pop(request_id, None)
        return batch


def after_loss(rows: Sequence[Request], losses: int) -> list[Sequence[Request]]:
    """How requests travel after `losses` GPUs died with them: whole, in tens, alone; then not.

    A request that kills every GPU is found after at most 4 deaths and 22 calls of 100, and its
    batch-mates are answered. Empty when the request has had its last try.
    """
    if losses > MAX_LOSSES:
        return []
    size = PIECES[losses]
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def after_raise(rows: Sequence[Request]) -> list[Sequence[Request]]:
    """The halves of what is left of a batch that raised: one bad row of 100 is found in 15 calls.

    Also for a single row whose company left meanwhile: it is tried alone before it is blamed.
    """
    middle = (len(rows) + 1) // 2
    return [half for half in (rows[:middle], rows[middle:]) if half]
