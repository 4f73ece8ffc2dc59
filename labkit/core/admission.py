"""Who may come in: a limit on how many may wait."""

from collections.abc import Sequence

from labkit.core.units import MS, NEVER


def default_depth_limit(
    gpus: int,
    max_batch: int,
    budget: int | None,
    batch_time: int,
    reserve: int,
    network: int = 30 * MS,
) -> int | None:
    """As many as the GPUs clear in the time the budget leaves for waiting.

    gpus * max_batch * (budget - batch - network - reserve) / batch, durations in microseconds, but
    never below one batch; None without a budget.
    """
    if budget is None:
        return None
    waiting = max(budget - batch_time - network - reserve, 0)
    return max(gpus * max_batch * waiting // batch_time, max_batch)


class DepthLimit:
    """Says no when `limits[tier]` requests wait already; counts everyone who is not on a GPU.

    One number, read and written in one place: there is no moment between checking and counting.
    """

    __slots__ = ("limits",)

    def __init__(self, limits: Sequence[int]) -> None:
        self.limits = tuple(limits)

    @classmethod
    def same(cls, limit: int | None, tiers: int) -> "DepthLimit":
        """The same limit for every tier; None for none."""
        return cls((NEVER if limit is None else limit,) * tiers)

    def admits(self, count: int, depth: int, tier: int) -> bool:
        """Whether `count` more of this tier may come in, all or none."""
        return depth + count <= self.limits[tier]
