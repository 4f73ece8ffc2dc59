"""The capacity sum, the table that defends a timer, spares, and half a fleet that dies."""

from math import comb, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.theory import capacity as c
from labkit.theory.checks import OutOfDomain
from labkit.theory.dock import Dock


def test_ten_is_the_floor_and_eighteen_the_answer():
    assert c.floor_gpus(10_000) == 10
    assert c.at_target(c.full_load(10_000), 0.65) == 16
    assert c.needed_gpus(10_000) == 18
    assert c.full_load(10_000) / 18 == pytest.approx(0.556, abs=5e-4)


@pytest.mark.parametrize(("target", "needed"), [(0.60, 19), (0.65, 18), (0.70, 17), (1.0, 12)])
def test_the_target_moves_the_answer(target, needed):
    assert c.needed_gpus(10_000, target=target) == needed


@pytest.mark.parametrize(
    ("max_batch", "slots", "servers"), [(100, 1, 10), (50, 1, 20), (6, 1, 167), (30, 4, 9)]
)
def test_servers_follow_from_batch_and_slots(max_batch, slots, servers):
    assert c.floor_gpus(10_000, max_batch, slots=slots) == servers


def test_a_rounding_error_does_not_cost_a_gpu():
    assert 10_000 * 0.1 / 100 / 0.1 == 100.0
    assert c.round_up(0.1 + 0.2) == 1
    assert c.round_up((0.1 + 0.2) / 0.1) == 3  # 3.0000000000000004
    assert c.round_up(15.38) == 16
    assert c.round_up(3.001) == 4
    assert c.floor_gpus(700, 100, 1000 / 7 * 7) == 7
    assert c.at_target(6.5, 0.65) == 10  # 6.5 / 0.65 = 10 exactly, in decimals.


@given(st.integers(1, 10_000), st.sampled_from([0.1, 0.3, 0.6, 0.65, 0.7, 0.9]))
def test_whole_numbers_stay_whole(gpus, target):
    assert c.at_target(gpus * target, target) == gpus
    assert c.more_than(float(gpus)) == gpus + 1


@given(st.floats(1, 1e6), st.floats(0.01, 1), st.integers(0, 9))
def test_what_is_needed_is_just_enough(rate, target, spares):
    load = c.full_load(rate)
    needed = c.needed_gpus(rate, target=target, spares=spares) - spares
    assert load / needed <= target * (1 + 1e-9)
    assert needed == 1 or load / (needed - 1) > target * (1 - 1e-9)
    assert needed >= c.floor_gpus(rate)


def test_equal_to_the_load_is_not_enough():
    assert c.more_than(5.0) == 6
    assert c.more_than(4.999) == 5
    assert c.more_than(1 / 0.3 * 0.3 * 5) == 6
    assert c.more_than(0.0) == 1


def test_the_table_that_defends_fifty():
    columns = c.defend(100)
    gpus = [(w.stable, w.no_queue, w.at_target, w.with_spares) for w in columns]
    assert gpus == [(6, 10, 8, 10), (4, 5, 6, 8), (2, 2, 3, 5), (2, 2, 2, 4), (1, 1, 2, 4)]
    assert [round(w.latency_mean, 1) for w in columns] == [107.5, 113.3, 129.2, 144.4, 154.5]
    assert [w.latency_percentile() for w in columns] == [110, 120, 150, 180, 200]
    retries = [[round(w.retry_percentile(d)) for w in columns] for d in (0, 100, 200)]
    assert retries == [
        [233, 240, 264, 288, 305],
        [333, 340, 364, 388, 405],
        [433, 440, 464, 488, 505],
    ]
    assert [round(w.largest_detection()) for w in columns] == [267, 260, 236, 212, 195]


def test_where_batches_fill_the_timer_says_nothing_about_queues():
    (busy,) = c.defend(10_000, [50])
    assert busy.no_queue is None
    assert busy.stable == 11


def test_a_timer_of_zero_or_for_ever():
    assert c.no_queue_gpus(0) is None
    assert c.no_queue_gpus(inf) == 1
    assert c.no_queue_gpus(0.1) == 1000
    assert c.no_queue_gpus(33) == 4


