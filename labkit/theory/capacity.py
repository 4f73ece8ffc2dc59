"""How many GPUs: the floor, what is really needed, and what timers, spares and losses change.

Rates are requests a second, durations milliseconds, loads Erlang (GPUs at work on average).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, fsum, inf

from labkit.theory import poisson
from labkit.theory.checks import OutOfDomain, above_zero, share, whole, zero_or_more
from labkit.theory.dock import Dock

MOST_SPARES = 1_000
"""GPUs so often down that more than this were needed are no fleet."""

_CLOSE = Fraction(1, 10**12)


def _nearly_whole(value: Fraction) -> int | None:
    """The whole number within a rounding error of `value`, if there is one."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= _CLOSE * (abs(value) + 1) else None


def round_up(value: float | Fraction) -> int:
    """The ceiling, except that a rounding error above a whole number does not cost a GPU."""
    exact = Fraction(value)
    nearest = _nearly_whole(exact)
    return ceil(exact) if nearest is None else nearest


def more_than(load: float) -> int:
    """The fewest GPUs that keep up: the least whole number above `load`; equal is not enough."""
    nearest = _nearly_whole(Fraction(load))
    return (floor(load) if nearest is None else nearest) + 1


def full_load(
    rate: float, max_batch: int = 100, batch_time: float = 100.0, slots: int = 1
) -> float:
    """Servers at work when every batch is full: rate * D / (B * C).

    `slots`: independent batch slots a server (an eight-GPU model has one, not eight).
    """
    above_zero("rate", rate)
    above_zero("batch_time", batch_time)
    per_round = whole("max_batch", max_batch) * whole("slots", slots)
    return rate * batch_time / (1000 * per_round)


def floor_gpus(rate: float, max_batch: int = 100, batch_time: float = 100.0, slots: int = 1) -> int:
    """The floor: servers if each were always busy with full batches; no service survives on it."""
    return max(round_up(full_load(rate, max_batch, batch_time, slots)), 1)


def at_target(load: float, target: float = 0.65, spares: int = 0) -> int:
    """GPUs that are busy at most `target` of the time, and `spares` more: ceil(load/target) + k."""
    zero_or_more("load", load)
    busy = Fraction(load) / Fraction(share("target", target))
    return max(round_up(busy), 1) + whole("spares", spares, least=0)


def needed_gpus(
    rate: float,
    max_batch: int = 100,
    batch_time: float = 100.0,
    target: float = 0.65,
    spares: int = 2,
    slots: int = 1,
) -> int:
    """The answer to give: full batches at the target utilization, plus spares."""
    return at_target(full_load(rate, max_batch, batch_time, slots), target, spares)


def no_queue_gpus(max_wait: float, batch_time: float = 100.0) -> int | None:
    """GPUs with which no batch ever queues while the timer decides: c T >= D; None when T is 0.

    Timer flushes are at least T apart, so with c GPUs in turn each has c T for its batch. Holds
    for batches that leave by the timer, not for full ones.
    """
    zero_or_more("max_wait", max_wait, infinite=True)
    above_zero("batch_time", batch_time)
    if max_wait == 0:
        return None
    return 1 if max_wait == inf else max(round_up(Fraction(batch_time) / Fraction(max_wait)), 1)


def split_load(
    rate: float,
    gateways: int,
    max_wait: float = 50.0,
    max_batch: int = 100,
    batch_time: float = 100.0,
) -> float:
    """Erlang when the traffic is split over G gateways, each with its own batcher.

    G docks of rate/G each; while the timer decides, G D / (T + G/rate).
    """
    docks = whole("gateways", gateways)
    return docks * Dock(above_zero("rate", rate) / docks, max_wait, max_batch, batch_time).load


def cost_per_million(gpus: int, cost_per_gpu_hour: float, rate: float) -> float:
    """Money for a million requests: GPUs are paid by the hour, busy or not."""
    hours = 1e6 / above_zero("rate", rate) / 3600
    return whole("gpus", gpus) * zero_or_more("cost_per_gpu_hour", cost_per_gpu_hour) * hours


def availability(needed: int, total: int, each: float) -> float:
    """P(at least `needed` of `total` GPUs are up), each up with chance `each`, independently."""
    whole("needed", needed, least=0)
    if whole("total", total) < needed:
        raise OutOfDomain(f"total {total}: must be at least needed ({needed})")
    share("each", each)
    down = range(total - needed + 1)
    return min(fsum(poisson.binomial_pmf(d, total, 1 - each) for d in down), 1.0)


def spares_for(needed: int, each: float, goal: float) -> int:
    """The fewest spares k for which `needed` of needed + k are up with chance `goal`."""
    share("goal", goal, one=False)
    whole("needed", needed)
    share("each", each)
    for spares in range(MOST_SPARES + 1):
        if availability(needed, needed + spares, each) >= goal:
            return spares
    raise OutOfDomain(
        f"each {each:g}: {MOST_SPARES} spares are not enough for {needed} with chance {goal:g}; "
        "mend the GPUs, or promise less"
    )


