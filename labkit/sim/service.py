"""How long a batch takes on a GPU: distributions in whole microseconds, from a given rng.

Only `rng.random()` is used, with our own inverse transforms, so that the same seed gives the same
times on every machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from random import Random
from statistics import NormalDist
from typing import Protocol

from labkit.core.settings import Settings
from labkit.core.units import MS, show_ms
from labkit.workload.streams import stream

STANDARD_NORMAL = NormalDist()
WIDEST_JITTER = 0.3
"""A wider bell would cross zero more than once in a thousand batches."""


class ServiceError(ValueError):
    """A service time that cannot be: says what, the value, and the remedy."""


class ServiceTime(Protocol):
    """Microseconds, at least 1, that a batch of `count` requests takes on GPU number `gpu`."""

    def __call__(self, count: int, gpu: int, rng: Random) -> int: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The contract: every batch takes `time` microseconds, whatever its size."""

    time: int = 100 * MS

    def __post_init__(self) -> None:
        _positive("service time", self.time)

    def __call__(self, count: int, gpu: int, rng: Random) -> int:
        return self.time


@dataclass(frozen=True, slots=True)
class Jittered:
    """Normal around `mean` microseconds; `sigma` is the deviation as a share of the mean."""

    mean: int = 100 * MS
    sigma: float = 0.1

    def __post_init__(self) -> None:
        _positive("mean service time", self.mean)
        if not 0 <= self.sigma <= WIDEST_JITTER:
            raise ServiceError(
                f"sigma {self.sigma:g}: must be from 0 to {WIDEST_JITTER:g} of the mean, or times "
                "would turn negative; for wilder times use the exponential distribution"
            )

    def __call__(self, count: int, gpu: int, rng: Random) -> int:
        bell = STANDARD_NORMAL.inv_cdf(rng.random() or 2.0**-54)
        return max(round(self.mean * (1 + self.sigma * bell)), 1)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless with a mean of `mean` microseconds: the M in M/M/c."""

    mean: int = 100 * MS

    def __post_init__(self) -> None:
        _positive("mean service time", self.mean)

    def __call__(self, count: int, gpu: int, rng: Random) -> int:
        return max(round(-log(1 - rng.random()) * self.mean), 1)


@dataclass(frozen=True, slots=True)
class Affine:
    """`base + per_row * count` microseconds: what a real model does, unlike the contract."""

    base: int
    per_row: float

    def __post_init__(self) -> None:
        if self.base < 0 or self.per_row < 0 or self.base + self.per_row <= 0:
            raise ServiceError(
                f"service time {show_ms(self.base)} + {show_ms(self.per_row)} a row: neither part "
                "may be negative, and together they must be more than 0"
            )

    def __call__(self, count: int, gpu: int, rng: Random) -> int:
        return max(round(self.base + self.per_row * count), 1)


@dataclass(frozen=True, slots=True)
class Uneven:
    """The same work on unequal GPUs: `factors[gpu]` multiplies the time, 1 where it is absent."""

    base: ServiceTime
    factors: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for gpu, factor in self.factors.items():
            _positive(f"slowness of GPU {gpu}", factor)

    def __call__(self, count: int, gpu: int, rng: Random) -> int:
        return max(round(self.base(count, gpu, rng) * self.factors.get(gpu, 1)), 1)


@dataclass(frozen=True, slots=True)
class Dealt:
    """GPUs that serve models of different size: their times in turn, as models are dealt."""

    services: tuple[ServiceTime, ...]

    def __call__(self, count: int, gpu: int, rng: Random) -> int:
        return self.services[gpu % len(self.services)](count, gpu, rng)


def contract(settings: Settings) -> ServiceTime:
    """What the settings promise: every batch takes its model's `batch_time`."""
    if not settings.sizes:
        return Fixed(settings.batch_time)
    return Dealt(tuple(Fixed(settings.of(model).batch_time) for model in settings.models))


def service_stream(seed: int) -> Random:
    """The stream of random numbers from which one run draws its service times."""
    return stream(seed, "service")


def _positive(what: str, value: float) -> None:
    if not value > 0:
        raise ServiceError(f"{what} {value:g}: must be more than 0")
