"""Worker processes that die, hang, straggle or go mad under load: one outcome each, and right."""

import json
from collections.abc import Iterator
from math import inf, nan

import psutil
import pytest

from labkit.core.messages import Request
from labkit.core.units import S
from labkit.gpu.tag import carries
from labkit.live import Failed, FakeFleet, Fault, Live, live_settings
from labkit.live.openloop import faults_of

pytestmark = pytest.mark.live


def steady(rate: int, seconds: float) -> Iterator[Request]:
    """Evenly spaced requests whose prompts all differ."""
    for number in range(round(rate * seconds)):
        yield Request(number, f"request {number}", number * S // rate)


def test_a_real_kill_under_load_loses_nobody() -> None:
    with Live(gpus=4) as live:
        run = live.run(steady(500, 3.0), kills=[1.0, 1.8])
        after = [gpu["pid"] for gpu in live.snapshot()["gpus"]]
    report = run.report()
    assert report["offered"] == report["answered"] == 1_500
    assert (report["lost"], report["duplicated"], report["wrong_tag"]) == (0, 0, 0)
    assert report["kills"] == 2
    assert [injury.aboard > 0 for injury in run.injuries] == [True, True]
    for injury in run.injuries:
        assert injury.pid is not None
        assert not psutil.pid_exists(injury.pid)
        assert injury.pid not in after
    # Noticed by the end of the pipe, in a millisecond or a few: not by the deadline of 250.
    assert report["detection_ms"]["max"] < 200
    assert report["not_back"] == 0
    json.dumps(report, allow_nan=False)


def test_a_hang_is_noticed_by_the_deadline_alone() -> None:
    with Live(gpus=2) as live:
        run = live.run(steady(200, 1.5), faults=[Fault(0.4, "hang", gpu=0, amount=20.0)])
    report = run.report()
    (injury,) = run.injuries
    assert "overdue" in injury.why
    assert report["detection_ms"]["max"] >= 250
    assert report["answered"] == 300
    assert (report["lost"], report["duplicated"], report["wrong_tag"]) == (0, 0, 0)
    assert report["not_back"] == 0


def test_a_straggler_lives_and_is_slow() -> None:
    with Live(gpus=2) as live:
        run = live.run(steady(100, 1.0), faults=[Fault(0.1, "straggle", gpu=0, amount=1.5)])
        assert [gpu["restarts"] for gpu in live.snapshot()["gpus"]] == [0, 0]
    assert run.report()["answered"] == 100
    assert run.report()["latency_ms"]["max"] > 150


def test_a_poisoned_context_is_reported_and_never_retried_in_place() -> None:
    with Live(gpus=2) as live:
        run = live.run(steady(200, 1.5), faults=[Fault(0.4, "poison", gpu=1)])
        restarts = [gpu["restarts"] for gpu in live.snapshot()["gpus"]]
    (injury,) = run.injuries
    assert "Poisoned" in injury.why
    assert restarts[1] >= 1
    assert run.report()["answered"] == 300
    assert run.report()["wrong_tag"] == 0


def test_the_late_answer_of_a_fenced_gpu_is_dropped_and_counted() -> None:
    # A fake GPU cannot be ended: fenced, it finishes all the same, and its answer comes late.
    with Live(workers=FakeFleet(2)) as live:
        live.hang(0, 0.4)
        replies = [live.submit(f"p{i}") for i in range(100)]
        assert all(carries(reply.result(5), f"p{i}") for i, reply in enumerate(replies))
        run = live.run([Request(1, "meanwhile", 300_000)])
        assert live.snapshot()["late_dropped"] == 1
    assert run.report()["duplicated"] == 0


def test_a_request_that_kills_every_worker_fails_alone(kind) -> None:
    with Live(live_settings(3, overdue_after=2 * S), gpus=3, workers=kind("Faulty")) as live:
        replies = [live.submit("die" if i == 7 else f"p{i}") for i in range(40)]
        answers = [None if i == 7 else reply.result(20) for i, reply in enumerate(replies)]
        with pytest.raises(Failed, match="GPUs were lost with this request aboard"):
            replies[7].result(20)
        restarts = sum(gpu["restarts"] for gpu in live.snapshot()["gpus"])
    assert restarts <= 4
    assert all(carries(a, f"p{i}") for i, a in enumerate(answers) if a is not None)


def test_a_request_that_raises_fails_alone_and_kills_nothing(kind) -> None:
    with Live(gpus=2, workers=kind("Faulty")) as live:
        replies = [live.submit("raise" if i == 5 else f"p{i}") for i in range(20)]
        with pytest.raises(Failed, match="ValueError: no such word"):
            replies[5].result(20)
        assert all(carries(r.result(20), f"p{i}") for i, r in enumerate(replies) if i != 5)
        assert sum(gpu["restarts"] for gpu in live.snapshot()["gpus"]) == 0


def test_one_row_may_fail_and_its_neighbours_are_answered(kind) -> None:
    with Live(gpus=1, workers=kind("Faulty")) as live:
        before, bad, after = (live.submit(said) for said in ("a", "row", "b"))
        assert [carries(before.result(5), "a"), carries(after.result(5), "b")] == [True, True]
        with pytest.raises(Failed, match="this row alone"):
            bad.result(5)
        assert live.snapshot()["gpus"][0]["device"] == "faulty-0"


@pytest.mark.parametrize("said", ["none", "bytes", "letters", "five"])
def test_what_is_no_text_fails_whoever_asked_for_it_and_nobody_else(kind, said) -> None:
    with Live(gpus=1, workers=kind("odd")) as live:
        bad, good = live.submit(said), live.submit("good")
        assert carries(good.result(5), "good")
        with pytest.raises(Failed, match="text"):
            bad.result(5)
        assert sum(gpu["restarts"] for gpu in live.snapshot()["gpus"]) == 0


def test_a_batch_that_computes_longer_than_the_contract_is_answered_and_counted(kind) -> None:
    with Live(gpus=1, workers=kind("slow")) as live:
        assert carries(live.submit("p").result(5), "p")
        assert live.snapshot()["contract_violations"] == 1


def test_a_gpu_can_be_drained_and_comes_back_fresh(until) -> None:
    with Live(gpus=2) as live:
        old = live.snapshot()["gpus"][0]["pid"]
        replies = [live.submit(f"p{i}") for i in range(200)]
        until(lambda: live.snapshot()["in_flight"] == 200)
        live.drain(0)
        assert all(carries(reply.result(5), f"p{i}") for i, reply in enumerate(replies))
        until(lambda: live.snapshot()["gpus"][0]["restarts"] == 1)
        until(lambda: live.snapshot()["gpus"][0]["state"] == "ready")
        assert live.snapshot()["gpus"][0]["pid"] != old
        assert live.snapshot()["gpus"][1]["restarts"] == 0


def test_when_every_gpu_dies_the_requests_wait_for_the_next_ones() -> None:
    with Live(gpus=2) as live:
        replies = [live.submit(f"p{i}") for i in range(10)]
        live.kill(0)
        live.kill(1)
        assert all(carries(reply.result(10), f"p{i}") for i, reply in enumerate(replies))


def test_a_request_is_overdue_only_by_its_own_batch() -> None:
    settings = live_settings(1, overdue_after=None)
    with Live(settings, workers=FakeFleet(1)) as live:
        live.hang(0, 0.5)
        assert carries(live.submit("patient").result(5), "patient")
        assert live.snapshot()["gpus"][0]["restarts"] == 0


@pytest.mark.parametrize("at", [-0.001, 1.1e9, inf, nan])
def test_a_fault_at_no_instant_of_the_run_is_refused(at: float) -> None:
    with pytest.raises(ValueError, match="give seconds from the start, 0 to 1e\\+09"):
        faults_of([1.0, at], [])
    assert [fault.at for fault in faults_of([2.0], [Fault(0.0)])] == [0.0, 2.0]
