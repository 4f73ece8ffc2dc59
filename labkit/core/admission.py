"""Who may come in: a limit on how many may wait."""

from collections.abc import Sequence
from dataclasses import replace

from labkit.core.settings import ModelRule, Settings
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
    waiting = budget - batch_time - network - reserve
    return max(gpus * max_batch * waiting // batch_time, max_batch)


def fitted(settings: Settings, gpus: int) -> Settings:
    """The same settings with each model's default limit, by the GPUs that are dealt to it.

    At least as large as lets every tier fill a batch by itself.
    """
    limits: dict[str, int] = {}
    for number, model in enumerate(settings.models):
        own = settings.of(model)
        dealt = len(range(number, gpus, len(settings.models)))
        limit = default_depth_limit(dealt, own.max_batch, own.budget, own.batch_time, own.reserve)
        if limit is None:
            return settings.with_(depth_limit=None)
        limits[model] = max(limit, own.least_depth_limit)
    most = max(settings.least_depth_limit, *limits.values())
    sizes = {size.name: size for size in settings.sizes}
    for model, limit in limits.items():
        if limit < most:
            sizes[model] = replace(sizes.get(model, ModelRule(model)), depth_limit=limit)
    return settings.with_(depth_limit=most, sizes=tuple(sizes.values()))


class DepthLimit:
    """Says no when `limits[tier]` requests wait already; counts everyone who is not on a GPU.

    One number, read and written in one place: there is no moment between checking and counting.
    """

    __slots__ = ("limits",)

    def __init__(self, limits: Sequence[int]) -> None:
        self.limits = tuple(limits)

    @classmethod
    def shared(cls, limit: int | None, shares: Sequence[int]) -> "DepthLimit":
        """Of one limit each tier its share, in percent; None is no limit."""
        return cls([NEVER if limit is None else limit * share // 100 for share in shares])

    def why(self, depth: int) -> str:
        """What a request that was refused at this depth has met, as a code for the door.

        `queue_full`: whoever came now would be refused; `tier_quota`: only this tier and others
        that may fill no more.
        """
        return "queue_full" if depth >= max(self.limits) else "tier_quota"
