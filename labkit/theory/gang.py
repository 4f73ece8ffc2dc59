"""What draining a pool for a job that needs every GPU costs: closed forms for n busy GPUs.

Durations are in units of the batch time D (multiply by it), idle time in GPU * D. "Uniform phases":
each running batch is at an independent, uniform point; a constant service then has a residual
uniform on (0, D).
"""

from math import ceil, fsum, sqrt
from statistics import NormalDist

from labkit.theory.checks import above_zero, share, whole, zero_or_more


def drain_time(gpus: int) -> float:
    """E[longest residual] with uniform phases: n / (n + 1), the mean of a maximum of uniforms."""
    return whole("gpus", gpus) / (gpus + 1)


def drain_idle(gpus: int) -> float:
    """GPU time idle while draining, uniform phases: n max - sum = n (n - 1) / (2 (n + 1))."""
    n = whole("gpus", gpus)
    return n * (n - 1) / (2 * (n + 1))


def drain_time_exponential(gpus: int) -> float:
    """E[longest residual] with exponential service: the harmonic number H_n."""
    return fsum(1 / i for i in range(1, whole("gpus", gpus) + 1))


def drain_idle_exponential(gpus: int) -> float:
    """GPU time idle while draining, exponential service: n (H_n - 1)."""
    return gpus * (drain_time_exponential(gpus) - 1)


def fixed_turns_lost_share(gpus: int, open_for: float, large_time: float = 1.0) -> float:
    """Share of GPU time lost to drains when small and large jobs take fixed turns.

    A cycle is `open_for` of small batches, a drain, and one large batch of `large_time`; phases
    uniform before every drain (a scheduler that starts all GPUs together has none to lose):
    ((n-1) / (2(n+1))) / (A + n/(n+1) + large).
    """
    zero_or_more("open_for", open_for)
    above_zero("large_time", large_time)
    cycle = open_for + drain_time(gpus) + large_time
    return drain_idle(gpus) / gpus / cycle


def large_wait_bound(open_for: float) -> float:
    """The longest a large job at the head waits under fixed turns: A + D."""
    return zero_or_more("open_for", open_for) + 1


def expected_normal_maximum(count: int) -> float:
    """E[max of n standard normals]: the integrals of 1 - F^n above 0 less F^n below."""
    n = whole("count", count)
    normal, step, half = NormalDist(), 0.01, 1000
    at = (
        normal.cdf(i * step) ** n - (1 if i > 0 else 0.5 if i == 0 else 0)
        for i in range(-half, half + 1)
    )
    return -fsum(at) * step


def drain_idle_jittered(gpus: int, sigma: float, open_for: float) -> float:
    """GPU time idle when all started together and drift apart by jitter over the open time.

    n E[max of n normals] sigma sqrt(k), k = ceil(A) rounds; `sigma` is the standard deviation of a
    service over D. Good while sigma sqrt(k) < 0.2; beyond that phases become uniform.
    """
    zero_or_more("sigma", sigma)
    rounds = ceil(above_zero("open_for", open_for))
    return gpus * expected_normal_maximum(gpus) * sigma * sqrt(rounds)


def strict_fifo_utilization(gpus: int, large_share: float) -> float:
    """Utilization of strict first come first served, saturated, constant service.

    Between two large jobs come K small ones, geometric with parameter q; they take ceil(K/n)
    rounds, all GPUs in step: (E[K] + n) / (n (E ceil(K/n) + 1)), E ceil = p / (1 - p^n), p = 1 - q.
    """
    n, q = whole("gpus", gpus), share("large_share", large_share)
    p = 1 - q
    rounds = p / (1 - p**n)
    return (p / q + n) / (n * (rounds + 1))


def time_to_all_idle(gpus: int, utilization: float) -> float:
    """Mean wait until all n servers of a stationary M/M/n happen to be idle at once.

    Down-crossings of a birth-death chain: sum over j >= 1 of P(L >= j)^2 / (mu_j P(L = j)), in mean
    service times; without a reservation this is what the large job waits.
    """
    n = whole("gpus", gpus)
    rho = share("utilization", utilization, one=False)
    weights = [1.0]
    for j in range(1, n + 1):
        weights.append(weights[-1] * rho * n / j)
    tail = weights[n] * rho / (1 - rho)
    total = fsum(weights) + tail
    waits, beyond = [], tail
    for j in range(n, 0, -1):
        beyond += weights[j]
        waits.append(beyond * beyond / (j * weights[j]))
    # Above n the tail is geometric: sum of (w rho^i / (1 - rho))^2 / (n w rho^i), i >= 1.
    waits.append(weights[n] * rho / (n * (1 - rho) ** 3))
    return fsum(waits) / total
