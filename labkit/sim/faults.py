"""What can go wrong on the far bank: values that a simulation acts out; times in microseconds."""

from collections.abc import Iterable
from dataclasses import dataclass

from labkit.core.messages import Request
from labkit.core.units import MS, NEVER

RESTART = 300 * MS
"""How long a GPU process takes to come back after it was ended, unless a fault says otherwise."""


class FaultError(ValueError):
    """A fault that cannot be: says which, the value, and the remedy."""


@dataclass(frozen=True, slots=True)
class Death:
    """GPU number `gpu` dies at `at`; the gateway hears of it `detected_after` later.

    Without a number it is the first GPU in the middle of a batch, or the first one alive. It is
    back `back_after` after it was heard of, or never when None.
    """

    gpu: int | None
    at: int
    detected_after: int = 0
    back_after: int | None = RESTART

    def __post_init__(self) -> None:
        _not_negative(self, "at", self.at)
        _not_negative(self, "detected_after", self.detected_after)
        _not_negative(self, "back_after", self.back_after)


@dataclass(frozen=True, slots=True)
class Hang:
    """A batch that never comes back, while its GPU looks alive.

    Either batch number `batch`, or the batch that `gpu` runs at `at`, or its next one if it is
    idle then; without a GPU's number, the first one in the middle of a batch. Only a gateway with
    `overdue_after` ever notices.
    """

    gpu: int | None = None
    at: int | None = None
    batch: int | None = None
    back_after: int | None = RESTART

    def __post_init__(self) -> None:
        if (self.batch is None) == (self.at is None) or (self.at is None and self.gpu is not None):
            raise FaultError(
                f"{self}: name either a batch or an instant (and perhaps a GPU), such as "
                "Hang(batch=7) or Hang(gpu=3, at=5 * S)"
            )
        _not_negative(self, "at", self.at)
        _not_negative(self, "back_after", self.back_after)


@dataclass(frozen=True, slots=True)
class Straggler:
    """Batches that leave on `gpu` from `since` until before `until` take `factor` times as long."""

    gpu: int
    factor: float
    since: int = 0
    until: int = NEVER

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise FaultError(f"{self}: factor {self.factor:g} must be more than 0")


@dataclass(frozen=True, slots=True)
class BadCount:
    """The batch that `gpu` runs at `at`, or its next one, comes back with one output too few."""

    gpu: int
    at: int = 0

    def __post_init__(self) -> None:
        _not_negative(self, "at", self.at)


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """The detector reports `gpu` lost at `at`, but it lives, and its late result arrives too.

    It is taken back into service `back_after` later.
    """

    gpu: int
    at: int
    back_after: int = RESTART

    def __post_init__(self) -> None:
        _not_negative(self, "at", self.at)
        _not_negative(self, "back_after", self.back_after)


@dataclass(frozen=True, slots=True)
class Raises:
    """The prompt of this request makes the function raise; the GPU survives."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Poison:
    """The prompt of this request kills any GPU, `kills_after` into the batch."""

    request_id: int
    kills_after: int = 50 * MS
    detected_after: int = 0
    back_after: int | None = RESTART

    def __post_init__(self) -> None:
        _not_negative(self, "kills_after", self.kills_after)
        _not_negative(self, "detected_after", self.detected_after)
        _not_negative(self, "back_after", self.back_after)


@dataclass(frozen=True, slots=True)
class Leaves:
    """The client of this request goes away at `at`."""

    request_id: int
    at: int

    def __post_init__(self) -> None:
        _not_negative(self, "at", self.at)


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator takes `gpu` out of service at `at`; back `back_after` it stopped, or never."""

    gpu: int
    at: int
    back_after: int | None = None

    def __post_init__(self) -> None:
        _not_negative(self, "at", self.at)
        _not_negative(self, "back_after", self.back_after)


Fault = Death | Hang | Straggler | BadCount | FalseAlarm | Raises | Poison | Leaves | Drain


class FaultPlan:
    """The faults of one run, sorted by who has to ask for them; refuses GPUs that are not there."""

    def __init__(self, faults: Iterable[Fault], gpus: int) -> None:
        self.faults = tuple(faults)
        for fault in self.faults:
            gpu = getattr(fault, "gpu", None)
            if gpu is not None and not 0 <= gpu < gpus:
                raise FaultError(
                    f"{type(fault).__name__} of GPU {gpu}: the {gpus} GPUs have the numbers "
                    f"0 to {gpus - 1}; name one of them"
                )
        self.hangs = {f.batch: f for f in self.faults if isinstance(f, Hang) and f.batch}
        self.poisons = {f.request_id: f for f in self.faults if isinstance(f, Poison)}
        self._raisers = {f.request_id for f in self.faults if isinstance(f, Raises)}
        self._stragglers = [f for f in self.faults if isinstance(f, Straggler)]

    def slowed(self, took: int, gpus: tuple[int, ...], now: int) -> int:
        """A service time, stretched by the slowest straggler of those aboard."""
        if not self._stragglers:
            return took
        factors = dict.fromkeys(gpus, 1.0)
        for fault in self._stragglers:
            if fault.gpu in factors and fault.since <= now < fault.until:
                factors[fault.gpu] *= fault.factor
        return max(round(took * max(factors.values())), 1)

    def poison_in(self, rows: Iterable[Request]) -> Poison | None:
        """The first poison aboard."""
        if not self.poisons:
            return None
        return next((self.poisons[row.id] for row in rows if row.id in self.poisons), None)

    def raiser_in(self, rows: Iterable[Request]) -> int | None:
        """The id of the first request aboard that makes the function raise."""
        if not self._raisers:
            return None
        return next((row.id for row in rows if row.id in self._raisers), None)


def _not_negative(fault: object, field: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise FaultError(f"{fault}: {field} {value} must be 0 or more microseconds")
