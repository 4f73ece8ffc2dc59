"""What became of every request, and how long it took."""

import pytest

from labkit.core.books import Books, percentile, summary, summary_of
from labkit.core.messages import Answer, Depart, End, Outcome, Reason, Receipt, Request, Stop
from labkit.core.units import MS, S

RECEIPT = Receipt(Reason.FULL, 0, None, (), ())
NOTHING = {"mean": None, "p50": None, "p95": None, "p99": None, "max": None}


def depart(batch: int, *arrived_ms: int, gpus: tuple[int, ...] = (0,)) -> Depart:
    rows = tuple(Request(i, arrived_at=at * MS) for i, at in enumerate(arrived_ms))
    return Depart(batch, gpus, rows, RECEIPT)


def answer(left: Depart) -> Answer:
    return Answer(left.batch_id, left.rows, ("",) * len(left.rows))


@pytest.mark.parametrize(
    ("count", "percent", "rank"),
    [
        (1, 50, 1), (1, 99, 1), (2, 50, 1), (3, 50, 2), (20, 95, 19), (21, 95, 20),
        (100, 50, 50), (100, 95, 95), (100, 99, 99), (101, 99, 100), (100, 100, 100),
        (100, 0, 1), (1_000, 99.9, 999), (100, 7, 7), (100, 55, 55), (100, 14, 14),
    ],
)  # fmt: skip
def test_a_percentile_is_the_value_at_the_nearest_rank(count: int, percent: float, rank: int):
    assert percentile(range(1, count + 1), percent) == rank


def test_nobody_answered_has_no_percentile():
    assert percentile([], 95) is None
    assert summary([]) == summary_of({}) == NOTHING


def test_a_summary_is_in_milliseconds():
    assert summary([1_000, 2_000, 6_000]) == {
        "mean": 3.0,
        "p50": 2.0,
        "p95": 6.0,
        "p99": 6.0,
        "max": 6.0,
    }


def test_durations_counted_beforehand_sum_up_to_the_same():
    values = [5_000] * 50 + [7_000] * 45 + [9_000] * 4 + [11_000]
    tally = {11_000: 1, 5_000: 50, 9_000: 4, 7_000: 45}
    assert summary(values) == summary_of(tally)
    assert summary_of(tally) == {"mean": 6.12, "p50": 5.0, "p95": 7.0, "p99": 9.0, "max": 11.0}


def test_the_books_of_one_batch():
    books = Books()
    left = depart(1, 0, 10, 50)
    books.note(left, 50 * MS)
    books.returned(1, 150 * MS)
    books.note(answer(left), 150 * MS)
    assert books.waits == [50 * MS, 40 * MS, 0]
    assert books.latencies == [150 * MS, 140 * MS, 100 * MS]
    assert books.report(gpus=1, horizon=200 * MS, wall_s=0.12345) == {
        "requests": 3,
        "answered": 3,
        "rejected": 0,
        "expired": 0,
        "cancelled": 0,
        "failed": 0,
        "rejected_by": {},
        "latency_ms": {"mean": 130.0, "p50": 140.0, "p95": 150.0, "p99": 150.0, "max": 150.0},
        "wait_ms": {"mean": 30.0, "p50": 40.0, "p95": 50.0, "p99": 50.0, "max": 50.0},
        "mean_batch": 3.0,
        "batches": 1,
        "utilization": 0.5,
        "horizon_s": 0.2,
        "wall_s": 0.123,
    }


def test_the_books_of_nothing_have_the_same_keys_in_the_same_order():
    empty = Books().report(gpus=2, horizon=1 * S, wall_s=0)
    assert list(empty) == [
        "requests", "answered", "rejected", "expired", "cancelled", "failed", "rejected_by",
        "latency_ms", "wait_ms", "mean_batch", "batches", "utilization", "horizon_s", "wall_s",
    ]  # fmt: skip
    assert (empty["latency_ms"], empty["wait_ms"], empty["mean_batch"]) == (NOTHING, NOTHING, None)
    assert empty["utilization"] == 0


