"""One step a batch forms the very batches that the gateway forms: same rows, instants and GPUs."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labkit.core.messages import Depart, Request
from labkit.core.settings import Settings
from labkit.core.units import MS, S
from labkit.sim import fast
from labkit.sim.driver import simulate
from labkit.sim.service import Affine, Exponential, Jittered, ServiceTime
from labkit.workload import poisson, stream


def test_two_passengers_leave_together_when_the_first_has_waited():
    assert fast.batches([0, 5 * MS], gpus=1) == [(0, 2, 50 * MS, 0)]


def test_a_full_boat_leaves_at_once():
    assert fast.batches([1 * MS] * 100, gpus=1) == [(0, 100, 1 * MS, 0)]


def test_whoever_arrives_at_the_due_instant_boards():
    assert fast.batches([0, 50 * MS, 50 * MS + 1], gpus=1) == [
        (0, 2, 50 * MS, 0),
        (2, 1, 150 * MS, 0),
    ]


def test_arrivals_during_a_crossing_leave_together_when_the_gpu_is_back():
    # B7 and B17: the window ran while the GPU was busy, so nobody waits for a second one.
    instants = [0, 60 * MS, 70 * MS, 80 * MS, 90 * MS]
    assert fast.batches(instants, gpus=1) == [(0, 1, 50 * MS, 0), (1, 4, 150 * MS, 0)]


def test_the_longest_idle_gpu_takes_the_next_batch():
    instants = [0, 200 * MS, 400 * MS, 600 * MS]
    assert [batch.gpu for batch in fast.batches(instants, gpus=3)] == [0, 1, 2, 0]


def test_nobody_came():
    assert fast.batches([], gpus=2) == []
    report = fast.run([], gpus=2)
    assert report["latency_ms"] == {
        "mean": None,
        "p50": None,
        "p95": None,
        "p99": None,
        "max": None,
    }
    assert (report["mean_batch"], report["utilization"]) == (None, None)


def test_a_horizon_counts_the_gpu_time_nobody_used():
    assert fast.run([], gpus=2, horizon=S)["utilization"] == 0.0
    assert fast.run([0], gpus=1, horizon=S)["utilization"] == 0.1


def test_of_gpus_idle_since_the_same_instant_the_lowest_number_goes_first():
    # GPU 1 is idle before GPU 0, they leave together at 30 and are back together at 40.
    assert fast.batches([0, 5, 12, 30, 30, 50], gpus=2, max_batch=1, service_time=10) == [
        (0, 1, 0, 0),
        (1, 1, 5, 1),
        (2, 1, 12, 0),
        (3, 1, 30, 1),
        (4, 1, 30, 0),
        (5, 1, 50, 0),
    ]


GAPS = st.lists(
    st.one_of(st.just(0), st.integers(0, 20), st.sampled_from([4, 10, 14, 100])), max_size=60
)
"""Whole microseconds against windows and services of 4, 10 and 14: ties are common."""

TIMES = st.one_of(
    st.sampled_from([1, 4, 10, 14, 100]),
    st.sampled_from([Exponential(10), Affine(3, 2.0), Jittered(10, 0.2)]),
)


@given(
    gaps=GAPS,
    gpus=st.integers(1, 4),
    max_batch=st.integers(1, 5),
    max_wait=st.sampled_from([0, 4, 10, 14]),
    service=TIMES,
)
@example(gaps=[0] * 12, gpus=3, max_batch=4, max_wait=10, service=10)
@example(gaps=[0, 5, 7, 18, 0, 20], gpus=2, max_batch=1, max_wait=10, service=10)
@example(gaps=[0, 10, 0, 10], gpus=2, max_batch=2, max_wait=10, service=10)
def test_random_instants_with_ties_cross_in_the_same_batches(
    gaps, gpus, max_batch, max_wait, service
):
    _same(list(accumulate(gaps)), gpus, max_batch, max_wait, service)


@pytest.mark.parametrize(
    ("rate", "gpus", "service"),
    [
        (100, 1, 100 * MS),
        (2_000, 3, 100 * MS),
        (10_000, 18, 100 * MS),
        (10_000, 11, Jittered(100 * MS, 0.1)),
        (9_500, 10, Exponential(100 * MS)),
        (3_000, 5, Affine(20 * MS, 1_000)),
        (12_000, 10, 100 * MS),
    ],
)
def test_long_poisson_runs_cross_in_the_same_batches(rate, gpus, service):
    instants = poisson(rate, 20_000 / rate, stream(1, "arrivals"))
    assert len(instants) > 19_000
    _same(instants, gpus, 100, 50 * MS, service)


@pytest.mark.parametrize("warm_up", [0, 1 * S])
@pytest.mark.parametrize("service", [100 * MS, Jittered(100 * MS, 0.1)])
def test_the_whole_report_is_that_of_the_gateway(warm_up, service):
    instants = poisson(2_000, 5, stream(2, "arrivals"))
    settings = Settings()
    given = None if isinstance(service, int) else service
    run = simulate(
        settings, _requests(instants), gpus=4, service=given, seed=3, warm_up=warm_up, horizon=6 * S
    )
    quick = fast.run(instants, gpus=4, service_time=service, seed=3, warm_up=warm_up, horizon=6 * S)
    assert quick.keys() == run.report().keys()
    assert {**quick, "wall_s": 0} == {**run.report(), "wall_s": 0}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gpus": 0}, "gpus 0: nothing moves without at least 1"),
        ({"max_batch": 0}, "max_batch 0: must be 1 or more"),
        ({"max_wait": -1}, "max_wait -1 microseconds: must be 0 or more"),
        ({"service_time": 0}, "service time 0: must be more than 0"),
    ],
)
def test_impossible_pools_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        fast.batches([0], **{"gpus": 1, **wrong})


def _requests(instants: list[int]) -> list[Request]:
    return [Request(number, "", at) for number, at in enumerate(instants)]


def _same(
    instants: list[int], gpus: int, max_batch: int, max_wait: int, service: int | ServiceTime
) -> None:
    """The gateway's departures, as fast.batches says them."""
    settings = Settings(max_batch=max_batch, max_wait=max_wait, batch_time=100 * MS)
    run = simulate(
        settings,
        _requests(instants),
        gpus=gpus,
        service=(lambda count, gpu, rng: service) if isinstance(service, int) else service,
        seed=5,
        trace=True,
    )
    assert run.trace is not None
    departures = [
        (command.rows[0].id, len(command.rows), now, command.gpus[0])
        for now, command in run.trace.commands()
        if isinstance(command, Depart)
    ]
    quick = fast.batches(
        instants,
        gpus=gpus,
        max_batch=max_batch,
        max_wait=max_wait,
        service_time=service,
        seed=5,
    )
    assert quick == departures
    assert all(b.first + b.count == n.first for b, n in pairwise(quick))
