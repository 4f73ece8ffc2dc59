"""Arrival processes: the same seed gives the same instants, and the right ones."""

from collections import Counter
from itertools import pairwise
from math import inf, nan, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.workload import (
    PROCESSES,
    ArrivalError,
    diurnal,
    fork,
    gamma_renewal,
    on_off,
    on_off_cv,
    poisson,
    regular,
    stream,
)

S = 1_000_000
EVERY = pytest.mark.parametrize("name", sorted(PROCESSES))


def cv_of_gaps(instants: list[int]) -> float:
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    mean = sum(gaps) / len(gaps)
    return sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean


def test_a_seed_means_the_same_instants_for_ever() -> None:
    first = {name: process(100, 1, Random(1))[:5] for name, process in PROCESSES.items()}
    assert first == {
        "poisson": [1442, 20244, 34674, 37618, 44459],
        "gamma": [7271, 65402, 169524, 169524, 172794],
        "on_off": [2885, 3474, 4842, 6036, 8145],
        "diurnal": [23511, 27787, 38107, 59909, 103902],
        "regular": [0, 10000, 20000, 30000, 40000],
    }


@EVERY
@given(
    rate=st.floats(0.01, 50_000),
    seconds=st.floats(0, 0.05),
    seed=st.integers(0, 2**32),
)
def test_instants_are_whole_never_decrease_and_stay_inside(
    name: str, rate: float, seconds: float, seed: int
) -> None:
    instants = PROCESSES[name](rate, seconds, Random(seed))
    assert all(type(at) is int for at in instants)
    assert instants == sorted(instants)
    assert all(0 <= at < round(seconds * S) for at in instants)


@EVERY
def test_no_time_brings_no_arrivals(name: str) -> None:
    assert PROCESSES[name](1000, 0, Random(1)) == []


@pytest.mark.parametrize("name", ["poisson", "diurnal", "regular", "gamma", "on_off"])
def test_the_long_run_rate_is_the_rate_asked_for(name: str) -> None:
    # The widest of them, on_off with its defaults, has a standard error of 1.7 % here.
    count = len(PROCESSES[name](50, 4000, Random(11)))
    assert abs(count / 200_000 - 1) < 0.06


def test_poisson_counts_in_a_window_have_the_variance_of_their_mean() -> None:
    bins = Counter(at // 10_000 for at in poisson(1000, 100, Random(3)))
    counts = [bins[second] for second in range(10_000)]
    mean = sum(counts) / 10_000
    variance = sum((count - mean) ** 2 for count in counts) / 10_000
    # Mean 10 with standard error 0.032; the ratio is 1 with standard error 0.014.
    assert abs(mean - 10) < 0.13
    assert abs(variance / mean - 1) < 0.06


def test_many_arrivals_a_microsecond_do_not_bias_the_rate() -> None:
    count = len(poisson(4_000_000, 0.05, Random(5)))
    assert abs(count / 200_000 - 1) < 0.01


@pytest.mark.parametrize(("cv", "near"), [(0.25, 0.01), (1.0, 0.03), (2.0, 0.1), (4.0, 0.4)])
def test_gamma_gaps_have_the_variation_asked_for(cv: float, near: float) -> None:
    assert abs(cv_of_gaps(gamma_renewal(100, 1000, Random(2), cv=cv)) - cv) < near


def test_on_off_gaps_have_the_variation_of_the_formula() -> None:
    said = on_off_cv(50, 1.0, 4.0)
    assert abs(said - sqrt(1 + 2 * 250 * 1.0 / 1.25**2)) < 1e-12
    # A burst process is wild: 20,000 cycles bring it within a few percent.
    seen = cv_of_gaps(on_off(50, 10_000, Random(7), on_seconds=0.1, off_seconds=0.4))
    assert abs(seen / on_off_cv(50, 0.1, 0.4) - 1) < 0.03


def test_on_off_without_contrast_is_poisson() -> None:
    assert abs(cv_of_gaps(on_off(100, 1000, Random(2), off_ratio=1.0)) - 1) < 0.02


def test_a_formula_that_does_not_hold_is_not_used() -> None:
    with pytest.raises(ArrivalError, match=r"off_ratio 0\.5: the formula holds for silent pauses"):
        on_off_cv(50, 1.0, 4.0, off_ratio=0.5)


def test_diurnal_peaks_when_told_and_is_silent_at_night() -> None:
    hours = Counter(
        at // (3600 * S)
        for at in diurnal(1, 86_400, Random(4), swing=1.0, period_seconds=86_400, peak_seconds=0)
    )
    # Rate 1 + cos: 3,600 * 2 in the first hour (integral 7159), next to nothing around noon.
    assert abs(hours[0] - 7159) < 350
    assert hours[11] + hours[12] < 120


def test_diurnal_by_default_is_one_day_with_its_peak_at_noon() -> None:
    parts = Counter(at // (10 * S) for at in diurnal(1000, 60, Random(4)))
    assert parts[2] > parts[1] > parts[0]
    assert parts[3] > parts[4] > parts[5]


def test_regular_arrivals_fall_on_the_grid_and_leave_the_end_out() -> None:
    assert regular(4, 1) == [0, 250_000, 500_000, 750_000]
    assert regular(3, 1) == [0, 333_333, 666_667]


@EVERY
@pytest.mark.parametrize(
    ("rate", "seconds", "said"),
    [
        (-1, 1, "rate -1: must be more than 0"),
        (0, 1, "rate 0: must be more than 0"),
        (nan, 1, "rate nan: must be more than 0"),
        (inf, 1, "rate inf: must be"),
        (1e8, 0.001, "rate 1e.08: must be more than 0 and at most 1e.07"),
        (100, -1, "seconds -1: must be at least 0"),
        (100, nan, "seconds nan"),
        (100, inf, "seconds inf"),
        (1e6, 3600, "is 3,600,000,000 or more requests, over the limit of 20,000,000; lower"),
    ],
)
def test_traffic_that_nobody_can_simulate_is_refused(
    name: str, rate: float, seconds: float, said: str
) -> None:
    with pytest.raises(ArrivalError, match=said):
        PROCESSES[name](rate, seconds, Random(1))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: gamma_renewal(1, 1, r, cv=0), "cv 0: must be at least 0.01 and at most 100"),
        (lambda r: gamma_renewal(1, 1, r, cv=nan), "cv nan"),
        (lambda r: on_off(1, 1, r, on_seconds=0), "on_seconds 0: must be at least 0.001"),
        (lambda r: on_off(1, 1, r, off_seconds=inf), "off_seconds inf"),
        (lambda r: on_off(1, 1, r, off_ratio=2), "off_ratio 2: must be at least 0 and at most 1"),
        (lambda r: on_off(1e4, 60, r, 0.001, 1e6), r"rate 1e\+13: must be"),
        (lambda r: diurnal(1, 1, r, swing=1.5), "swing 1.5"),
        (lambda r: diurnal(1, 1, r, period_seconds=0), "period_seconds 0"),
        (lambda r: diurnal(1, 1, r, peak_seconds=nan), "peak_seconds nan: must be finite"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(call, said: str) -> None:
    with pytest.raises(ArrivalError, match=said):
        call(Random(1))


def test_one_stream_a_source_and_each_is_the_same_everywhere() -> None:
    assert stream(7, "arrivals").random() == 0.9830199221402697
    assert stream(7, "jitter").random() != stream(7, "arrivals").random()
    assert fork(Random(1)).random() == 0.2795270721961024
