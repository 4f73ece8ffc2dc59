"""Who sends what: tenants, their tier and share of the traffic, and their prompts."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, repeat
from math import isfinite
from random import Random

from labkit.core.messages import Request, Tier
from labkit.workload.streams import fork

SHORT = ("When does the next ferry leave?",)
"""The one prompt of a mix that cares for nothing but arrivals."""


class MixError(ValueError):
    """A mix of traffic that cannot be: says what, the value, and the remedy."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One customer: its name, tier, weight among the senders, and the prompts it draws from."""

    name: str = "default"
    tier: int = int(Tier.PAID)
    weight: float = 1.0
    prompts: tuple[str, ...] = SHORT

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight >= 0):
            raise MixError(f"tenant {self.name!r}: weight {self.weight:g} must be 0 or more")
        if self.tier < 0:
            raise MixError(f"tenant {self.name!r}: tier {self.tier} must be 0 (paid) or more")
        if not self.prompts:
            raise MixError(f"tenant {self.name!r} has no prompts; give at least one")


@dataclass(frozen=True, slots=True)
class Mix:
    """The tenants that share one stream of arrivals, and the model they ask for."""

    tenants: tuple[Tenant, ...] = (Tenant(),)
    model: str = "ferry"

    def __post_init__(self) -> None:
        if not any(tenant.weight for tenant in self.tenants):
            raise MixError(
                f"a mix of {len(self.tenants)} tenants without weight sends nothing; "
                "give at least one tenant a weight above 0"
            )
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise MixError(f"tenant {twice!r} is in the mix twice; names must differ")

    @property
    def choices(self) -> bool:
        """Whether anything is left to chance: who sends, or which prompt."""
        return len(self.tenants) > 1 or len(self.tenants[0].prompts) > 1


PLAIN = Mix()
"""One paying tenant with one short prompt."""


def crowd(
    tenants: int = 50,
    paid_share: float = 0.5,
    zipf: float = 0.0,
    prompts: tuple[str, ...] = SHORT,
    model: str = "ferry",
) -> Mix:
    """Two tiers of `tenants` tenants each; `paid_share` of the requests come from the paid tier.

    Inside a tier the k-th tenant has weight 1/k^zipf: 0 is equal shares, 1 is Zipf's law. A tier
    without a share has no tenants.
    """
    if tenants < 1:
        raise MixError(f"tenants {tenants}: a tier needs at least 1")
    if not 0.0 <= paid_share <= 1.0:
        raise MixError(f"paid_share {paid_share:g}: must be from 0 to 1")
    if not (isfinite(zipf) and zipf >= 0.0):
        raise MixError(f"zipf {zipf:g}: must be 0 (equal shares) or more")
    weights = [(rank + 1.0) ** -zipf for rank in range(tenants)]
    whole = sum(weights)
    return Mix(
        tuple(
            Tenant(f"{tier.name.lower()}-{rank:02d}", int(tier), share * weight / whole, prompts)
            for tier, share in ((Tier.PAID, paid_share), (Tier.FREE, 1.0 - paid_share))
            if share
            for rank, weight in enumerate(weights)
        ),
        model,
    )


def requests(
    instants: Iterable[int],
    mix: Mix = PLAIN,
    rng: Random | None = None,
    first_id: int = 0,
) -> list[Request]:
    """One request for each instant (microseconds), with ids from `first_id` upwards.

    `rng` may be left out only when the mix leaves nothing to chance. Who sends and which prompt
    are drawn from two streams forked from it, so that more prompts do not change who sends.
    """
    if not mix.choices:
        only = mix.tenants[0]
        fixed = (repeat(only.tier), repeat(only.name), repeat(mix.model))
        return list(map(Request, count(first_id), repeat(only.prompts[0]), instants, *fixed))
    model = mix.model
    return [
        Request(number, prompt, at, tenant.tier, tenant.name, model)
        for number, at, (tenant, prompt) in zip(
            count(first_id), instants, senders(mix, rng), strict=False
        )
    ]


def senders(mix: Mix, rng: Random | None = None) -> Iterator[tuple[Tenant, str]]:
    """Who sends the next request, and its prompt, without end."""
    if not mix.choices:
        yield from repeat((mix.tenants[0], mix.tenants[0].prompts[0]))
    if rng is None:
        raise MixError(
            f"this mix leaves to chance which of {len(mix.tenants)} tenants sends, or which "
            "prompt; pass rng=Random(seed)"
        )
    who, what = fork(rng).random, fork(rng).random
    upto = list(accumulate(tenant.weight for tenant in mix.tenants))
    # Rounding may carry a draw to the very end, and a tenant without weight may stand there.
    last = max(i for i, tenant in enumerate(mix.tenants) if tenant.weight)
    whole = upto[-1]
    while True:
        tenant = mix.tenants[min(bisect_right(upto, who() * whole), last)]
        yield tenant, _drawn(tenant.prompts, what())


def _drawn(prompts: Sequence[str], u: float) -> str:
    return prompts[int(u * len(prompts))]
