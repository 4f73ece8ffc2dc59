"""What goes wrong on the far bank, when the gateway hears of it, and what each request gets."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.core.gateway import Gateway
from labkit.core.messages import Answer, Depart, End, Outcome, Request
from labkit.core.settings import SERVED, Settings
from labkit.core.units import MS, S
from labkit.sim.driver import Run, simulate
from labkit.sim.faults import (
    BadCount,
    Death,
    Drain,
    FalseAlarm,
    Fault,
    FaultPlan,
    Hang,
    Leaves,
    Poison,
    Raises,
    Straggler,
)
from labkit.sim.service import Exponential, Fixed, Jittered
from labkit.workload import crowd, poisson, requests, stream

FERRY = Settings()
WATCHED = Settings(overdue_after=250 * MS)
HUNDRED = [Request(number) for number in range(100)]


def test_a_batch_dies_with_its_gpu_and_crosses_on_another():
    # R1: full at 0, death at 50, heard of at once, 100 ms on the other GPU.
    run = _run(HUNDRED, Death(0, at=50 * MS), gpus=2)
    assert _departures(run) == [(0, 0, 100), (50 * MS, 1, 100)]
    assert run.books.outcomes == {Outcome.ANSWERED: 100}
    assert run.report()["latency_ms"]["max"] == 150.0


def test_a_late_detector_costs_its_delay():
    run = _run(HUNDRED, Death(0, at=50 * MS, detected_after=200 * MS), gpus=2)
    assert _departures(run) == [(0, 0, 100), (250 * MS, 1, 100)]


def test_until_it_is_detected_a_dead_gpu_swallows_new_batches():
    run = _run([Request(0)], Death(0, at=10 * MS, detected_after=90 * MS), gpus=1)
    assert _departures(run) == [(50 * MS, 0, 1), (400 * MS, 0, 1)]
    assert _events(run) == [
        (10 * MS, 0, "died"),
        (100 * MS, 0, "reported lost"),
        (400 * MS, 0, "back"),
    ]


def test_the_only_gpu_may_try_again_once_it_is_back():
    run = _run(HUNDRED, Death(0, at=50 * MS, back_after=1 * S), gpus=1)
    assert _departures(run) == [(0, 0, 100), (1050 * MS, 0, 100)]


def test_a_batch_that_lands_at_the_instant_of_death_has_landed():
    run = _run(HUNDRED, Death(0, at=100 * MS), gpus=1)
    assert _departures(run) == [(0, 0, 100)]
    assert run.report()["latency_ms"]["max"] == 100.0


def test_a_death_without_a_number_strikes_a_gpu_in_the_middle_of_a_batch():
    arrivals = [Request(0), Request(1, "", 100 * MS)]
    run = _run(arrivals, Death(None, at=170 * MS), Death(None, at=200 * MS), gpus=2)
    # GPU 0 is idle from 150; GPU 1 crosses from 150, dies, and GPU 0 takes over.
    assert _departures(run) == [
        (50 * MS, 0, 1),
        (150 * MS, 1, 1),
        (170 * MS, 0, 1),
        (470 * MS, 1, 1),
    ]


def test_dying_twice_is_dying_once():
    run = _run(HUNDRED, Death(0, at=50 * MS), Death(0, at=60 * MS), gpus=2)
    assert [what for _, _, what in _events(run)].count("died") == 1
    assert run.books.outcomes == {Outcome.ANSWERED: 100}


def test_a_hang_is_seen_as_overdue_work_and_the_gpu_is_restarted():
    run = _run(HUNDRED, Hang(gpu=0, at=20 * MS), gpus=2, rules=WATCHED)
    assert _departures(run) == [(0, 0, 100), (250 * MS, 1, 100)]
    assert _events(run) == [(250 * MS, 0, "stopped: batch 1 is overdue after 250 ms")]
    assert run.books.outcomes == {Outcome.ANSWERED: 100}


def test_a_hang_of_an_idle_gpu_takes_its_next_batch():
    run = _run([Request(0, "", 1 * S)], Hang(gpu=0, at=0), gpus=1, rules=WATCHED)
    assert _departures(run) == [(1050 * MS, 0, 1), (1600 * MS, 0, 1)]


def test_a_hang_may_name_its_batch():
    arrivals = [Request(number) for number in range(200)]
    run = _run(arrivals, Hang(batch=2), gpus=2, rules=WATCHED)
    assert _departures(run) == [(0, 0, 100), (0, 1, 100), (250 * MS, 0, 100)]


def test_a_hang_that_nobody_watches_for_ends_with_the_run():
    run = _run(HUNDRED, Hang(gpu=0, at=20 * MS), gpus=1)
    assert run.books.outcomes == {Outcome.CANCELLED: 100}
    assert _events(run) == [(100 * MS, None, "100 requests ended: no_gpu_left")]


def test_a_straggler_is_slow_only_while_it_is_one():
    arrivals = [Request(number, "", number * S) for number in range(3)]
    run = _run(arrivals, Straggler(0, 2.0, since=1 * S, until=2 * S), gpus=1)
    assert run.books.latencies == [150 * MS, 250 * MS, 150 * MS]


def test_twice_as_slow_is_not_overdue():
    run = _run(HUNDRED, Straggler(0, 2.0), gpus=1, rules=WATCHED)
    assert _departures(run) == [(0, 0, 100)]
    assert run.books.latencies == [200 * MS] * 100


def test_99_outputs_for_100_answer_nobody_and_the_gpu_is_quarantined():
    # B11
    run = _run(HUNDRED, BadCount(0), gpus=2)
    assert _departures(run) == [(0, 0, 100), (100 * MS, 1, 100)]
    assert _events(run)[0][2].startswith("stopped: batch 1: 99 outputs for 100 requests")
    assert run.books.outcomes == {Outcome.ANSWERED: 100}


def test_a_bad_count_in_the_middle_of_a_crossing_strikes_that_crossing():
    run = _run(HUNDRED, BadCount(0, at=50 * MS), gpus=2)
    assert _departures(run) == [(0, 0, 100), (100 * MS, 1, 100)]


def test_one_bad_row_fails_alone_in_at_most_15_calls():
    # B10
    run = _run(HUNDRED, Raises(37), gpus=1)
    assert run.books.outcomes == {Outcome.ANSWERED: 99, Outcome.FAILED: 1}
    assert run.report()["batches"] <= 15
    assert _ends(run) == [(37, Outcome.FAILED, "request 37 makes batchstring raise")]
    assert run.events == []


def test_a_poison_request_kills_four_gpus_and_fails_alone():
    # R2
    run = _run(HUNDRED, Poison(41), gpus=2)
    assert run.books.outcomes == {Outcome.ANSWERED: 99, Outcome.FAILED: 1}
    assert [what for _, _, what in _events(run)].count("died") == 4
    assert run.report()["batches"] <= 22
    assert [end[0] for end in _ends(run)] == [41]


def test_the_late_answer_of_a_gpu_reported_lost_is_dropped_and_counted():
    # R3
    run = _run(HUNDRED, FalseAlarm(0, at=50 * MS), gpus=2)
    assert _departures(run) == [(0, 0, 100), (50 * MS, 1, 100)]
    assert run.books.outcomes == {Outcome.ANSWERED: 100}
    assert run.books.busy == 50 * MS + 100 * MS
    assert isinstance(run.gateway, Gateway)
    assert run.gateway.late == 1


def test_a_client_that_leaves_mid_batch_costs_the_others_nothing():
    # B1
    run = _run([Request(n) for n in range(4)], Leaves(1, at=70 * MS), gpus=1)
    answered = [row.id for command in _of(run, Answer) for row in command.rows]
    assert answered == [0, 2, 3]
    assert run.books.outcomes == {Outcome.ANSWERED: 3, Outcome.CANCELLED: 1}


def test_thirty_of_a_hundred_leave_in_time_and_the_gpu_sees_seventy():
    # B2; 99 wait, so that the boat is not full before they leave.
    waiting = [Request(number) for number in range(99)]
    leaves = [Leaves(number, at=10 * MS) for number in range(30)]
    assert _departures(_run(waiting, *leaves, gpus=1)) == [(50 * MS, 0, 69)]


def test_when_everybody_leaves_no_gpu_is_called():
    leaves = [Leaves(number, at=10 * MS) for number in range(50)]
    run = _run([Request(number) for number in range(50)], *leaves, gpus=1)
    assert _departures(run) == []
    assert run.books.outcomes == {Outcome.CANCELLED: 50}


def test_a_drained_gpu_finishes_its_batch_and_takes_no_other():
    # C2
    arrivals = [Request(0), Request(1, "", 200 * MS)]
    run = _run(arrivals, Drain(0, at=80 * MS), gpus=2)
    assert _departures(run) == [(50 * MS, 0, 1), (250 * MS, 1, 1)]
    assert _events(run) == [(80 * MS, 0, "draining"), (150 * MS, 0, "stopped: drained")]


def test_a_drained_gpu_comes_back_when_it_was_said_to():
    arrivals = [Request(0), Request(1, "", 1 * S)]
    run = _run(arrivals, Drain(0, at=80 * MS, back_after=500 * MS), gpus=1)
    assert _departures(run) == [(50 * MS, 0, 1), (1050 * MS, 0, 1)]


def test_a_fault_that_comes_after_the_last_outcome_does_not_keep_the_run_alive():
    run = _run(HUNDRED, Death(0, at=1000 * S), gpus=1)
    assert run.horizon == 100 * MS


def test_the_time_a_lost_batch_held_its_gpu_counts_as_busy():
    run = _run(HUNDRED, Death(0, at=50 * MS), gpus=2)
    # 50 ms lost on GPU 0 and 100 ms on GPU 1, of 2 GPUs for 150 ms.
    assert run.report()["utilization"] == 0.5


def test_half_of_eighteen_die_and_nobody_is_lost():
    deaths = [Death(gpu, at=1 * S, back_after=2 * S) for gpu in range(9)]
    arrivals = requests(poisson(8_000, 4, stream(1, "a")), crowd(10), stream(1, "mix"))
    run = simulate(FERRY, arrivals, gpus=18, faults=deaths)
    assert run.books.outcomes == {Outcome.ANSWERED: len(arrivals)}


def _faults(draw: st.DrawFn) -> list[Fault]:
    """A few faults of every kind within the first second, on three GPUs."""
    gpu, at = st.integers(0, 2), st.integers(0, 1_000).map(lambda ms: ms * MS)
    back = st.none() | at
    row = st.integers(0, 199)
    kinds = st.one_of(
        st.builds(Death, gpu, at, st.sampled_from([0, 30 * MS, 400 * MS]), back),
        st.builds(Hang, gpu=gpu, at=at, back_after=back),
        st.builds(Straggler, gpu, st.floats(0.5, 4), at),
        st.builds(BadCount, gpu, at),
        st.builds(FalseAlarm, gpu, at, at),
        st.builds(Raises, row),
        st.builds(Poison, row, at, st.sampled_from([0, 30 * MS]), back),
        st.builds(Leaves, row, at),
        st.builds(Drain, gpu, at, back),
    )
    return draw(st.lists(kinds, max_size=8))


@settings(max_examples=150)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_whatever_goes_wrong_every_request_has_exactly_one_outcome(data, seed):
    rng = Random(seed)
    run = simulate(
        Settings(
            max_batch=data.draw(st.sampled_from([1, 10, 100])),
            dispatch=data.draw(st.sampled_from(["least_loaded", "two_choices", "round_robin"])),
            backlog=data.draw(st.sampled_from([0, 1, None])),
            depth_limit=data.draw(st.sampled_from([None, 125])),
            overdue_after=data.draw(st.sampled_from([None, 250 * MS])),
            tiers=SERVED,
        ),
        requests(poisson(200, 1, rng), crowd(3), rng),
        gpus=3,
        service=data.draw(st.sampled_from([Fixed(), Jittered(), Exponential()])),
        faults=data.draw(st.composite(_faults)()),
        seed=seed,
        trace=True,
    )
    assert run.trace is not None
    arrived = sorted(step.args[0].id for step in run.trace.steps if step.verb == "arrive")
    ended = [command.request_id for command in _of(run, End)]
    answered = [row.id for command in _of(run, Answer) for row in command.rows]
    assert sorted(ended + answered) == arrived
    assert run.report()["requests"] == len(arrived)
    assert run.books.busy <= 3 * run.horizon


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: FaultPlan([Death(2, at=0)], gpus=2),
            "Death of GPU 2: the 2 GPUs have the numbers 0 to 1",
        ),
        (lambda: Death(0, at=-1), "at -1 must be 0 or more microseconds"),
        (lambda: Death(0, at=1, back_after=-5), "back_after -5 must be 0 or more"),
        (lambda: Straggler(0, 0.0), "factor 0 must be more than 0"),
        (lambda: Hang(gpu=1), "name either a batch or an instant"),
        (lambda: Hang(gpu=1, at=0, batch=3), "name either a batch or an instant"),
        (lambda: Hang(gpu=1, batch=3), "name either a batch or an instant"),
        (lambda: Hang(), "name either a batch or an instant"),
        (lambda: Leaves(3, at=-1), "at -1 must be 0 or more"),
    ],
)
def test_faults_that_cannot_be_are_refused(build, said):
    with pytest.raises(ValueError, match=said):
        build()


def _run(arrivals: list[Request], *faults: Fault, gpus: int, rules: Settings = FERRY) -> Run:
    return simulate(rules, arrivals, gpus=gpus, faults=faults, trace=True)


def _of(run, kind):
    return [command for _, command in run.trace.commands() if isinstance(command, kind)]


def _departures(run: Run) -> list[tuple[int, int, int]]:
    assert run.trace is not None
    return [
        (now, command.gpus[0], len(command.rows))
        for now, command in run.trace.commands()
        if isinstance(command, Depart)
    ]


def _ends(run: Run) -> list[tuple[int, Outcome, str]]:
    return [(end.request_id, end.outcome, end.detail) for end in _of(run, End)]


def _events(run: Run) -> list[tuple[int, int | None, str]]:
    return [(event.at, event.gpu, event.what) for event in run.events]
