"""The ferry rule in closed form: leave when full, or when the first aboard has waited max_wait.

Poisson arrivals and a GPU for every batch at once. With N ~ Poisson(rate * max_wait) arrivals
after the first and M = min(N, max_batch - 1), a dock cycle carries 1 + M requests (renewal reward).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt

from labkit.theory import poisson
from labkit.theory.checks import OutOfDomain, above_zero, share, whole, zero_or_more


def bisect(falling: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a falling function crosses `target` between `low` and `high`."""
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if falling(middle) > target:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Dock:
    """One batcher under the ferry rule; `rate` a second, durations in milliseconds.

    `max_wait` may be 0 (every request leaves alone, at once) or inf (only full batches leave).
    """

    rate: float
    max_wait: float = 50.0
    max_batch: int = 100
    batch_time: float = 100.0

    def __post_init__(self) -> None:
        above_zero("rate", self.rate)
        zero_or_more("max_wait", self.max_wait, infinite=True)
        whole("max_batch", self.max_batch)
        above_zero("batch_time", self.batch_time)

    def _count(self, milliseconds: float) -> float:
        """The mean number of arrivals in so many milliseconds."""
        return self.rate * milliseconds / 1000 if milliseconds else 0.0

    @property
    def window_mean(self) -> float:
        """Mean arrivals in one window: lambda * T."""
        return self._count(self.max_wait)

    @cached_property
    def mean_batch(self) -> float:
        """1 + E[M]: requests in a batch, over batches."""
        return 1 + poisson.mean_capped(self.max_batch - 1, self.window_mean)

    @cached_property
    def mean_batch_seen(self) -> float:
        """E[(1+M)^2] / E[1+M]: the batch that a random request rides in."""
        product = poisson.mean_product_capped(self.max_batch - 1, self.window_mean)
        return (product + self.mean_batch) / self.mean_batch

    @cached_property
    def mean_wait(self) -> float:
        """E[M(M+1)] / (2 lambda (1 + E[M])), in milliseconds."""
        product = poisson.mean_product_capped(self.max_batch - 1, self.window_mean)
        return 500 * product / (self.rate * self.mean_batch)

    @property
    def p_full(self) -> float:
        """P(N >= max_batch - 1): the share of batches that leave full."""
        return poisson.at_least(self.max_batch - 1, self.window_mean)

    @property
    def batch_rate(self) -> float:
        """Batches a second."""
        return self.rate / self.mean_batch

    @property
    def load(self) -> float:
        """Erlang: the mean number of GPUs at work."""
        return self.batch_rate * self.batch_time / 1000

    @property
    def p_waits_whole_window(self) -> float:
        """P(wait = max_wait): the first aboard of a batch that did not fill."""
        return poisson.at_most(self.max_batch - 2, self.window_mean) / self.mean_batch

    @cached_property
    def _boarding(self) -> float:
        """E[min(N, max_batch - 2)]: those after the first who wait at all."""
        return poisson.mean_capped(self.max_batch - 2, self.window_mean)

    def sf(self, wait: float) -> float:
        """P(W > wait).

        Over one cycle: the first aboard waits longer than w when fewer than max_batch - 1 come in
        w, and a later one when the dock is still open w after it came; by Palm's theorem
        {P(N_w <= B-2) + E min(N_T, B-2) - E min(N_w, B-2)} / E[batch] for w < T.
        """
        if wait < 0:
            return 1.0
        if wait >= self.max_wait:
            return 0.0
        mean = self._count(wait)
        later = self._boarding - poisson.mean_capped(self.max_batch - 2, mean)
        chance = (poisson.at_most(self.max_batch - 2, mean) + max(later, 0.0)) / self.mean_batch
        return min(chance, 1.0)

    def cdf(self, wait: float) -> float:
        """P(W <= wait): jumps at 0 (the one who fills the batch) and at max_wait."""
        return 1 - self.sf(wait)

    @property
    def _end(self) -> float:
        """No wait is longer: max_wait, or when a batch has surely filled."""
        filled = self.max_batch + 40 * sqrt(self.max_batch) + 800
        return min(self.max_wait, 1000 * filled / self.rate)

    def wait_percentile(self, percent: float) -> float:
        """The least wait that `percent` of requests do not exceed, in milliseconds."""
        rest = 1 - share("percent / 100", percent / 100, one=False)
        if self.sf(0) <= rest:
            return 0.0
        if self.max_wait < inf and self.p_waits_whole_window >= rest * (1 - 1e-12):
            return self.max_wait
        return bisect(self.sf, rest, 0.0, self._end)

    def excess(self, wait: float) -> float:
        """E[max(W - wait, 0)] in milliseconds: the integral of `sf` from `wait` on."""
        if wait < 0:
            return self.mean_wait - wait
        end = self._end
        if wait >= end:
            return 0.0
        last, here, cap = self._count(end), self._count(wait), self.max_batch - 2
        first = poisson.mean_capped(cap + 1, last) - poisson.mean_capped(cap + 1, here)
        later = (last - here) * self._boarding - (
            poisson.mean_capped_area(cap, last) - poisson.mean_capped_area(cap, here)
        )
        return max(1000 / self.rate * (first + later) / self.mean_batch, 0.0)

    def retried_sf(self, spent: float) -> float:
        """P(W + U > spent): U, uniform over batch_time, is how far the batch came before its loss.

        What a request has behind it when its GPU dies at a random moment of the batch.
        """
        lost = self.excess(spent - self.batch_time) - self.excess(spent)
        return min(max(lost / self.batch_time, 0.0), 1.0)

    def retried_percentile(
        self, percent: float = 95.0, detection: float = 0.0, network: float = 30.0
    ) -> float:
        """Latency of a request whose GPU died once: wait, lost work, detection, batch, network.

        A GPU is free for the retry at once.
        """
        rest = 1 - share("percent / 100", percent / 100, one=False)
        fixed = zero_or_more("detection", detection) + zero_or_more("network", network)
        spent = bisect(self.retried_sf, rest, 0.0, self._end + self.batch_time)
        return spent + self.batch_time + fixed


