"""When requests come: arrival processes as lists of instants in whole microseconds.

Every process covers the half-open time [0, seconds), never decreases, and draws from the given
stream by `rng.random()` alone. Gaps are rounded to 1/1024 of a microsecond and added as integers:
the sum is exact, and the last bit of a platform's logarithm cannot move an instant.
"""

from collections.abc import Callable
from math import cos, isfinite, log, pi, sqrt
from random import Random
from typing import Final

from labkit.core.units import S, from_seconds
from labkit.workload.draws import exponential, gamma

MOST_ARRIVALS: Final = 20_000_000
"""More than this many are refused: about half an hour at 10,000 requests a second."""

MOST_RATE: Final = 10_000_000.0
"""The highest rate: ten requests in the lab's smallest tick."""

FINE: Final = 10
"""Binary digits kept below the microsecond while gaps are added up."""

TICK: Final = S << FINE
"""Fine ticks in a second."""

Process = Callable[[float, float, Random], list[int]]
"""What every arrival process can be called as: rate, seconds, stream."""


class ArrivalError(ValueError):
    """Arrivals that cannot be: says what, the value, and the remedy."""


def poisson(rate: float, seconds: float, rng: Random) -> list[int]:
    """Arrivals that know nothing of each other: exponential gaps of mean 1/rate seconds."""
    check_traffic(rate, seconds)
    mean = TICK / rate
    end = from_seconds(seconds) << FINE
    random = rng.random
    instants: list[int] = []
    append = instants.append
    now = int(0.5 - mean * log(1.0 - random()))
    while now < end:
        append(now >> FINE)
        now += int(0.5 - mean * log(1.0 - random()))
    return instants


def gamma_renewal(rate: float, seconds: float, rng: Random, cv: float = 2.0) -> list[int]:
    """Gamma gaps of mean 1/rate and coefficient of variation `cv`.

    `cv` 1 is Poisson, less is more regular, more is burstier. The first arrival comes after one
    whole gap, so at a high `cv` a short run may hold far fewer than rate * seconds.
    """
    check_traffic(rate, seconds)
    _check("cv", cv, low=0.01, high=100.0, hint="`regular` has none")
    shape = 1.0 / (cv * cv)
    scale = TICK / (rate * shape)
    end = from_seconds(seconds) << FINE
    instants: list[int] = []
    now = int(0.5 + scale * gamma(rng, shape))
    while now < end:
        instants.append(now >> FINE)
        _check_count(len(instants), rate, seconds)
        now += int(0.5 + scale * gamma(rng, shape))
    return instants


def on_off(
    rate: float,
    seconds: float,
    rng: Random,
    on_seconds: float = 1.0,
    off_seconds: float = 4.0,
    off_ratio: float = 0.0,
) -> list[int]:
    """Bursts: a two-state Markov-modulated Poisson process whose long-run rate is `rate`.

    On and off periods are exponential with the given means in seconds. While off, requests come
    at `off_ratio` times the rate while on (0: none). The first state is drawn by its share of
    time, so the process has no warm-up.
    """
    check_traffic(rate, seconds)
    _check("on_seconds", on_seconds, low=0.001)
    _check("off_seconds", off_seconds, low=0.001)
    _check("off_ratio", off_ratio, low=0.0, high=1.0)
    cycle = on_seconds + off_seconds
    on_rate = rate * cycle / (on_seconds + off_ratio * off_seconds)
    check_traffic(on_rate, min(on_seconds, seconds))
    end = from_seconds(seconds) << FINE
    burst = rng.random() * cycle < on_seconds
    instants: list[int] = []
    began = 0
    while began < end:
        length = on_seconds if burst else off_seconds
        ended = began + int(0.5 + length * TICK * exponential(rng))
        level = on_rate if burst else on_rate * off_ratio
        _fill(instants, began, min(ended, end), level, rng)
        _check_count(len(instants), rate, seconds)
        began, burst = ended, not burst
    return instants


