"""The dock rule in closed form against sums, a small simulation, limits, and published values."""

from math import exp, factorial, inf, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.theory.checks import OutOfDomain
from labkit.theory.dock import Dock, PullDock, greedy_latency, stale_timer_batch

docks = st.builds(
    Dock,
    rate=st.floats(1, 20_000),
    max_wait=st.one_of(st.just(0.0), st.floats(0.001, 120)),
    max_batch=st.integers(1, 100),
)


@pytest.mark.parametrize(
    ("rate", "max_wait", "max_batch", "batch", "wait", "p95", "load"),
    [
        (100, 10, 100, 2, 7.5, 10, 5.0),
        (100, 20, 100, 3, 13.3333, 20, 3.3333),
        (100, 50, 100, 6, 29.1667, 50, 1.6667),
        (100, 80, 100, 9, 44.4444, 80, 1.1111),
        (100, 50, 6, 5.12266, 22.0118, 50, 1.9521),
        (1000, 50, 100, 51, 25.4902, 48.45, 1.9608),
        (2000, 50, 100, 96.5006, 23.9501, 46.3087, 2.0725),
        (5000, 50, 100, 100, 9.9, 19.407, 5.0),
        (10000, 20, 100, 100, 4.95, 9.7035, 10.0),
        (10000, 100, 100, 100, 4.95, 9.7035, 10.0),
        (10000, 10, 100, 96.5006, 4.79, 9.2617, 10.3626),
    ],
)
def test_fill_wait_and_load_of_known_docks(rate, max_wait, max_batch, batch, wait, p95, load):
    dock = Dock(rate, max_wait, max_batch)
    assert dock.mean_batch == pytest.approx(batch, rel=1e-5)
    assert dock.mean_wait == pytest.approx(wait, rel=1e-4)
    assert dock.wait_percentile(95) == pytest.approx(p95, rel=1e-5)
    assert dock.load == pytest.approx(load, rel=1e-4)


def test_a_window_of_fifty_sails_with_six_not_five():
    dock = Dock(100, 50)
    assert dock.mean_batch == pytest.approx(1 + 100 * 0.050)
    assert dock.mean_batch_seen == pytest.approx(41 / 6)


def simulated_waits(rate: float, max_wait: float, max_batch: int, count: int, seed: int):
    """Waits and batch sizes of a dock played out, one arrival after another; milliseconds."""
    rng, now, aboard = Random(seed), 0.0, []
    waits, sizes = [], []
    while len(waits) < count:
        now -= log(1 - rng.random()) * 1000 / rate
        if aboard and now > aboard[0] + max_wait:
            waits += [aboard[0] + max_wait - arrived for arrived in aboard]
            sizes.append(len(aboard))
            aboard = []
        aboard.append(now)
        if len(aboard) == max_batch:
            waits += [now - arrived for arrived in aboard]
            sizes.append(max_batch)
            aboard = []
    return sorted(waits), sizes


@pytest.mark.parametrize(
    ("rate", "max_wait", "max_batch"), [(100, 50, 100), (100, 50, 6), (300, 20, 8), (1900, 50, 100)]
)
def test_a_played_out_dock_says_the_same(rate, max_wait, max_batch):
    dock = Dock(rate, max_wait, max_batch)
    waits, sizes = simulated_waits(rate, max_wait, max_batch, 60_000, seed=3)
    assert sum(sizes) / len(sizes) == pytest.approx(dock.mean_batch, rel=0.01)
    assert sum(waits) / len(waits) == pytest.approx(dock.mean_wait, rel=0.01)
    for share in (0.1, 0.3, 0.5, 0.9, 0.99):
        wait = max_wait * share
        seen = sum(w > wait for w in waits) / len(waits)
        assert seen == pytest.approx(dock.sf(wait), abs=0.01)
    full = sum(size == max_batch for size in sizes) / len(sizes)
    assert full == pytest.approx(dock.p_full, abs=0.01)


def test_a_small_dock_equals_a_sum_written_out():
    mean, cap = 30 * 0.040, 3  # rate 30, 40 ms, four seats
    chance = [exp(-mean) * mean**n / factorial(n) for n in range(60)]
    batch = sum((1 + min(n, cap)) * p for n, p in enumerate(chance))
    later = sum(min(n, cap) * (min(n, cap) + 1) * p for n, p in enumerate(chance))
    dock = Dock(30, 40, 4)
    assert dock.mean_batch == pytest.approx(batch, rel=1e-12)
    assert dock.mean_wait == pytest.approx(1000 * later / (2 * 30 * batch), rel=1e-12)
    assert dock.p_full == pytest.approx(1 - sum(chance[:cap]), rel=1e-12)


