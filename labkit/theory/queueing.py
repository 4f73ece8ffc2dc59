"""Queues in closed form: one and many servers, batches, priorities, and how a server is chosen.

Times are in units of the mean service time unless a docstring says milliseconds; `load` is in
Erlang (arrival rate * mean service). A queue that cannot keep up has an infinite wait: `inf` is the
answer there, not an error.
"""

from cmath import exp as cexp
from cmath import pi
from collections.abc import Sequence
from math import exp, expm1, inf, log

from labkit.theory import poisson
from labkit.theory.checks import above_zero, share, whole, zero_or_more
from labkit.theory.dock import bisect


def littles_law(rate: float, milliseconds: float) -> float:
    """How many are inside on average, L = lambda W; rate a second (Little 1961)."""
    return zero_or_more("rate", rate) * zero_or_more("milliseconds", milliseconds) / 1000


def erlang_b(servers: int, load: float) -> float:
    """Share of calls lost with no place to wait: B(n) = a B(n-1) / (n + a B(n-1)) (Erlang 1917)."""
    zero_or_more("load", load)
    blocked = 1.0
    for n in range(1, whole("servers", servers, least=0) + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked


def erlang_c(servers: int, load: float) -> float:
    """P(wait > 0) in M/M/c, from Erlang B; 1 when the load is the servers' or more."""
    whole("servers", servers)
    zero_or_more("load", load)
    if load >= servers:
        return 1.0
    blocked = erlang_b(servers, load)
    return blocked / (1 - load / servers * (1 - blocked))


def mmc_wait(servers: int, load: float) -> float:
    """Mean wait in M/M/c: C / (c - a)."""
    waits = erlang_c(servers, load)
    return inf if load >= servers else waits / (servers - load)


def mmc_wait_tail(servers: int, load: float, wait: float) -> float:
    """P(W > wait) in M/M/c: C e^(-(c-a) wait)."""
    waits = erlang_c(servers, load)
    zero_or_more("wait", wait)
    return 1.0 if load >= servers else waits * exp(-(servers - load) * wait)


def mmc_wait_percentile(servers: int, load: float, percent: float) -> float:
    """The wait that `percent` of customers do not exceed in M/M/c."""
    rest = 1 - share("percent / 100", percent / 100, one=False)
    waits = erlang_c(servers, load)
    if load >= servers:
        return inf
    return log(waits / rest) / (servers - load) if waits > rest else 0.0


def mm1_sojourn_percentile(utilization: float, percent: float) -> float:
    """Time in the system in M/M/1 is exponential: -ln(1 - p) / (1 - rho)."""
    zero_or_more("utilization", utilization)
    rest = 1 - share("percent / 100", percent / 100, one=False)
    return inf if utilization >= 1 else -log(rest) / (1 - utilization)


def mg1_wait(utilization: float, scv: float) -> float:
    """Mean wait in M/G/1: rho (1 + scv) / (2 (1 - rho)) (Pollaczek 1930, Khinchine 1932).

    `scv`: variance of the service over its squared mean; 0 constant, 1 exponential.
    """
    zero_or_more("utilization", utilization)
    zero_or_more("scv", scv)
    return inf if utilization >= 1 else utilization * (1 + scv) / (2 * (1 - utilization))


def md1_wait(utilization: float) -> float:
    """Mean wait in M/D/1: rho / (2 (1 - rho))."""
    return mg1_wait(utilization, 0.0)


def mdc_wait(servers: int, load: float) -> float:
    """Mean wait in M/D/c, in service times (Crommelin 1932).

    By the series where it converges fast, else from the roots; the two agree to nine digits.
    """
    whole("servers", servers)
    zero_or_more("load", load)
    if load >= servers:
        return inf
    if load == 0:
        return 0.0
    steps = servers * (1 - load / servers) ** 2
    return mdc_wait_series(servers, load) if steps > 0.5 else mdc_wait_roots(servers, load)


def mdc_wait_series(servers: int, load: float) -> float:
    """Sum over i >= 1 of P(Pois(ia) >= ic) - (c/a) P(Pois(ia) >= ic + 1).

    About 60 / (c (1 - rho)^2) terms.
    """
    total, i = 0.0, 0
    while True:
        i += 1
        mean, places = i * load, i * servers
        above = poisson.at_least(places + 1, mean)
        term = poisson.pmf(places, mean) - (servers / load - 1) * above
        total += max(term, 0.0)
        if term < 1e-13 * total or not above:
            return total


def mdc_wait_roots(servers: int, load: float) -> float:
    """The same from the zeros of z^c = e^(a(z-1)) inside the unit circle; for heavy loads.

    The numbers present at instants one service apart form a chain, Q' = max(Q - c, 0) + Poisson(a),
    whose mean is a + sum 1/(1 - z_k) - (c(c-1) - a^2) / (2(c - a)); Little's law turns it into a
    wait.
    """
    c, a = servers, load
    inside = 0.0
    for k in range(1, c // 2 + 1):  # the other half are their conjugates
        turn = cexp(2j * pi * k / c)
        z = 0j
        for _ in range(200):
            image = turn * cexp(a * (z - 1) / c)
            step = (image - z) / (1 - a / c * image)
            z += step
            if abs(step) < 1e-15:
                break
        inside += (1 / (1 - z)).real * (1 if 2 * k == c else 2)
    return (inside - (c * (c - 1) - a * a) / (2 * (c - a))) / a


def full_batch_wait(
    gpus: int, rate: float, max_batch: int = 100, batch_time: float = 100.0
) -> float:
    """Milliseconds a full batch waits for a GPU when every batch leaves the dock full.

    Every B-th arrival closes a batch, so batches arrive as Erlang-B: E_B/D/c waits as M/D/(cB) with
    load rate * D, because dealing either out in turn gives the same single queue E_(cB)/D/1.
    """
    above_zero("rate", rate)
    places = whole("gpus", gpus) * whole("max_batch", max_batch)
    return above_zero("batch_time", batch_time) * mdc_wait(places, rate * batch_time / 1000)


def bulk_service_wait(rate: float, max_batch: int) -> float:
    """Mean wait in M/M[1,b]/1: a free server takes all that wait, up to b, for exp(1).

    P(busy, n waiting) = p r^n with r in (0, 1) the root of r^(b+1) - (1 + lambda) r + lambda = 0
    (Bailey 1954); the wait is p r / (1 - r)^2 / lambda with p (1/lambda + 1/(1-r)) = 1.
    """
    above_zero("rate", rate)
    b = whole("max_batch", max_batch)
    if rate >= b:
        return inf

    # Divided by (r - 1): r + r^2 + ... + r^b = lambda, rising in r.
    def missing(r: float) -> float:
        return rate - (r - r ** (b + 1)) / (1 - r) if r < 1 else rate - b

    r = bisect(missing, 0.0, 0.0, 1.0)
    p = 1 / (1 / rate + 1 / (1 - r))
    return p * r / (1 - r) ** 2 / rate


def batch_service_latency(rate: float, alpha: float, tau0: float) -> float:
    """Mean latency (wait + service) of one server that takes all that wait, b of them in
    alpha*b + tau0; all in milliseconds but `rate` (a second).

    The model of Inoue (Performance Evaluation 147, 2021). Batch sizes form the chain
    b' = max(Poisson(lambda (alpha b + tau0)), 1), so E[b] and E[b^2] follow from the chance P0 that
    nobody came; P0 from iterating E[z^b] at z = 0, e^-rho, ... towards 1.
    """
    per_ms = above_zero("rate", rate) / 1000
    zero_or_more("alpha", alpha)
    zero_or_more("tau0", tau0)
    above_zero("alpha + tau0", alpha + tau0)
    rho = per_ms * alpha
    if rho >= 1:
        return inf
    p0 = _nobody_came(rho, per_ms * tau0)
    size = (per_ms * tau0 + p0) / (1 - rho)
    service = alpha * size + tau0
    came_squared = per_ms**2 * (2 * alpha * tau0 * size + tau0**2) + per_ms * service
    squared = (came_squared + p0) / (1 - rho * rho)
    service_squared = alpha**2 * squared + 2 * alpha * tau0 * size + tau0**2
    waited = per_ms * service_squared / 2
    served = alpha * squared + tau0 * size
    return (waited + served) / size


def _nobody_came(rho: float, constant: float) -> float:
    """P(no arrival during a service) = prod c_i / sum (1 - z_i) prod_{j<i} c_j.

    z_0 = 0, z_(i+1) = e^(-rho (1 - z_i)), c_i = e^(-constant (1 - z_i)).
    """
    gap, product, total = 1.0, 1.0, 0.0
    while gap > 1e-18 and product:
        total += product * gap
        product *= exp(-constant * gap)
        gap = -expm1(-rho * gap)
    return product / total


def inoue_bound(rate: float, alpha: float, tau0: float) -> float:
    """Inoue's upper bound on `batch_service_latency`: the lesser of his two (2021, Theorem 2)."""
    per_ms = above_zero("rate", rate) / 1000
    zero_or_more("alpha", alpha)
    zero_or_more("tau0", tau0)
    rho, constant = per_ms * alpha, per_ms * tau0
    if rho >= 1:
        return inf
    light = (alpha + tau0) / (2 * (1 - rho)) * (1 + 2 * constant + (1 - constant) / (1 + rho))
    heavy = 1.5 * tau0 / (1 - rho) + alpha / 2 * (rho + 2) / (1 - rho * rho)
    return min(light, heavy)


def priority_waits(loads: Sequence[float], scv: float = 0.0) -> list[float]:
    """Mean waits by class, highest first, one server, work in hand finished first (Cobham 1954).

    R / ((1 - sigma_(k-1)) (1 - sigma_k)), sigma_k the load of class k and all above it, R the work
    in hand. A class that does not fit waits for ever; the ones above it keep finite waits.
    """
    zero_or_more("scv", scv)
    offered = 0.0
    for load in loads:
        offered += zero_or_more("load", load)
    residual = min(offered, 1.0) * (1 + scv) / 2
    waits, above = [], 0.0
    for load in loads:
        until = above + load
        waits.append(inf if until >= 1 else residual / ((1 - above) * (1 - until)))
        above = until
    return waits


def choices_sojourn(utilization: float, choices: int = 2) -> float:
    """Mean time in the system when each arrival joins the shortest of d random M/M/1 queues.

    Sum over i >= 1 of rho^((d^i - d)/(d - 1)), for many servers (Mitzenmacher 1996).
    """
    zero_or_more("utilization", utilization)
    d = whole("choices", choices)
    if utilization >= 1:
        return inf
    if d == 1:
        return 1 / (1 - utilization)
    total, power = 0.0, 0
    while True:
        term = utilization**power
        total += term
        if term < 1e-17 * total:
            return total
        power = d * power + d


def random_dispatch_wait(
    gpus: int, rate: float, max_batch: int = 100, batch_time: float = 100.0
) -> float:
    """Mean milliseconds a full batch queues at a GPU picked at random, batches leaving in step.

    One batch every slot of B/lambda; each GPU sees Geo/D/1 with p = 1/c and service s slots:
    p s (s-1) / (2 (1 - p s)). Exact for whole s; 0 when a batch ends within its slot.
    """
    slot = 1000 * whole("max_batch", max_batch) / above_zero("rate", rate)
    s = above_zero("batch_time", batch_time) / slot
    p = 1 / whole("gpus", gpus)
    if p * s >= 1:
        return inf
    return slot * p * max(s * (s - 1), 0.0) / (2 * (1 - p * s))


def slowdown_limit(utilization: float) -> float:
    """How many times slower one GPU may be before round robin buries it: 1 / rho."""
    return 1 / share("utilization", utilization)
