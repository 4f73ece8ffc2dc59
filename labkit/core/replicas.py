"""The replicas of one model: who waits for it, the rule they leave by, and who serves them."""

from collections.abc import Sequence

from labkit.core.admission import DepthLimit
from labkit.core.batching import OURS, Rule
from labkit.core.dispatch import Pool
from labkit.core.mapping import Batch
from labkit.core.messages import Reason, Receipt, Request
from labkit.core.queues import FairQueue
from labkit.core.settings import Settings
from labkit.core.units import NEVER, NOW


class Replicas:
    """One model version's bank, rule and pool; a gateway has one for each model it serves.

    `bound` counts requests in batches that are bound to a GPU and not started; with those in the
    queue they are the `depth`. `eager_at`: how many in the queue make a batch due by their number;
    an arrival below it asks the rule only when it is the first of its tier.
    """

    __slots__ = ("bound", "closing", "eager_at", "limit", "pool", "queue", "rule", "settings")

    def __init__(
        self, settings: Settings, limit: DepthLimit, queue: FairQueue, rule: Rule, pool: Pool
    ) -> None:
        self.settings = settings
        self.limit = limit
        self.queue = queue
        self.rule = rule
        self.pool = pool
        # Our own rules look at the oldest, and at whether a batch is full; others are always asked.
        self.eager_at = rule.max_batch if type(rule) in OURS else 0
        self.bound = 0
        self.closing = False

    @property
    def depth(self) -> int:
        """How many wait and are not on a GPU."""
        return self.queue.depth + self.bound

    def due_at(self) -> int:
        """When a batch may depart: never while no GPU has room for it."""
        if not (self.pool.open and self.queue.depth):
            return NEVER
        if self.queue.returned or self.closing:
            return NOW
        return self.rule.due_at(self.queue)

    def take(self) -> tuple[Sequence[Request], int, Reason]:
        """The next batch: its requests, the losses they had, and why they leave."""
        if self.queue.returned:
            return *self.queue.take_returned(), Reason.RETURNED
        rows = self.queue.take(self.rule.max_batch)
        if len(rows) >= self.rule.max_batch:
            return rows, 0, Reason.FULL
        return rows, 0, Reason.DRAIN if self.closing else Reason.TIMER

    def receipt(self, batch: Batch) -> Receipt:
        """What is known of a batch at its departure."""
        oldest_age = batch.departed_at - min([row.arrived_at for row in batch.rows])
        budget = self.settings.budget
        slack = None if budget is None else budget - oldest_age - self.settings.batch_time
        return Receipt(batch.reason, oldest_age, slack, *self.queue.stayed())