@given(docks)
def test_the_mean_wait_is_the_area_under_its_tail(dock):
    assert dock.excess(0.0) == pytest.approx(dock.mean_wait, rel=1e-7, abs=1e-9)
    steps, end = 400, dock.max_wait
    area = sum(dock.sf((i + 0.5) * end / steps) for i in range(steps)) * end / steps
    assert area == pytest.approx(dock.mean_wait, rel=0.01, abs=end / steps)


@given(docks, st.floats(0, 150), st.floats(0, 150))
def test_the_tail_is_a_chance_that_only_falls(dock, one, other):
    early, late = sorted((one, other))
    assert 0.0 <= dock.sf(late) <= dock.sf(early) <= 1.0
    assert dock.cdf(early) == 1 - dock.sf(early)
    assert dock.excess(late) <= dock.excess(early) + 1e-9


@given(docks, st.floats(1, 99))
def test_a_percentile_is_the_least_wait_that_enough_do_not_exceed(dock, percent):
    wait = dock.wait_percentile(percent)
    rest = 1 - percent / 100
    assert 0 <= wait <= dock.max_wait
    assert dock.sf(wait) <= rest * (1 + 1e-9) + 1e-9
    if wait > 1e-6:
        assert dock.sf(wait * (1 - 1e-6)) >= rest * (1 - 1e-4)


@given(docks)
def test_a_batch_holds_between_one_and_all_and_load_follows(dock):
    assert 1 <= dock.mean_batch <= dock.max_batch + 1e-9
    assert dock.mean_batch <= dock.mean_batch_seen + 1e-9
    assert dock.load * dock.mean_batch == pytest.approx(dock.rate * dock.batch_time / 1000)
    in_dock = dock.rate * dock.mean_wait / 1000
    assert in_dock <= dock.max_batch  # Little's law: the dock has that many seats.


@given(docks, st.floats(1, 50))
def test_a_longer_window_never_makes_smaller_batches(dock, longer):
    patient = Dock(dock.rate, dock.max_wait + longer, dock.max_batch)
    assert patient.mean_batch >= dock.mean_batch - 1e-9
    assert patient.mean_wait >= dock.mean_wait - 1e-9


@pytest.mark.parametrize(("rate", "exactly"), [(379, True), (380, True), (381, False)])
def test_p95_is_the_window_itself_until_nineteen_follow(rate, exactly):
    assert (Dock(rate, 50).wait_percentile(95) == 50) is exactly


def test_without_a_window_everyone_leaves_alone_at_once():
    dock = Dock(100, 0)
    assert dock.mean_batch == 1
    assert dock.mean_wait == 0
    assert dock.sf(0) == 0
    assert dock.wait_percentile(99) == 0
    assert dock.load == 10


def test_a_boat_with_one_seat_never_waits():
    dock = Dock(100, 50, 1)
    assert dock.mean_batch == 1
    assert dock.p_full == 1
    assert dock.mean_wait == 0
    assert dock.wait_percentile(99) == 0


def test_with_no_timer_a_batch_fills_however_long_it_takes():
    dock = Dock(100, inf, 10)
    assert dock.mean_batch == 10
    assert dock.mean_wait == pytest.approx((10 - 1) / (2 * 100) * 1000)
    assert dock.excess(0) == pytest.approx(dock.mean_wait)
    # The k-th aboard waits for 10 - k more: P(W > w) is the mean of ten Poisson sums.
    tail = sum(sum(exp(-5) * 5**n / factorial(n) for n in range(10 - k)) for k in range(1, 11))
    assert dock.sf(50) == pytest.approx(tail / 10, rel=1e-12)


def test_a_million_in_a_window_is_as_good_as_no_timer():
    busy, endless = Dock(10_000, 100_000), Dock(10_000, inf)
    for percent in (50, 95, 99):
        assert busy.wait_percentile(percent) == pytest.approx(endless.wait_percentile(percent))
    crowd = Dock(1e7, 100_000, 1_000_000)
    assert crowd.mean_batch == pytest.approx(1e6)
    assert crowd.mean_wait == pytest.approx(49.99995, rel=1e-6)


def test_a_quiet_morning_waits_for_the_whole_window():
    assert Dock(0.001, 50).mean_wait == pytest.approx(50, rel=1e-4)


@pytest.mark.parametrize(
    ("max_wait", "p95"), [(10, 233), (20, 240), (50, 264), (80, 288), (100, 305)]
)
def test_p95_of_a_request_whose_gpu_died(max_wait, p95):
    dock = Dock(100, max_wait)
    assert round(dock.retried_percentile()) == p95
    assert round(dock.retried_percentile(detection=100)) == p95 + 100


def test_a_retry_played_out_says_the_same():
    waits, _ = simulated_waits(100, 50, 100, 40_000, seed=5)
    rng = Random(6)
    spent = sorted(wait + rng.random() * 100 for wait in waits)
    p95 = spent[int(0.95 * len(spent))] + 100 + 30
    assert Dock(100, 50).retried_percentile() == pytest.approx(p95, rel=0.01)


