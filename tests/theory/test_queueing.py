"""Queues against published values, other methods, a small simulation, and each other."""

from heapq import heapreplace
from math import exp, factorial, inf, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.theory import queueing as q
from labkit.theory.checks import OutOfDomain


def test_littles_law_counts_who_is_inside():
    assert q.littles_law(10_000, 104.95) == pytest.approx(1049.5)


@pytest.mark.parametrize(("servers", "load", "lost"), [(5, 3, 0.110054348), (10, 5, 0.018384570)])
def test_erlang_b(servers, load, lost):
    assert q.erlang_b(servers, load) == pytest.approx(lost, abs=5e-10)


@given(st.integers(1, 30), st.floats(0.01, 40))
def test_erlang_b_equals_the_ratio_it_is_defined_by(servers, load):
    terms = [load**n / factorial(n) for n in range(servers + 1)]
    assert q.erlang_b(servers, load) == pytest.approx(terms[-1] / sum(terms), rel=1e-12)


def test_erlang_b_of_ten_thousand_servers_does_not_overflow():
    assert 0 < q.erlang_b(10_000, 9_900) < 0.01


@pytest.mark.parametrize(
    ("servers", "load", "waits", "mean"),
    [(2, 1.6, 0.711111, 1.777778), (10, 9, 0.668732, 0.668732), (18, 10, 0.0159283, 0.00199103)],
)
def test_erlang_c_and_its_wait(servers, load, waits, mean):
    assert q.erlang_c(servers, load) == pytest.approx(waits, rel=1e-5)
    assert q.mmc_wait(servers, load) == pytest.approx(mean, rel=1e-5)


@given(st.integers(1, 50), st.floats(0.01, 0.999))
def test_more_servers_at_the_same_load_wait_less(servers, utilization):
    load = utilization * servers
    assert 0 <= q.erlang_c(servers, load) <= 1
    assert q.mmc_wait(servers + 1, load) < q.mmc_wait(servers, load)


def test_one_exponential_server_is_the_textbook():
    assert q.erlang_c(1, 0.7) == pytest.approx(0.7)
    assert q.mmc_wait(1, 0.7) == pytest.approx(0.7 / 0.3)
    assert q.mm1_sojourn_percentile(0.7, 95) == pytest.approx(log(20) / 0.3)


def test_the_tail_of_a_wait_and_its_percentile_are_inverse():
    wait = q.mmc_wait_percentile(10, 9, 95)
    assert q.mmc_wait_tail(10, 9, wait) == pytest.approx(0.05)
    assert q.mmc_wait_percentile(18, 10, 95) == 0.0


def test_what_cannot_keep_up_waits_for_ever():
    assert q.erlang_c(2, 2.0) == 1.0
    assert q.mmc_wait(2, 2.0) == inf
    assert q.mmc_wait_tail(2, 2.5, 10) == 1.0
    assert q.mmc_wait_percentile(2, 3.0, 50) == inf
    assert q.mm1_sojourn_percentile(1.0, 50) == inf
    assert q.md1_wait(1.2) == inf
    assert q.mdc_wait(3, 3.0) == inf
    assert q.bulk_service_wait(10, 10) == inf
    assert q.batch_service_latency(10_000, 0.1438, 1.8874) == inf
    assert q.inoue_bound(10_000, 0.1438, 1.8874) == inf
    assert q.choices_sojourn(1.0) == inf
    assert q.random_dispatch_wait(10, 10_000) == inf


@pytest.mark.parametrize(
    ("servers", "utilization", "wait"),
    [(2, 0.8, 0.903284), (3, 0.9, 1.377912), (8, 0.8, 0.151954), (18, 0.9, 0.165487)],
)
def test_constant_service_on_many_servers(servers, utilization, wait):
    assert q.mdc_wait(servers, servers * utilization) == pytest.approx(wait, abs=5e-7)


@pytest.mark.parametrize("utilization", [0.05, 0.3, 0.5, 0.9, 0.99, 0.99999])
def test_constant_service_on_one_server_is_pollaczek_and_khinchine(utilization):
    assert q.mdc_wait(1, utilization) == pytest.approx(q.md1_wait(utilization), rel=1e-9)


