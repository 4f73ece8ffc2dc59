"""The shell of the simulator: it tells in the right order, obeys, and leaves nobody without end."""

import gc
import json

import pytest

from labkit.core.messages import Answer, Command, Depart, Outcome, Request
from labkit.core.settings import SERVED, Settings
from labkit.core.trace import replay
from labkit.core.units import MS, NEVER, S
from labkit.sim.driver import NO_GPU_LEFT, Run, gateway_for, quiet_collector, simulate
from labkit.sim.faults import Death, Leaves
from labkit.sim.service import Exponential, Jittered
from labkit.workload import crowd, poisson, requests, stream

FERRY = Settings()


def test_one_request_waits_for_the_window_and_crosses():
    run = simulate(FERRY, [Request(7)], gpus=1)
    assert run.report() | {"wall_s": 0} == {
        "requests": 1,
        "answered": 1,
        "rejected": 0,
        "expired": 0,
        "cancelled": 0,
        "failed": 0,
        "latency_ms": {"mean": 150.0, "p50": 150.0, "p95": 150.0, "p99": 150.0, "max": 150.0},
        "wait_ms": {"mean": 50.0, "p50": 50.0, "p95": 50.0, "p99": 50.0, "max": 50.0},
        "mean_batch": 1.0,
        "rejected_by": {},
        "batches": 1,
        "utilization": 0.666667,
        "horizon_s": 0.15,
        "wall_s": 0,
    }


def test_no_arrivals_is_a_quiet_day():
    run = simulate(FERRY, [], gpus=2, horizon=10 * S)
    assert run.report()["requests"] == 0
    assert run.report()["utilization"] == 0.0
    assert run.report()["latency_ms"]["p95"] is None


def test_an_arrival_at_the_due_instant_boards():
    assert _departures(FERRY, [0, 50 * MS, 50 * MS + 1], gpus=1) == [
        (50 * MS, (0, 1)),
        (150 * MS, (2,)),
    ]


def test_a_finish_and_an_arrival_of_one_instant_meet_before_the_boat_leaves():
    # The GPU is back at 150, request 2 arrives at 150, request 1 is due since 110.
    assert _departures(FERRY, [0, 60 * MS, 150 * MS], gpus=1) == [
        (50 * MS, (0,)),
        (150 * MS, (1, 2)),
    ]


def test_who_cancels_at_the_due_instant_does_not_board():
    run = simulate(
        FERRY, _at(0, 10 * MS), gpus=1, trace=True, faults=[Leaves(request_id=1, at=50 * MS)]
    )
    assert _rows(run) == [(50 * MS, (0,))]
    assert run.books.outcomes == {Outcome.ANSWERED: 1, Outcome.CANCELLED: 1}


def test_a_hundred_of_one_instant_leave_at_that_instant():
    assert _departures(FERRY, [1 * MS] * 150, gpus=2) == [
        (1 * MS, tuple(range(100))),
        (51 * MS, tuple(range(100, 150))),
    ]


def test_two_gpus_that_finish_together_take_the_next_two_batches_in_order():
    run = simulate(FERRY, _at(*[0] * 400), gpus=2, trace=True)
    on = [c.gpus[0] for _, c in _commands(run) if isinstance(c, Depart)]
    assert on == [0, 1, 0, 1]
    assert run.horizon == 200 * MS


def test_every_answer_belongs_to_its_request():
    run = simulate(
        FERRY,
        [Request(number, f"prompt {number}", number * 100) for number in range(1_000)],
        gpus=3,
        service=Exponential(100 * MS),
        respond=lambda prompt: prompt.upper(),
        trace=True,
    )
    answered = [
        (row.id, output)
        for _, command in _commands(run)
        if isinstance(command, Answer)
        for row, output in zip(command.rows, command.outputs, strict=True)
    ]
    assert sorted(answered) == [(number, f"PROMPT {number}") for number in range(1_000)]


def test_the_boat_that_waits_until_full_leaves_with_the_rest_when_the_bank_closes():
    settings = Settings(rule="full", max_batch=3)
    run = simulate(settings, _at(0, 1 * MS, 2 * MS, 3 * MS), gpus=1, trace=True)
    assert _rows(run) == [(2 * MS, (0, 1, 2)), (102 * MS, (3,))]
    reasons = [c.receipt.reason for _, c in _commands(run) if isinstance(c, Depart)]
    assert reasons == ["full", "drain"]


def test_when_every_gpu_is_dead_for_ever_whoever_waits_is_told_so():
    deaths = [Death(gpu, at=10 * MS, back_after=None) for gpu in range(2)]
    run = simulate(FERRY, _at(0, 20 * MS, 5 * S), gpus=2, faults=deaths, trace=True)
    assert run.books.outcomes == {Outcome.CANCELLED: 3}
    assert run.report()["requests"] == 3
    assert [(i.at, i.gpu, i.what) for i in run.events] == [
        (10 * MS, 0, "died"),
        (10 * MS, 0, "reported lost"),
        (10 * MS, 1, "died"),
        (10 * MS, 1, "reported lost"),
        (5 * S, None, f"3 requests ended: {NO_GPU_LEFT}"),
    ]