@pytest.mark.parametrize(("gpus", "horizon"), [(0, 1 * S), (2, 0)])
def test_without_gpu_time_there_is_no_utilization(gpus: int, horizon: int):
    assert Books().report(gpus, horizon, 0)["utilization"] is None


def test_means_are_shown_to_four_places_and_shares_to_six():
    assert summary([1_000, 1_000, 2_000])["mean"] == 1.3333
    books = Books()
    for batch, rows in enumerate(((0,), (0,), (0, 0))):
        left = depart(batch, *rows)
        books.note(left, 0)
        books.returned(batch, 100 * MS)
    report = books.report(gpus=3, horizon=300 * MS, wall_s=0)
    assert (report["mean_batch"], report["utilization"]) == (1.3333, 0.333333)


def test_batches_that_took_unequally_long_are_summed_up_one_by_one():
    books = Books()
    for batch, back in ((1, 100), (2, 250)):
        left = depart(batch, 0, 10)
        books.note(left, 20 * MS)
        books.note(answer(left), back * MS)
    report = books.report(gpus=1, horizon=1 * S, wall_s=0)
    assert report["wait_ms"] == {"mean": 15.0, "p50": 10.0, "p95": 20.0, "p99": 20.0, "max": 20.0}
    assert report["latency_ms"] == {
        "mean": 170.0,
        "p50": 100.0,
        "p95": 250.0,
        "p99": 250.0,
        "max": 250.0,
    }


def test_refusals_are_counted_by_what_they_met():
    books = Books()
    for request_id, why in enumerate(("tier_quota", "queue_full", "tier_quota")):
        books.note(End(request_id, Outcome.REJECTED, why), 0)
    books.note(End(3, Outcome.EXPIRED, "deadline_exceeded"), 0)
    report = books.report(gpus=1, horizon=1 * S, wall_s=0)
    assert (report["rejected"], report["expired"]) == (3, 1)
    assert list(report["rejected_by"].items()) == [("queue_full", 1), ("tier_quota", 2)]


def test_every_outcome_is_counted_once():
    books = Books()
    for request_id, outcome in enumerate(Outcome):
        books.note(End(request_id, outcome, ""), 0)
    books.note(End(9, Outcome.EXPIRED, ""), 0)
    books.note(Stop(0, ""), 0)
    report = books.report(1, 1, 0)
    assert [report[outcome.value] for outcome in Outcome] == [1, 1, 2, 1, 1]
    assert report["requests"] == 6


def test_those_who_came_before_the_warm_up_was_over_count_but_are_not_timed():
    books = Books(warm_up=10 * MS)
    left = depart(1, 0, 9, 10, 30)
    books.note(left, 50 * MS)
    books.returned(1, 150 * MS)
    books.note(answer(left), 150 * MS)
    assert books.latencies == [140 * MS, 120 * MS]
    assert books.waits == [40 * MS, 20 * MS]
    assert books.report(1, 1 * S, 0)["answered"] == 4


def test_a_lost_batch_counts_as_a_batch_and_kept_its_gpu_busy_until_it_was_lost():
    books = Books()
    first, second = depart(1, 0, 0), depart(2, 0, 0)
    books.note(first, 50 * MS)
    books.returned(1, 90 * MS)
    books.note(second, 100 * MS)
    books.returned(2, 200 * MS)
    books.note(answer(second), 200 * MS)
    report = books.report(1, 280 * MS, 0)
    assert (report["batches"], report["mean_batch"], report["utilization"]) == (2, 2.0, 0.5)
    assert report["wait_ms"]["max"] == 100.0


def test_a_batch_on_eight_gpus_keeps_eight_busy():
    books = Books()
    books.note(depart(1, 0, gpus=tuple(range(8))), 0)
    books.returned(1, 100 * MS)
    assert books.report(16, 100 * MS, 0)["utilization"] == 0.5


def test_a_batch_nobody_knows_kept_nothing_busy():
    books = Books()
    books.returned(7, 100 * MS)
    assert books.report(1, 1 * S, 0)["utilization"] == 0
