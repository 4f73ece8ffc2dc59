"""The simulator against closed forms: each lies in the 99.9 % interval of 8 independent runs.

Times in ms, rates a second. Where the form is an idealisation the test says by how much it misses.
"""

from functools import partial

import pytest

from labkit.core.messages import Answer, Depart
from labkit.core.settings import Settings
from labkit.core.units import MS, S
from labkit.sim import fast
from labkit.sim.driver import Run, simulate
from labkit.sim.experiment import Estimate, replicate
from labkit.sim.faults import Death, Straggler
from labkit.sim.service import Exponential, ServiceTime
from labkit.theory.dock import Dock, PullDock, greedy_latency
from labkit.theory.queueing import full_batch_wait, mdc_wait, mmc_wait, random_dispatch_wait
from labkit.workload import poisson, regular, requests, stream

BATCH = 100.0
MANY = 200
"""GPUs enough that none is ever waited for."""


def _estimates(
    rate: float,
    *,
    gpus: int,
    count: int,
    max_wait: float = 50.0,
    max_batch: int = 100,
    service: int | ServiceTime = 100 * MS,
) -> dict[str, Estimate]:
    """Eight runs of about `count` requests each, the first tenth left out of latency."""
    seconds = count / rate

    def run(seed: int) -> dict[str, object]:
        return fast.run(
            poisson(rate, seconds, stream(seed, "arrivals")),
            gpus=gpus,
            max_batch=max_batch,
            max_wait=round(max_wait * MS),
            service_time=service,
            seed=seed,
            warm_up=round(seconds * S / 10),
        )

    return replicate(run, 8, seed=1, confidence=0.999)


@pytest.mark.parametrize(
    ("rate", "max_wait", "max_batch"),
    [
        (100, 10, 100),
        (100, 20, 100),
        (100, 50, 100),
        (100, 80, 100),
        (100, 50, 6),
        (1_000, 50, 100),
        (2_000, 50, 100),
        (5_000, 50, 100),
        (10_000, 50, 100),
        (10_000, 10, 100),
    ],
)
def test_the_dock_fills_waits_and_loads_as_its_closed_form(rate, max_wait, max_batch):
    dock = Dock(rate, max_wait, max_batch, BATCH)
    seen = _estimates(rate, gpus=MANY, count=30_000, max_wait=max_wait, max_batch=max_batch)
    assert seen["wait_ms.mean"].holds(dock.mean_wait)
    # A boat leaves for the last time half empty, which a form for an endless day does not know.
    assert seen["mean_batch"].mean == pytest.approx(dock.mean_batch, rel=0.01)
    assert seen["wait_ms.p95"].mean == pytest.approx(dock.wait_percentile(95), abs=0.15)


@pytest.mark.parametrize(("servers", "load"), [(2, 1.6), (8, 6.4), (1, 0.7)])
def test_boats_of_one_seat_are_an_m_d_c_queue(servers, load):
    seen = _estimates(10 * load, gpus=servers, count=20_000, max_wait=0, max_batch=1)
    assert seen["wait_ms.mean"].holds(BATCH * mdc_wait(servers, load))


@pytest.mark.parametrize(("servers", "load"), [(2, 1.6), (10, 8.0)])
def test_boats_of_one_seat_with_memoryless_crossings_are_an_m_m_c_queue(servers, load):
    seen = _estimates(
        10 * load,
        gpus=servers,
        count=20_000,
        max_wait=0,
        max_batch=1,
        service=Exponential(100 * MS),
    )
    assert seen["wait_ms.mean"].holds(BATCH * mmc_wait(servers, load))


def test_little_holds_between_wait_rate_and_boats_at_work():
    seen = _estimates(1_000, gpus=4, count=50_000)
    dock = Dock(1_000, 50, 100, BATCH)
    assert 4 * seen["utilization"].mean == pytest.approx(dock.load, rel=0.01)


def test_one_gpu_that_takes_whoever_is_there_has_the_greedy_latency():
    seen = _estimates(10, gpus=1, count=15_000, max_wait=0)
    assert greedy_latency(10) == pytest.approx(136.553, abs=1e-3)
    assert seen["latency_ms.mean"].holds(greedy_latency(10))


def test_nine_gpus_at_8900_queue_as_long_as_an_m_d_c_of_900_seats():
    seen = _estimates(8_900, gpus=9, count=300_000)
    in_the_dock = Dock(8_900, 50, 100, BATCH).mean_wait
    assert full_batch_wait(9, 8_900) == pytest.approx(3.327, abs=1e-3)
    assert seen["wait_ms.mean"].holds(in_the_dock + full_batch_wait(9, 8_900))