def on_off_cv(rate: float, on_seconds: float, off_seconds: float, off_ratio: float = 0.0) -> float:
    """The coefficient of variation of the gaps of `on_off` that is silent while off.

    With b the rate while on, x and y the rates of leaving on and off:
    cv^2 = 1 + 2 b x / (x + y)^2 (Kuczura, Bell System Technical Journal 52, 1973).
    """
    if off_ratio:
        raise ArrivalError(f"off_ratio {off_ratio:g}: the formula holds for silent pauses, 0")
    leave_on, leave_off = 1.0 / on_seconds, 1.0 / off_seconds
    on_rate = rate * (on_seconds + off_seconds) / on_seconds
    return sqrt(1.0 + 2.0 * on_rate * leave_on / (leave_on + leave_off) ** 2)


def diurnal(
    rate: float,
    seconds: float,
    rng: Random,
    swing: float = 0.6,
    period_seconds: float | None = None,
    peak_seconds: float | None = None,
) -> list[int]:
    """Day and night: Poisson arrivals of rate * (1 + swing * cos(phase)), by thinning.

    `swing` 0 is steady, 1 falls to nothing at night. By default the run is one whole day, midnight
    to midnight; the peak comes at `peak_seconds`, else in the middle of the period (thinning:
    Lewis and Shedler, Naval Research Logistics 26, 1979).
    """
    check_traffic(rate, seconds)
    _check("swing", swing, low=0.0, high=1.0)
    period = (seconds or 1.0) if period_seconds is None else period_seconds
    _check("period_seconds", period, low=0.0, open_low=True)
    peak = period / 2 if peak_seconds is None else peak_seconds
    _check("peak_seconds", peak)
    highest = rate * (1.0 + swing)
    turn = 2.0 * pi / (period * S)
    noon = peak * S
    random = rng.random
    return [
        at
        for at in poisson(highest, seconds, rng)
        if random() * (1.0 + swing) < 1.0 + swing * cos(turn * (at - noon))
    ]


def regular(rate: float, seconds: float, rng: Random | None = None) -> list[int]:
    """Evenly spaced arrivals, the first at 0; no chance in it, the stream is not used."""
    check_traffic(rate, seconds)
    end = from_seconds(seconds)
    instants = [round(i * S / rate) for i in range(int(rate * seconds) + 2)]
    return [at for at in instants if at < end]


PROCESSES: Final[dict[str, Process]] = {
    "poisson": poisson,
    "gamma": gamma_renewal,
    "on_off": on_off,
    "diurnal": diurnal,
    "regular": regular,
}
"""The arrival processes by name."""


def check_traffic(rate: float, seconds: float) -> None:
    """Refuse a rate (per second) or a length (seconds) that nobody can simulate."""
    _check("rate", rate, low=0.0, high=MOST_RATE, hint="requests a second", open_low=True)
    _check("seconds", seconds, low=0.0)
    _check_count(rate * seconds, rate, seconds)


def _check_count(count: float, rate: float, seconds: float) -> None:
    if count > MOST_ARRIVALS:
        raise ArrivalError(
            f"rate {rate:g} a second for {seconds:g} s is {count:,.0f} or more requests, over the "
            f"limit of {MOST_ARRIVALS:,}; lower the rate or the seconds"
        )


def _check(
    name: str,
    value: float,
    low: float | None = None,
    high: float | None = None,
    hint: str = "",
    open_low: bool = False,
) -> None:
    below = low is not None and (value <= low if open_low else value < low)
    if isfinite(value) and not below and (high is None or value <= high):
        return
    bounds = "finite" if low is None else f"{'more than' if open_low else 'at least'} {low:g}"
    bounds += "" if high is None else f" and at most {high:g}"
    raise ArrivalError(f"{name} {value:g}: must be {bounds}{f' ({hint})' if hint else ''}")


def _fill(instants: list[int], begin: int, end: int, rate: float, rng: Random) -> None:
    """Append the Poisson arrivals of one period given in fine ticks."""
    if not rate:
        return
    mean = TICK / rate
    now = begin + int(0.5 + mean * exponential(rng))
    while now < end:
        instants.append(now >> FINE)
        now += int(0.5 + mean * exponential(rng))