@pytest.mark.parametrize(
    ("servers", "utilization"), [(2, 0.5), (2, 0.9), (5, 0.8), (18, 0.95), (100, 0.97), (900, 0.99)]
)
def test_the_series_and_the_roots_agree(servers, utilization):
    load = servers * utilization
    series, roots = q.mdc_wait_series(servers, load), q.mdc_wait_roots(servers, load)
    assert series == pytest.approx(roots, rel=1e-8)


def test_a_played_out_pool_of_constant_servers_says_the_same():
    rng, now, total = Random(2), 0.0, 0.0
    free_at = [0.0] * 3
    for _ in range(200_000):
        now -= log(1 - rng.random()) / (3 * 0.8)
        starts = max(now, free_at[0])
        heapreplace(free_at, starts + 1.0)
        total += starts - now
    assert total / 200_000 == pytest.approx(q.mdc_wait(3, 3 * 0.8), rel=0.03)


@given(st.integers(1, 40), st.floats(0.05, 0.98))
def test_constant_service_waits_between_half_of_exponential_and_all_of_it(servers, utilization):
    constant, exponential = (
        q.mdc_wait(servers, servers * utilization),
        q.mmc_wait(servers, servers * utilization),
    )
    assert 0 <= constant < exponential
    if servers == 1:
        assert constant == pytest.approx(exponential / 2)


def test_full_batches_hardly_queue_below_the_knee():
    assert q.full_batch_wait(9, 8_900) == pytest.approx(3.327, abs=5e-4)
    assert q.full_batch_wait(11, 10_000) == pytest.approx(0.0008, abs=5e-5)
    assert q.full_batch_wait(9, 9_000) == inf


def test_full_batches_played_out_say_the_same():
    rng, now, total = Random(4), 0.0, 0.0
    free_at = [0.0] * 3
    for _ in range(60_000):
        now += sum(-log(1 - rng.random()) for _ in range(5)) * 1000 / 140
        starts = max(now, free_at[0])
        heapreplace(free_at, starts + 100)
        total += starts - now
    assert total / 60_000 == pytest.approx(q.full_batch_wait(3, 140, 5), rel=0.05)


def test_a_bulk_server_with_exponential_service():
    assert q.bulk_service_wait(5, 10) == pytest.approx(1.290778, abs=5e-7)
    assert q.bulk_service_wait(0.7, 1) == pytest.approx(0.7 / 0.3)  # One at a time is M/M/1.
    # A bus without a cap finds whoever came in an exponential time: r / (1-r) = rate.
    assert q.bulk_service_wait(2, 10_000) == pytest.approx(q.bulk_service_wait(2, 100_000))


def test_a_server_whose_batches_take_longer_when_larger():
    rate = 1000 * 0.5 / 0.1438
    assert q.batch_service_latency(rate, 0.1438, 1.8874) == pytest.approx(5.901865, abs=1e-6)
    assert q.inoue_bound(rate, 0.1438, 1.8874) == pytest.approx(5.901867, abs=1e-6)


@pytest.mark.parametrize(("rate", "alpha", "tau0"), [(200, 1.0, 3.0), (50, 2.0, 0.5), (10, 0, 100)])
def test_a_batch_server_played_out_says_the_same(rate, alpha, tau0):
    rng, now, arrivals = Random(9), 0.0, []
    for _ in range(150_000):
        now -= log(1 - rng.random()) * 1000 / rate
        arrivals.append(now)
    total, free_at, first = 0.0, 0.0, 0
    while first < len(arrivals):
        starts = max(free_at, arrivals[first])
        last = first
        while last < len(arrivals) and arrivals[last] <= starts:
            last += 1
        free_at = starts + alpha * (last - first) + tau0
        total += sum(free_at - arrived for arrived in arrivals[first:last])
        first = last
    expected = q.batch_service_latency(rate, alpha, tau0)
    assert total / len(arrivals) == pytest.approx(expected, rel=0.01)