@dataclass(frozen=True, slots=True)
class AfterLoss:
    """What `lost` of `gpus` dying at once means; rates a second, durations milliseconds."""

    rate: float
    gpus: int
    lost: int
    max_batch: int = 100
    batch_time: float = 100.0

    def __post_init__(self) -> None:
        above_zero("rate", self.rate)
        above_zero("batch_time", self.batch_time)
        whole("max_batch", self.max_batch)
        whole("lost", self.lost, least=0)
        if whole("gpus", self.gpus) <= self.lost:
            raise OutOfDomain(f"lost {self.lost}: must be fewer than gpus ({self.gpus})")

    @property
    def ceiling(self) -> float:
        """Requests a second that the survivors answer at perfect fill."""
        return (self.gpus - self.lost) * self.max_batch * 1000 / self.batch_time

    @property
    def lost_in_flight(self) -> float:
        """Requests on the GPUs that died, on average: rate * D * lost / gpus, by Little's law."""
        aboard = self.rate * self.batch_time / 1000 / self.gpus
        return self.lost * min(aboard, self.max_batch)

    def shed(self, utilization: float = 1.0) -> float:
        """Share of the traffic to turn away so that the survivors are this busy: 1 - u C / rate."""
        return max(1 - share("utilization", utilization) * self.ceiling / self.rate, 0.0)

    def first_late_arrival(self, budget: float = 500.0, network: float = 0.0) -> float:
        """Seconds after the loss at which the first request arrives that will miss the budget.

        Nothing is shed. A fluid: (lost in flight + (rate - ceiling) t) / ceiling is the queueing
        time of an arrival at t, and budget - batch - network is what there is; inf when the
        survivors keep up. Where simulations say 3.0 s on average, this says 3.1.
        """
        room = zero_or_more("budget", budget) - self.batch_time - zero_or_more("network", network)
        fits = room / 1000 * self.ceiling - self.lost_in_flight
        if fits <= 0:
            return 0.0
        return inf if self.rate <= self.ceiling else fits / (self.rate - self.ceiling)


@dataclass(frozen=True, slots=True)
class Window:
    """One column of "defend this timer": what a max_wait costs in GPUs, latency and detection.

    Push, one batcher, Poisson arrivals, a GPU for every batch; the network counts only for retries.
    """

    dock: Dock
    target: float = 0.65
    spares: int = 2
    budget: float = 500.0
    network: float = 30.0

    def __post_init__(self) -> None:
        share("target", self.target)
        whole("spares", self.spares, least=0)
        above_zero("budget", self.budget)
        zero_or_more("network", self.network)

    @property
    def stable(self) -> int:
        """Fewest GPUs whose queue does not grow without bound."""
        return more_than(self.dock.load)

    @property
    def no_queue(self) -> int | None:
        """Fewest GPUs with which no batch queues; None where full batches leave between timers."""
        if self.dock.p_full > 1e-6:
            return None
        return no_queue_gpus(self.dock.max_wait, self.dock.batch_time)

    @property
    def at_target(self) -> int:
        """GPUs at the target utilization."""
        return at_target(self.dock.load, self.target)

    @property
    def with_spares(self) -> int:
        """GPUs at the target utilization, and the spares."""
        return at_target(self.dock.load, self.target, self.spares)

    @property
    def latency_mean(self) -> float:
        """Wait at the dock and the batch, mean."""
        return self.dock.mean_wait + self.dock.batch_time

    def latency_percentile(self, percent: float = 95.0) -> float:
        """Wait at the dock and the batch."""
        return self.dock.wait_percentile(percent) + self.dock.batch_time

    def retry_percentile(self, detection: float = 0.0, percent: float = 95.0) -> float:
        """Latency of a request whose GPU dies once, with this much time to notice."""
        return self.dock.retried_percentile(percent, detection, self.network)

    def largest_detection(self, percent: float = 95.0) -> float:
        """The slowest detector with which a retried request still meets the budget; < 0: none."""
        return self.budget - self.retry_percentile(0.0, percent)


def defend(
    rate: float,
    max_waits: Sequence[float] = (10.0, 20.0, 50.0, 80.0, 100.0),
    max_batch: int = 100,
    batch_time: float = 100.0,
    target: float = 0.65,
    spares: int = 2,
    budget: float = 500.0,
    network: float = 30.0,
) -> list[Window]:
    """The table that defends one timer against others, a column each."""
    docks = (Dock(rate, max_wait, max_batch, batch_time) for max_wait in max_waits)
    return [Window(dock, target, spares, budget, network) for dock in docks]
