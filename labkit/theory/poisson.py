"""Poisson counts without overflow: probabilities, both tails, and means of a count with a cap.

`mean` may be anything from 0 to infinity; a sum takes about 8*sqrt(mean) steps near the mean and
fewer elsewhere. Every sum has positive terms only, so that nothing cancels.
"""

from math import exp, inf, lgamma, log, log1p, pi, sqrt

_HALF_LOG_2_PI = 0.5 * log(2 * pi)


def _stirling_error(n: float) -> float:
    """log(n!) less Stirling's formula, n >= 1."""
    if n < 16:
        return lgamma(n + 1) - (n + 0.5) * log(n) + n - _HALF_LOG_2_PI
    square = n * n
    series = 1 / 1260 - (1 / 1680 - 1 / (1188 * square)) / square
    return (1 / 12 - (1 / 360 - series / square) / square) / n


def _deviance(k: float, mean: float) -> float:
    """k*log(k/mean) + mean - k, accurate also where k is close to the mean."""
    gap = k - mean
    if abs(gap) > 0.1 * (k + mean):
        return k * log(k / mean) + mean - k
    ratio = gap / (k + mean)
    total = gap * ratio
    term = 2 * k * ratio
    power = 3
    while True:
        term *= ratio * ratio
        longer = total + term / power
        if longer == total:
            return total
        total = longer
        power += 2


def pmf(k: int, mean: float) -> float:
    """P(N = k), by Loader's saddle-point form (2000), good to the last digits for any mean."""
    if k < 0 or mean == inf:
        return 0.0
    if mean == 0:
        return float(k == 0)
    if k == 0:
        return exp(-mean)
    return exp(-_stirling_error(k) - _deviance(k, mean)) / sqrt(2 * pi * k)


def _upper_sum(k: int, mean: float) -> float:
    """P(N >= k), summed upwards; for k above the mean."""
    term = total = 1.0
    n = k
    while term > 1e-17 * total:
        n += 1
        term *= mean / n
        total += term
    return min(pmf(k, mean) * total, 1.0)


def _lower_sum(k: int, mean: float) -> float:
    """P(N <= k), summed downwards; for k below the mean."""
    term = total = 1.0
    n = k
    while n and term > 1e-17 * total:
        term *= n / mean
        total += term
        n -= 1
    return min(pmf(k, mean) * total, 1.0)


def at_least(k: int, mean: float) -> float:
    """P(N >= k)."""
    if k <= 0 or mean == inf:
        return 1.0
    return _upper_sum(k, mean) if k > mean else 1 - _lower_sum(k - 1, mean)


def at_most(k: int, mean: float) -> float:
    """P(N <= k)."""
    if k < 0 or mean == inf:
        return 0.0
    return _lower_sum(k, mean) if k < mean else 1 - _upper_sum(k + 1, mean)


def mean_capped(cap: int, mean: float) -> float:
    """E[M], M = min(N, cap); from j*pmf(j) = mean*pmf(j-1)."""
    if cap <= 0:
        return 0.0
    if mean == inf:
        return float(cap)
    return mean * at_most(cap - 2, mean) + cap * at_least(cap, mean)


def mean_product_capped(cap: int, mean: float) -> float:
    """E[M(M+1)], M = min(N, cap)."""
    if cap <= 0:
        return 0.0
    if mean == inf:
        return float(cap) * (cap + 1)
    below = mean * mean * at_most(cap - 3, mean) + 2 * mean * at_most(cap - 2, mean)
    return below + cap * (cap + 1) * at_least(cap, mean)


def mean_capped_area(cap: int, mean: float) -> float:
    """The integral of `mean_capped(cap, m)` over m from 0 to a finite `mean`.

    It is E[h(N)] for the h whose steps are h(n+1) - h(n) = min(n, cap).
    """
    if cap <= 0:
        return 0.0
    top = cap + 1
    tail = at_least(top, mean)
    below = (mean * mean * at_most(top - 3, mean) + top * cap * tail) / 2
    return below + cap * max(mean * at_least(top - 1, mean) - top * tail, 0.0)


def log_binomial(n: int, k: int) -> float:
    """log of n over k."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def binomial_pmf(k: int, n: int, p: float) -> float:
    """P(K = k) of n independent trials with chance p, without overflow."""
    if p in (0, 1):
        return float(k == n * p)
    return exp(log_binomial(n, k) + k * log(p) + (n - k) * log1p(-p))