def test_one_gpu_is_stable_at_100_a_second_under_pull():
    seen = _estimates(100, gpus=1, count=30_000)
    pull = PullDock(100)
    assert seen["mean_batch"].mean == pytest.approx(10.0, rel=0.01)
    assert seen["mean_batch"].mean == pytest.approx(pull.mean_batch, rel=0.01)
    assert seen["latency_ms.mean"].mean == pytest.approx(150, rel=0.01)
    assert seen["latency_ms.p95"].mean == pytest.approx(195, rel=0.01)


def test_and_unstable_under_push_which_binds_a_batch_every_60_ms():
    run = _run(Settings(backlog=None), 100, 30, gpus=1)
    # 1.667 Erlang on one GPU: of 30 s the last to arrive waits for 20 s of work.
    assert run.report()["latency_ms"]["max"] == pytest.approx(20_000, rel=0.1)


def test_two_gpus_under_push_queue_no_batch_ever():
    run = _run(Settings(backlog=None), 100, 60, gpus=2)
    assert run.report()["latency_ms"]["max"] == 150.0


@pytest.mark.parametrize(
    ("max_wait", "p95"), [(10, 110.0), (20, 120.0), (50, 150.0), (80, 180.0), (100, 200.0)]
)
def test_at_100_a_second_the_95th_percentile_is_window_plus_crossing(max_wait, p95):
    report = fast.run(poisson(100, 60, stream(1, "arrivals")), gpus=MANY, max_wait=max_wait * MS)
    assert report["latency_ms"]["p95"] == p95


def test_random_dispatch_adds_the_queue_of_unlucky_gpus():
    def excess(seed: int) -> dict[str, float]:
        load = partial(_run, rate=10_000, seconds=10, gpus=18, seed=seed)
        random = load(Settings(dispatch="random", backlog=None)).report()
        central = load(Settings()).report()
        return {"ms": random["latency_ms"]["mean"] - central["latency_ms"]["mean"]}

    seen = replicate(excess, 3, seed=1, confidence=0.999)["ms"]
    assert random_dispatch_wait(18, 10_000) == pytest.approx(56.25)
    assert seen.mean == pytest.approx(56.25, rel=0.08)


def test_round_robin_on_equal_gpus_is_the_central_queue():
    reports = [
        _run(Settings(dispatch=dispatch, backlog=backlog), 10_000, 5, gpus=18).report()
        for dispatch, backlog in (("round_robin", None), ("least_loaded", 0))
    ]
    assert reports[0]["latency_ms"] == reports[1]["latency_ms"]


@pytest.mark.parametrize(("factor", "share", "p95"), [(1.5, 0.044, 111.0), (2.0, 0.036, 110.6)])
def test_fair_ties_cap_the_share_of_a_slow_gpu(factor, share, p95):
    run = _run(Settings(), 10_000, 10, gpus=18, faults=[Straggler(0, factor)], trace=True)
    assert run.trace is not None
    on = [c.gpus[0] for _, c in run.trace.commands() if isinstance(c, Depart)]
    assert on.count(0) / len(on) == pytest.approx(share, abs=0.001)
    assert run.report()["latency_ms"]["p95"] == pytest.approx(p95, abs=0.3)


def test_round_robin_is_buried_by_a_gpu_twice_as_slow():
    settings = Settings(dispatch="round_robin", backlog=None)
    run = _run(settings, 10_000, 20, gpus=18, faults=[Straggler(0, 2.0)])
    # It gets 5.56 batches a second and does 5: 11 are left of 20 s, and it carries the P95.
    assert run.report()["latency_ms"]["max"] == pytest.approx(11 * 200 + 200, rel=0.1)
    assert run.report()["latency_ms"]["p95"] > 400


def test_when_half_of_eighteen_die_who_arrives_three_seconds_later_misses_the_budget():
    # Every second GPU: 5 of the 10 boats on the river are lost, 500 people. The other nine take
    # 9,000 a second, so 3,600 wait 400 ms before they cross: (3600 - 500) / 1000 s, less a boat.
    deaths = [Death(gpu, at=1 * S, back_after=None) for gpu in range(0, 18, 2)]
    arrivals = requests(regular(10_000, 6))
    run = simulate(Settings(), arrivals, gpus=18, faults=deaths, trace=True)
    assert run.trace is not None
    late = [
        row.arrived_at
        for now, command in run.trace.commands()
        if isinstance(command, Answer)
        for row in command.rows
        if now - row.arrived_at > 500 * MS
    ]
    assert (min(late) - 1 * S) / S == pytest.approx(3.0, abs=0.1)


def _run(
    settings: Settings, rate: float, seconds: float, *, gpus: int, seed: int = 1, **more: object
) -> Run:
    arrivals = requests(poisson(rate, seconds, stream(seed, "arrivals")))
    return simulate(settings, arrivals, gpus=gpus, seed=seed, **more)  # type: ignore[arg-type]