@pytest.mark.parametrize(
    ("gateways", "load"), [(1, 10.0), (5, 10.4), (10, 19.6), (20, 38.5), (100, 166.7)]
)
def test_splitting_the_batcher_multiplies_the_load(gateways, load):
    assert round(c.split_load(10_000, gateways), 1) == load


@given(st.integers(20, 200))
def test_while_the_timer_decides_a_split_costs_a_timer_a_gateway(gateways):
    assert c.split_load(10_000, gateways) == pytest.approx(
        gateways * 100 / (50 + gateways / 10), rel=1e-6
    )


def test_a_million_requests_cost_what_the_gpus_cost_meanwhile():
    assert c.cost_per_million(18, 2.5, 10_000) == pytest.approx(18 * 2.5 * 100 / 3600)
    assert c.cost_per_million(5, 2.5, 100) > 70 * c.cost_per_million(18, 0.6, 10_000)


def test_ten_of_twelve_are_nearly_always_up():
    assert c.availability(10, 12, 0.99) == pytest.approx(0.999794, abs=5e-7)
    assert c.availability(10, 10, 0.99) == pytest.approx(0.99**10)
    assert c.availability(0, 5, 0.5) == 1.0
    assert c.availability(3, 5, 1.0) == 1.0


@given(st.integers(1, 15), st.integers(0, 5), st.floats(0.01, 0.999))
def test_availability_is_a_sum_of_binomials(needed, spares, each):
    total = needed + spares
    terms = (comb(total, n) * each**n * (1 - each) ** (total - n) for n in range(needed, total + 1))
    assert c.availability(needed, total, each) == pytest.approx(sum(terms), rel=1e-9)


def test_the_fewest_spares_that_reach_a_goal():
    assert c.spares_for(10, 0.99, 0.999) == 2
    assert c.spares_for(10, 0.99, 0.9999) == 3
    assert c.availability(10, 12, 0.99) < 0.9999 <= c.availability(10, 13, 0.99)
    assert c.spares_for(10, 1.0, 0.9999) == 0


def test_gpus_that_are_hardly_ever_up_are_refused_instead_of_counted_for_ever():
    with pytest.raises(c.OutOfDomain, match=r"each 0.0001: 1000 spares are not enough for 10"):
        c.spares_for(10, 0.0001, 0.9)


def test_half_of_eighteen_die():
    half = c.AfterLoss(10_000, 18, 9)
    assert half.ceiling == 9_000
    assert half.lost_in_flight == pytest.approx(500)
    assert half.shed() == pytest.approx(0.10)
    assert half.shed(8_500 / 9_000) == pytest.approx(0.15)
    assert half.shed(0.65) == pytest.approx(0.415)
    assert half.first_late_arrival() == pytest.approx(3.1)
    assert half.first_late_arrival(budget=150) == 0.0


def test_survivors_that_keep_up_miss_nothing():
    few = c.AfterLoss(10_000, 18, 7)
    assert few.shed() == 0.0
    assert few.first_late_arrival() == inf
    assert c.AfterLoss(10_000, 18, 0).lost_in_flight == 0


def test_a_gpu_never_holds_more_than_a_batch():
    assert c.AfterLoss(100_000, 18, 9).lost_in_flight == 900


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: c.floor_gpus(-1), "rate -1"),
        (lambda: c.floor_gpus(float("nan")), "rate nan"),
        (lambda: c.floor_gpus(100, 0), "max_batch 0"),
        (lambda: c.floor_gpus(100, slots=0), "slots 0"),
        (lambda: c.needed_gpus(100, target=0), "target 0: must be above 0 and at most 1"),
        (lambda: c.needed_gpus(100, target=65), "target 65"),
        (lambda: c.needed_gpus(100, spares=-1), "spares -1"),
        (lambda: c.split_load(100, 0), "gateways 0"),
        (lambda: c.availability(3, 2, 0.9), r"total 2: must be at least needed \(3\)"),
        (lambda: c.spares_for(3, 0.9, 1.0), "goal 1.0: must be above 0 and below 1"),
        (lambda: c.AfterLoss(100, 3, 3), r"lost 3: must be fewer than gpus \(3\)"),
        (lambda: c.Window(Dock(100), target=2), "target 2"),
    ],
)
def test_what_has_no_answer_names_the_value(call, says):
    with pytest.raises(OutOfDomain, match=says):
        call()