@pytest.mark.parametrize(("rate", "fill"), [(10_000, 90.99), (2_500, 63.30)])
def test_a_timer_that_a_full_batch_leaves_running_cuts_the_next_one(rate, fill):
    assert stale_timer_batch(rate) == pytest.approx(fill, abs=0.005)
    assert stale_timer_batch(rate) < Dock(rate, 50).mean_batch


def test_a_stale_timer_played_out_says_the_same():
    rng, now, timer, aboard, batches = Random(7), 0.0, inf, 0, 0
    for _ in range(300_000):
        now -= log(1 - rng.random()) * 1000 / 2500
        if now >= timer:
            batches += aboard > 0
            aboard, timer = 0, inf
        aboard += 1
        if aboard == 100:
            batches, aboard = batches + 1, 0
        elif timer == inf:
            timer = now + 50
    assert 300_000 / batches == pytest.approx(stale_timer_batch(2500), rel=0.01)


def test_a_stale_timer_is_harmless_where_no_batch_fills():
    assert stale_timer_batch(100) == pytest.approx(Dock(100, 50).mean_batch)


def test_one_gpu_that_pulls_carries_what_two_are_pushed():
    dock = PullDock(100, 50)
    assert dock.mean_batch == pytest.approx(10.0067, abs=1e-4)
    assert dock.mean_wait + 100 == pytest.approx(150)
    assert dock.wait_percentile(95) + 100 == pytest.approx(195, abs=0.01)
    assert dock.utilization < 1


@pytest.mark.parametrize(("rate", "max_wait"), [(10, 50), (30, 20), (10, 0), (20, 130), (100, 50)])
def test_a_pulling_gpu_played_out_says_the_same(rate, max_wait):
    rng, arrivals, now = Random(11), [], 0.0
    for _ in range(60_000):
        now -= log(1 - rng.random()) * 1000 / rate
        arrivals.append(now)
    waits, batches, free_at, first = [], 0, 0.0, 0
    while first < len(arrivals):
        leaves = max(free_at, arrivals[first] + max_wait)
        last = first
        while last < len(arrivals) and arrivals[last] <= leaves:
            waits.append(leaves - arrivals[last])
            last += 1
        first, batches, free_at = last, batches + 1, leaves + 100
    dock = PullDock(rate, max_wait)
    assert len(waits) / batches == pytest.approx(dock.mean_batch, rel=0.02)
    assert sum(waits) / len(waits) == pytest.approx(dock.mean_wait, rel=0.02)
    waits.sort()
    for percent in (20, 50, 95):
        seen = waits[int(len(waits) * percent / 100)]
        assert dock.wait_percentile(percent) == pytest.approx(seen, abs=1.5)
    for wait in (0.0, max_wait / 2, 40.0, 75.0, 120.0):
        share = sum(w > wait for w in waits) / len(waits)
        assert dock.sf(wait) == pytest.approx(share, abs=0.01)


@given(st.floats(1, 200), st.floats(0, 150), st.floats(1, 99))
def test_a_pulling_gpus_percentile_is_where_its_tail_crosses(rate, max_wait, percent):
    dock = PullDock(rate, max_wait)
    wait = dock.wait_percentile(percent)
    assert dock.sf(wait) <= 1 - percent / 100 + 1e-9
    assert dock.sf(wait - 1e-6) >= 1 - percent / 100 - 1e-6
    assert dock.sf(-1) == 1


def test_a_pulling_gpu_without_a_timer_is_the_greedy_server():
    a = 10 * 0.1
    assert greedy_latency(10) == pytest.approx(100 * (exp(-a) + 1.5 * a) / (a + exp(-a)))
    assert greedy_latency(10) == pytest.approx(136.553, abs=5e-4)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Dock(-1), r"rate -1: must be a finite number above 0"),
        (lambda: Dock(float("nan")), "rate nan"),
        (lambda: Dock(inf), "rate inf"),
        (lambda: Dock(100, -5), "max_wait -5: must be 0 or more, or inf"),
        (lambda: Dock(100, float("nan")), "max_wait nan"),
        (lambda: Dock(100, 50, 0), "max_batch 0: must be 1 or more"),
        (lambda: Dock(100, 50, 2.5), "max_batch 2.5: must be a whole number"),
        (lambda: Dock(100, 50, 100, 0), "batch_time 0"),
        (lambda: Dock(100).wait_percentile(100), "must be above 0 and below 1"),
        (lambda: Dock(100).retried_percentile(detection=-1), "detection -1"),
        (lambda: stale_timer_batch(100, inf), "max_wait inf"),
        (lambda: PullDock(100, inf), "max_wait inf"),
    ],
)
def test_a_dock_that_cannot_be_names_the_value(build, says):
    with pytest.raises(OutOfDomain, match=says):
        build()