def stale_timer_batch(rate: float, max_wait: float = 50.0, max_batch: int = 100) -> float:
    """Mean batch when a full batch leaves its timer running, which then cuts the next batch short.

    Between the arrival that starts the timer and its end 1 + N come, N ~ Poisson(lambda T), and
    leave in ceil((1+N)/B) batches: (1 + lambda T) / sum_{j>=0} P(N >= jB).
    """
    above_zero("rate", rate)
    whole("max_batch", max_batch)
    mean = rate * zero_or_more("max_wait", max_wait) / 1000
    batches, j = 1.0, 1
    while (chance := poisson.at_least(j * max_batch, mean)) > 1e-17:
        batches += chance
        j += 1
    return (1 + mean) / batches


@dataclass(frozen=True)
class PullDock:
    """One GPU that pulls: it takes what waits when it is free and the oldest is due.

    Poisson arrivals, no cap on the batch (so: right while batches over the cap are rare). The next
    batch leaves max(D, X + T) after this one, X exponential until the next arrival; with T = 0 it
    is the greedy server. `rate` a second, durations in milliseconds.
    """

    rate: float
    max_wait: float = 50.0
    batch_time: float = 100.0

    def __post_init__(self) -> None:
        above_zero("rate", self.rate)
        zero_or_more("max_wait", self.max_wait)
        above_zero("batch_time", self.batch_time)

    @property
    def _p_timer(self) -> float:
        """P(the GPU is free before the oldest is due): e^(-lambda (D-T)+)."""
        spare = max(self.batch_time - self.max_wait, 0.0)
        return poisson.pmf(0, self.rate * spare / 1000)

    @property
    def interval(self) -> float:
        """Mean milliseconds between departures: max(D, T) + P(timer) / lambda."""
        return max(self.batch_time, self.max_wait) + self._p_timer * 1000 / self.rate

    @property
    def mean_batch(self) -> float:
        """Requests in a batch."""
        return self.rate * self.interval / 1000

    @property
    def utilization(self) -> float:
        """Share of time the GPU works."""
        return self.batch_time / self.interval

    @property
    def mean_wait(self) -> float:
        """(lambda max(D,T)^2 / 2 + T P(timer)) / (lambda interval), in milliseconds."""
        longest = max(self.batch_time, self.max_wait)
        return (longest * longest / 2 + self.max_wait * self._p_timer * 1000 / self.rate) / (
            self.interval
        )

    def sf(self, wait: float) -> float:
        """P(W > wait): 1 - w / interval for w < T, (D - w) / interval from T to D."""
        if wait < 0:
            return 1.0
        if wait < self.max_wait:
            return 1 - wait / self.interval
        return max(self.batch_time - wait, 0.0) / self.interval

    def wait_percentile(self, percent: float) -> float:
        """The least wait that `percent` of requests do not exceed, in milliseconds."""
        rest = 1 - share("percent / 100", percent / 100, one=False)
        early = (1 - rest) * self.interval
        if early <= self.max_wait:
            return early
        return max(self.batch_time - rest * self.interval, self.max_wait)


def greedy_latency(rate: float, batch_time: float = 100.0) -> float:
    """One GPU that takes all that waits whenever it is free: D(e^-a + 1.5a)/(a + e^-a), a = rate*D.

    Milliseconds; no timer and no cap on the batch.
    """
    return PullDock(rate, 0.0, batch_time).mean_wait + batch_time


__all__ = ["Dock", "OutOfDomain", "PullDock", "bisect", "greedy_latency", "stale_timer_batch"]
