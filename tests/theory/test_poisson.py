"""Poisson counts against sums in exact and in 60-digit arithmetic, and at the ends of the scale."""

from decimal import Decimal, localcontext
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.theory import poisson


def exact_at_most(k: int, mean: float) -> float:
    """P(N <= k) by plain summation with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -(10**9), 10**9
        term = total = (-Decimal(mean)).exp()
        for n in range(1, k + 1):
            term = term * Decimal(mean) / n
            total += term
        return float(total)


@pytest.mark.parametrize(
    ("k", "mean"),
    [
        (0, 0.5),
        (3, 5.0),
        (98, 100.0),
        (99, 5.0),
        (40, 100.0),
        (420, 500.0),
        (580, 500.0),
        (999, 1e3),
    ],
)
def test_both_tails_equal_a_sum_with_sixty_digits(k, mean):
    low = exact_at_most(k, mean)
    assert poisson.at_most(k, mean) == pytest.approx(low, rel=1e-12, abs=1e-300)
    assert poisson.at_least(k + 1, mean) == pytest.approx(1 - low, rel=1e-12, abs=1e-15)


def test_a_far_tail_keeps_its_digits():
    # 1 - P(N <= 99) in doubles is 0; the sum in 60 digits knows better.
    with localcontext() as context:
        context.prec = 60
        total = sum((-Decimal(5)).exp() * Decimal(5) ** n / _factorial(n) for n in range(100, 200))
    assert poisson.at_least(100, 5.0) == pytest.approx(float(total), rel=1e-12)


def _factorial(n: int) -> Decimal:
    product = Decimal(1)
    for i in range(2, n + 1):
        product *= i
    return product


def test_a_million_arrivals_neither_overflow_nor_vanish():
    # The median of a Poisson lies within one of its mean; 5 sigma leave 2.87e-7, skewness aside.
    assert poisson.at_most(1_000_000, 1e6) == pytest.approx(0.5, abs=1e-3)
    assert poisson.at_least(1_005_000, 1e6) == pytest.approx(2.87e-7, rel=0.05)
    assert poisson.pmf(1_000_000, 1e6) == pytest.approx(1 / (2 * 3.141592653589793 * 1e6) ** 0.5)


def test_the_ends_of_the_scale_are_the_limits():
    assert poisson.at_most(5, 0.0) == 1.0
    assert poisson.at_least(1, 0.0) == 0.0
    assert poisson.at_most(5, inf) == 0.0
    assert poisson.at_least(5, inf) == 1.0
    assert poisson.mean_capped(7, inf) == 7.0
    assert poisson.mean_capped(7, 0.0) == 0.0
    assert poisson.mean_product_capped(7, inf) == 56.0
    assert poisson.mean_capped(10**9, 6.0) == pytest.approx(6.0)


@given(st.integers(0, 60), st.floats(0.01, 80))
def test_means_of_a_capped_count_equal_their_sums(cap, mean):
    chances = [poisson.pmf(n, mean) for n in range(400)]
    capped = sum(min(n, cap) * p for n, p in enumerate(chances))
    product = sum(min(n, cap) * (min(n, cap) + 1) * p for n, p in enumerate(chances))
    assert poisson.mean_capped(cap, mean) == pytest.approx(capped, rel=1e-9)
    assert poisson.mean_product_capped(cap, mean) == pytest.approx(product, rel=1e-9)


@settings(max_examples=25)
@given(st.integers(1, 40), st.floats(0.1, 60))
def test_the_area_under_a_capped_mean_is_its_integral(cap, mean):
    steps = 1000
    middle = ((i + 0.5) * mean / steps for i in range(steps))
    area = sum(poisson.mean_capped(cap, m) for m in middle) * mean / steps
    assert poisson.mean_capped_area(cap, mean) == pytest.approx(area, rel=1e-4, abs=1e-6)


def test_a_binomial_is_certain_when_nothing_can_fail():
    assert poisson.binomial_pmf(0, 12, 0.0) == 1.0
    assert poisson.binomial_pmf(1, 12, 0.0) == 0.0
    assert poisson.binomial_pmf(1, 3, 0.25) == pytest.approx(3 * 0.25 * 0.75**2)