@given(st.floats(0.001, 0.95), st.floats(0.05, 5), st.floats(0.01, 20))
def test_inoues_bound_is_one(rho, alpha, tau0):
    rate = 1000 * rho / alpha
    exact = q.batch_service_latency(rate, alpha, tau0)
    assert exact <= q.inoue_bound(rate, alpha, tau0) * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "tau0"), [(10, 0.5), (50, 1.0), (20, 3.0)])
def test_inoues_bound_is_tight_where_few_come(rate, tau0):
    exact = q.batch_service_latency(rate, 1.0, tau0)
    assert q.inoue_bound(rate, 1.0, tau0) == pytest.approx(exact, rel=2e-4)


def test_a_batch_server_with_constant_service_is_greedy():
    a = 10 * 0.1
    greedy = 100 * (exp(-a) + 1.5 * a) / (a + exp(-a))
    assert q.batch_service_latency(10, 0.0, 100.0) == pytest.approx(greedy)


def test_who_boards_first_waits_less():
    assert q.priority_waits([0.3, 0.5]) == pytest.approx([0.571429, 2.857143], abs=5e-7)
    first, second = q.priority_waits([0.3, 0.9])
    assert first == pytest.approx(0.5 / 0.7)  # The server always works, half a service in hand.
    assert second == inf


@given(st.lists(st.floats(0.01, 0.3), min_size=1, max_size=3), st.floats(0, 2))
def test_priorities_share_out_the_wait_and_save_none(loads, scv):
    waits = q.priority_waits(loads, scv)
    shared = sum(load * wait for load, wait in zip(loads, waits, strict=True))
    total = sum(loads)
    assert waits == sorted(waits)
    assert shared == pytest.approx(total * q.mg1_wait(total, scv))  # Kleinrock's conservation law.


def test_two_choices_are_nearly_as_good_as_all():
    assert q.choices_sojourn(0.9) == pytest.approx(2.614057, abs=5e-7)
    assert q.choices_sojourn(0.9, 1) == pytest.approx(10)
    assert q.choices_sojourn(0.9, 3) < q.choices_sojourn(0.9, 2)
    assert q.choices_sojourn(0.0) == 1


@pytest.mark.parametrize(("gpus", "wait"), [(18, 56.25), (16, 75), (12, 225)])
def test_random_dispatch_queues_beside_idle_gpus(gpus, wait):
    assert q.random_dispatch_wait(gpus, 10_000) == pytest.approx(wait)


def test_random_dispatch_played_out_says_the_same():
    rng, free_at, total = Random(8), [0] * 18, 0
    for batch in range(400_000):
        gpu = int(rng.random() * 18)
        starts = max(batch, free_at[gpu])
        total += starts - batch
        free_at[gpu] = starts + 10
    assert 10 * total / 400_000 == pytest.approx(q.random_dispatch_wait(18, 10_000), rel=0.03)


def test_a_batch_that_ends_within_its_slot_never_queues():
    assert q.random_dispatch_wait(4, 500) == 0.0


def test_round_robin_bears_a_gpu_slower_by_one_over_rho():
    assert q.slowdown_limit(10 / 18) == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: q.erlang_b(-1, 1.0), "servers -1: must be 0 or more"),
        (lambda: q.erlang_c(0, 1.0), "servers 0: must be 1 or more"),
        (lambda: q.mmc_wait(2, float("nan")), "load nan"),
        (lambda: q.mdc_wait(2, -0.5), "load -0.5: must be a finite number, 0 or more"),
        (lambda: q.bulk_service_wait(0, 10), "rate 0: must be a finite number above 0"),
        (lambda: q.batch_service_latency(10, 0, 0), "alpha \\+ tau0 0"),
        (lambda: q.priority_waits([0.3, -0.1]), "load -0.1"),
        (lambda: q.choices_sojourn(0.5, 0), "choices 0"),
        (lambda: q.mm1_sojourn_percentile(0.5, 100), "below 1"),
        (lambda: q.slowdown_limit(0), "utilization 0: must be above 0"),
    ],
)
def test_what_has_no_answer_names_the_value(call, says):
    with pytest.raises(OutOfDomain, match=says):
        call()