def test_requests_may_come_from_a_stream():
    run = simulate(FERRY, (Request(number, "", number * MS) for number in range(500)), gpus=1)
    assert run.books.outcomes == {Outcome.ANSWERED: 500}


def test_a_stream_that_outlives_every_gpu_is_cancelled_too():
    deaths = [Death(0, at=0, back_after=None)]
    run = simulate(FERRY, (Request(number) for number in range(5)), gpus=1, faults=deaths)
    assert run.books.outcomes == {Outcome.CANCELLED: 5}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    def report(seed: int) -> str:
        arrivals = requests(poisson(3_000, 3, stream(seed, "arrivals")))
        settings = Settings(dispatch="two_choices", backlog=2)
        run = simulate(settings, arrivals, gpus=5, service=Jittered(), seed=seed)
        return json.dumps(run.report() | {"wall_s": 0})

    assert report(1) == report(1)
    assert report(1) != report(2)


def test_a_recorded_run_replays_command_for_command():
    settings = Settings(tiers=SERVED, dispatch="random", backlog=1, overdue_after=250 * MS)
    arrivals = requests(poisson(5_000, 1, stream(1, "a")), crowd(5), stream(1, "mix"))
    run = simulate(
        settings,
        arrivals,
        gpus=4,
        service=Jittered(),
        seed=9,
        faults=[Death(2, at=400 * MS, detected_after=30 * MS)],
        trace=True,
    )
    assert run.trace is not None
    again = replay(run.trace, gateway_for(settings, 9))
    assert again.steps == run.trace.steps
    assert run.report()["answered"] == len(arrivals)


def test_recording_changes_nothing():
    arrivals = requests(poisson(2_000, 2, stream(1, "a")))
    plain, recorded = (simulate(FERRY, arrivals, gpus=3, trace=trace) for trace in (False, True))
    assert plain.report() | {"wall_s": 0} == recorded.report() | {"wall_s": 0}
    assert plain.trace is None


def test_warm_up_is_left_out_of_latency_and_of_nothing_else():
    run = simulate(FERRY, _at(0, 1 * S), gpus=1, warm_up=1 * S)
    assert len(run.books.latencies) == 1
    assert run.report()["answered"] == 2
    assert run.report()["batches"] == 2


def test_two_models_never_share_a_batch():
    settings = Settings(models=("small", "large"))
    arrivals = [Request(n, "", n * MS, model=("small", "large")[n % 2]) for n in range(100)]
    run = simulate(settings, arrivals, gpus=2, trace=True)
    aboard = [{r.model for r in c.rows} for _, c in _commands(run) if isinstance(c, Depart)]
    assert all(len(models) == 1 for models in aboard)
    assert run.books.outcomes == {Outcome.ANSWERED: 100}


def test_progress_is_told_the_virtual_instant_of_every_batch():
    told: list[int] = []
    simulate(FERRY, _at(0, 200 * MS), gpus=1, progress=told.append)
    assert told == [150 * MS, 350 * MS]


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_as_it_was_afterwards_even_after_an_exception(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError):
            simulate(FERRY, _at(0), gpus=1, respond=lambda _: str(1 / 0))
        assert gc.isenabled() == was_on
        with quiet_collector():
            assert not gc.isenabled()
        assert gc.isenabled() == was_on
    finally:
        gc.enable()


def test_arrivals_out_of_order_are_refused_with_the_request():
    with pytest.raises(ValueError, match="request 1 arrived at 5 us, after one at 10 us"):
        simulate(FERRY, _at(10, 5), gpus=1)


def test_a_pool_of_nothing_is_refused():
    with pytest.raises(ValueError, match="gpus 0: nothing moves without at least 1"):
        simulate(FERRY, [], gpus=0)


class _Stuck:
    """A scheduler whose advance does nothing and leaves due_at where it was."""

    due_at = NEVER

    def arrive(self, request: Request, now: int) -> tuple[Command, ...]:
        self.due_at = now
        return ()

    def join(self, gpu: int, version: str | None, now: int) -> tuple[Command, ...]:
        return ()

    def advance(self, now: int) -> tuple[Command, ...]:
        return ()


def test_a_scheduler_that_would_spin_for_ever_is_stopped_with_the_instant():
    with pytest.raises(RuntimeError, match="has work at 3 us, and at 3 us advance did none of it"):
        simulate(FERRY, _at(3), gpus=1, gateway=_Stuck())  # type: ignore[arg-type]


def _at(*instants: int) -> list[Request]:
    return [Request(number, "", at) for number, at in enumerate(instants)]


def _commands(run: Run) -> list[tuple[int, Command]]:
    assert run.trace is not None
    return list(run.trace.commands())


def _rows(run: Run) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (now, tuple(row.id for row in command.rows))
        for now, command in _commands(run)
        if isinstance(command, Depart)
    ]


def _departures(
    settings: Settings, instants: list[int], gpus: int
) -> list[tuple[int, tuple[int, ...]]]:
    return _rows(simulate(settings, _at(*instants), gpus=gpus, trace=True))
