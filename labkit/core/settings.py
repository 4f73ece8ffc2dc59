"""The constants of one gateway, refused with the arithmetic when they contradict each other."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from labkit.core.units import MS, NEVER, S, show_ms

CONTRACT_MAX_BATCH = 100
"""The most strings that `batchstring` takes in one call."""

RuleName = Literal["ferry", "at_once", "full"]
DispatchName = Literal["least_loaded", "two_choices", "round_robin", "random"]

RULES: tuple[RuleName, ...] = ("ferry", "at_once", "full")
DISPATCHES: tuple[DispatchName, ...] = ("least_loaded", "two_choices", "round_robin", "random")


OPTIONAL = frozenset({"budget", "backlog", "depth_limit", "overdue_after"})
"""Settings that may be None."""


class ConfigError(ValueError):
    """Settings that cannot be: says what, the value, and the remedy."""


@dataclass(frozen=True, slots=True)
class TierRule:
    """One tier of customers.

    `timeout`: how long a request may stay queued, in microseconds. `share`: percent of the depth
    limit up to which one of this tier is let in, whoever fills it; what is above is kept for the
    others (trunk reservation).
    """

    name: str
    timeout: int = NEVER
    share: int = 100


@dataclass(frozen=True, slots=True)
class ModelRule:
    """One model of its own size, durations in microseconds; None: as the gateway's."""

    name: str
    max_batch: int | None = None
    batch_time: int | None = None
    max_wait: int | None = None
    depth_limit: int | None = None

    def own(self) -> dict[str, int]:
        """The settings in which this model differs."""
        return {
            name: value
            for name in ("max_batch", "batch_time", "max_wait", "depth_limit")
            if (value := getattr(self, name)) is not None
        }


PATIENT = (TierRule("paid"), TierRule("free"))
"""Two tiers that wait for ever: what the simulator uses unless asked."""

