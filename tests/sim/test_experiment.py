"""Intervals come from the spread between independent runs, and hold the truth as often as said."""

from random import Random

import pytest

from labkit.sim.experiment import (
    Estimate,
    compare,
    flat,
    replicate,
    replication_seeds,
    student_t,
    sweep,
)


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [
        (0.95, 1, 12.7062047362),
        (0.95, 2, 4.3026527297),
        (0.95, 9, 2.2621571628),
        (0.95, 30, 2.0422724563),
        (0.99, 4, 4.6040948713),
        (0.99, 9, 3.2498355416),
        (0.90, 5, 2.0150483733),
    ],
)
def test_the_quantile_of_student_is_that_of_the_tables(confidence, freedom, quantile):
    assert student_t(confidence, freedom) == pytest.approx(quantile, abs=1e-9)


def test_three_runs_by_hand():
    estimate = Estimate.of([1.0, 2.0, 3.0])
    # deviation 1, t 4.302653, sqrt 3
    assert (estimate.mean, estimate.count) == (2.0, 3)
    assert estimate.half_width == pytest.approx(4.302653 / 3**0.5, abs=1e-6)
    assert estimate.holds(4.4)
    assert not estimate.holds(4.5)


def test_a_single_run_says_nothing_about_its_error():
    estimate = Estimate.of([7.0])
    assert estimate.as_dict() == {"mean": 7.0, "half_width": None, "confidence": 0.95, "count": 1}
    assert estimate.holds(1e9)


def test_a_90_percent_interval_holds_the_truth_nine_times_in_ten():
    rng = Random(5)

    def dice() -> float:
        return sum(rng.random() for _ in range(12)) - 6

    held = sum(Estimate.of([dice() for _ in range(5)], 0.9).holds(0.0) for _ in range(2_000))
    # Binomial(2000, 0.9): deviation 13.4.
    assert held == pytest.approx(1_800, abs=4 * 13.4)


def test_more_replications_leave_the_first_ones_as_they_were():
    assert replication_seeds(1, 9)[:4] == replication_seeds(1, 4)
    assert len(set(replication_seeds(1, 9))) == 9
    assert replication_seeds(1, 4) != replication_seeds(2, 4)


def test_every_number_of_a_report_is_estimated_under_its_dotted_name():
    seen = []

    def run(seed: int) -> dict[str, object]:
        seen.append(seed)
        return {"batches": 3, "latency_ms": {"p95": 100.0, "max": None}, "note": "x"}

    done = []
    estimates = replicate(run, 3, seed=1, progress=done.append)
    assert seen == replication_seeds(1, 3)
    assert done == [1, 2, 3]
    assert sorted(estimates) == ["batches", "latency_ms.p95"]
    assert estimates["latency_ms.p95"] == Estimate(100.0, 0.0, 3)


def test_a_number_missing_in_one_run_gets_no_flattering_estimate():
    reports = iter([{"p95": 100.0}, {"p95": None}])
    assert replicate(lambda _: next(reports), 2) == {}


def test_common_random_numbers_cancel_what_both_runs_suffer():
    def noisy(shift: float, seed: int) -> float:
        return 100 * Random(seed).random() + shift

    estimate = compare(lambda s: noisy(1.0, s), lambda s: noisy(0.0, s), 5, seed=1)
    assert estimate.mean == pytest.approx(1.0)
    assert estimate.half_width == pytest.approx(0.0, abs=1e-9)


def test_a_sweep_keeps_the_order_and_tells_how_far_it_is():
    done = []
    assert sweep([3, 1, 2], lambda value: value * 10, done.append) == [(3, 30), (1, 10), (2, 20)]
    assert done == [1, 2, 3]


def test_flat_leaves_words_and_truths_out():
    assert flat({"a": {"b": {"c": 1}}, "word": "x", "yes": True, "none": None}) == {
        "a.b.c": 1,
        "none": None,
    }


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Estimate.of([]), "no observations"),
        (lambda: replicate(lambda _: {}, 0), "replications 0: must be 1 or more"),
        (lambda: student_t(95, 3), "confidence 95: must be between 0 and 1"),
        (lambda: student_t(0.95, 0), "0 degrees of freedom: an interval needs at least 2 runs"),
    ],
)
def test_impossible_experiments_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