SERVED = (TierRule("paid", 2 * S), TierRule("free", 10 * S, share=80))
"""Two tiers with the timeouts of a live front door.

A rush of the free tier stops at 80 %: the GPUs have work for most of the budget all the same, and
the fifth that is left takes what a paid rush brings until the next batches leave.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a gateway is built from; durations in microseconds.

    `backlog`: batches a GPU may hold unstarted; 0 is pull, None is push without bound.
    `depth_limit`: requests that may wait before the door says no; None for no limit.
    `overdue_after`: a batch that is out for longer has lost its GPU; None to wait for ever.
    `budget`, `reserve`: the objective end to end and the part kept for one retry; None for none.
    `models`: their names, dealt to the GPUs in turn; `sizes`: those of another size than the rest.
    """

    max_batch: int = CONTRACT_MAX_BATCH
    max_wait: int = 50 * MS
    batch_time: int = 100 * MS
    budget: int | None = 500 * MS
    reserve: int = 200 * MS
    rule: RuleName = "ferry"
    dispatch: DispatchName = "least_loaded"
    backlog: int | None = 0
    depth_limit: int | None = None
    overdue_after: int | None = None
    tiers: tuple[TierRule, ...] = PATIENT
    models: tuple[str, ...] = ("ferry",)
    sizes: tuple[ModelRule, ...] = ()

    def __post_init__(self) -> None:
        self._check_whole()
        if not 1 <= self.max_batch <= CONTRACT_MAX_BATCH:
            raise ConfigError(
                f"max_batch {self.max_batch}: the contract takes 1 to {CONTRACT_MAX_BATCH} "
                "strings a batch"
            )
        if self.max_wait < 0:
            raise ConfigError(f"max_wait {show_ms(self.max_wait)}: must be 0 or more")
        if self.batch_time <= 0:
            raise ConfigError(f"batch_time {show_ms(self.batch_time)}: must be more than 0")
        if self.rule not in RULES:
            raise ConfigError(f"rule {self.rule!r}: choose one of {', '.join(RULES)}")
        if self.dispatch not in DISPATCHES:
            raise ConfigError(f"dispatch {self.dispatch!r}: choose one of {', '.join(DISPATCHES)}")
        if self.backlog is not None and self.backlog < 0:
            raise ConfigError(
                f"backlog {self.backlog}: must be 0 (pull) or more; None is push without bound"
            )
        if self.overdue_after is not None and self.overdue_after <= self.batch_time:
            raise ConfigError(
                f"overdue_after {show_ms(self.overdue_after)} is not longer than a batch of "
                f"{show_ms(self.batch_time)}: every batch would count as lost"
            )
        if not self.tiers or not self.models:
            raise ConfigError("a gateway needs at least one tier and one model")
        if len({*self.models}) < len(self.models):
            raise ConfigError(f"models {', '.join(self.models)}: each may be named once")
        for tier in self.tiers:
            _check_tier(tier)
        if self.reserve < 0:
            raise ConfigError(f"reserve {show_ms(self.reserve)}: must be 0 or more")
        self._check_budget()
        self._check_depth_limit()
        self._check_sizes()

    def _check_whole(self) -> None:
        """A float, even a whole one, would make instants of which sums are not exact."""
        durations = {
            "max_wait": self.max_wait,
            "batch_time": self.batch_time,
            "reserve": self.reserve,
            "budget": self.budget,
            "overdue_after": self.overdue_after,
            **{f"timeout of tier {tier.name!r}": tier.timeout for tier in self.tiers},
        }
        counts = {
            "max_batch": self.max_batch,
            "backlog": self.backlog,
            "depth_limit": self.depth_limit,
            **{f"share of tier {tier.name!r}": tier.share for tier in self.tiers},
        }
        for name, value in (durations | counts).items():
            if type(value) is not int and not (value is None and name in OPTIONAL):
                of = " of microseconds" if name in durations else ""
                raise ConfigError(
                    f"{name} {value!r}: must be a whole number{of}; round it at the border"
                )

    def _check_budget(self) -> None:
        if self.budget is None or self.rule != "ferry":
            return
        spent = self.max_wait + self.batch_time + self.reserve
        if spent > self.budget:
            raise ConfigError(
                f"max_wait {show_ms(self.max_wait)} + batch {show_ms(self.batch_time)} + reserve "
                f"{show_ms(self.reserve)} = {show_ms(spent)}, over the budget of "
                f"{show_ms(self.budget)}; shorten the window, or give a larger budget or none"
            )

    def _check_sizes(self) -> None:
        named = [size.name for size in self.sizes]
        for name in named:
            if name not in self.models:
                raise ConfigError(
                    f"a size for {name!r}, which is none of the models {', '.join(self.models)}: "
                    "name it in Settings.models"
                )
            if named.count(name) > 1:
                raise ConfigError(f"sizes {', '.join(named)}: each model has one size")
            try:
                self.of(name)
            except ConfigError as error:
                raise ConfigError(f"model {name!r}: {error}") from None

    def of(self, model: str) -> Self:
        """These settings as one of the models meets them, with the numbers of its own size."""
        own = next((size.own() for size in self.sizes if size.name == model), {})
        return self.with_(models=(model,), sizes=(), **own)

    def model_of(self, gpu: int) -> str:
        """Which model a GPU serves: they are dealt in turn."""
        return self.models[gpu % len(self.models)]

    @property
    def longest_batch(self) -> int:
        """GPU time of the slowest model's batch."""
        return max(self.of(model).batch_time for model in self.models)

    @property
    def least_depth_limit(self) -> int:
        """The smallest limit under which every tier can fill a batch by itself."""
        return -(-100 * self.max_batch // min(tier.share for tier in self.tiers))

    def _check_depth_limit(self) -> None:
        limit, least = self.depth_limit, self.least_depth_limit
        if limit is None or limit >= least:
            return
        if limit < self.max_batch:
            raise ConfigError(
                f"depth_limit {limit} is below one batch of {self.max_batch}: no batch "
                f"could ever fill; use at least {least}, or a smaller max_batch"
            )
        tier = min(self.tiers, key=lambda tier: tier.share)
        raise ConfigError(
            f"tier {tier.name!r} may fill {tier.share} % of depth_limit {limit}, which is "
            f"{limit * tier.share // 100} and below one batch of {self.max_batch}: it could never "
            f"fill one; use a depth_limit of at least {least}, a larger share or smaller batches"
        )

    def with_(self, **changes: Any) -> Self:
        """The same settings with some fields changed, checked again."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        values = dict(values)
        values["tiers"] = tuple(TierRule(**tier) for tier in values["tiers"])
        values["models"] = tuple(values["models"])
        values["sizes"] = tuple(ModelRule(**size) for size in values.get("sizes", ()))
        return cls(**values)


def _check_tier(tier: TierRule) -> None:
    if tier.timeout < 0:
        raise ConfigError(
            f"timeout {show_ms(tier.timeout)} of tier {tier.name!r}: must be 0 or more; "
            "leave it out to wait for ever"
        )
    if not 1 <= tier.share <= 100:
        raise ConfigError(
            f"share {tier.share} of tier {tier.name!r}: must be 1 to 100 percent of depth_limit; "
            "leave it out for all of it"
        )
