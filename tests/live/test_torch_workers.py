"""Torch behind the dispatcher: real text, real deaths, and a caller that never loads torch."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from labkit.cli.live import live as command
from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.units import S
from labkit.gpu.batchstring import BatchString
from labkit.gpu.calibrate import plan
from labkit.gpu.decoder import Decoder
from labkit.gpu.device import Worker, plan_workers
from labkit.gpu.grammar import belongs
from labkit.gpu.machine import look
from labkit.gpu.tag import carries, text_of
from labkit.live import Fault, Live, live_settings
from labkit.live.configure import fleet_of, planned
from labkit.sim.driver import simulate
from labkit.workload import poisson, requests, stream

pytestmark = [pytest.mark.live, pytest.mark.torch]

WHOLE = {"plan": plan(0.5)}
ATTEMPTS = 2
OTHERS = 0.3
"""More of a core than this taken by other processes, and a run's figures are theirs."""

RESPAWNS = int(os.environ.get("LABKIT_RESPAWNS", "5"))


@pytest.fixture
def labkit_live() -> Callable[..., dict]:
    """The report of `labkit live` with these words."""

    def run(*words: str) -> dict:
        done = CliRunner().invoke(command, [*words, "--overdue-ms", "5000", "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return run


def torch_pair(overdue_after: int = 5 * S) -> Live:
    """Two workers with one plan, and nobody who loses patience on a machine with other work."""
    settings = live_settings(2, overdue_after=overdue_after, tiers=Settings().tiers)
    return Live(settings, gpus=2, workers="cpu", options=WHOLE)


def steady(rate: int, seconds: float) -> Iterator[Request]:
    for number in range(round(rate * seconds)):
        yield Request(number, f"passenger {number}", number * S // rate)


def test_a_hundred_prompts_are_answered_in_order_as_one_function_would_answer_them() -> None:
    prompts = [f"passenger {number}" for number in range(100)]
    with torch_pair() as live:
        answers = live.ask(prompts)
        again = live.ask(prompts[:3])
        took = live.fleet.timings()
        facts = live.snapshot()["gpus"][0]
    assert answers == BatchString(Decoder(), WHOLE["plan"]).compute(prompts)
    assert again == answers[:3]
    assert all(belongs(text_of(answer)) for answer in answers)
    assert (facts["kind"], facts["new_bytes"]) == ("cpu", WHOLE["plan"].new_bytes)
    assert 0 < took["raw_ms"]["p50"] <= took["padded_ms"]["p50"]
    assert took["padded_ms"]["p50"] >= 100


@pytest.mark.parametrize(
    ("how", "why", "overdue_after"),
    [("kill", "ended", 5 * S), ("poison", "PoisonedContext", 5 * S), ("hang", "overdue", S)],
)
def test_a_worker_that_breaks_is_noticed_and_everybody_is_answered_once(
    how, why, overdue_after
) -> None:
    with torch_pair(overdue_after) as live:
        run = live.run(steady(40, 1.5), faults=[Fault(0.5, how, amount=20.0)])
        gpus = live.snapshot()["gpus"]
    report, (injury,) = run.report(), run.injuries
    assert report["offered"] == report["answered"] == 60
    assert (report["lost"], report["duplicated"], report["wrong_tag"]) == (0, 0, 0)
    assert why in injury.why
    assert report["not_back"] == 0
    assert gpus[injury.gpu]["pid"] != injury.pid
    assert not psutil.pid_exists(injury.pid)


def test_no_memory_grows_while_workers_die_and_come_back(until) -> None:
    with torch_pair() as live:
        assert len(live.ask(["hello"] * 10)) == 10
        nursery = psutil.Process(live.snapshot()["gpus"][0]["pid"]).parent()
        ours = psutil.Process()

        def held() -> tuple[int, int, int, int]:
            return (
                ours.num_fds(),
                ours.num_threads(),
                nursery.num_fds(),
                len(nursery.children()),
            )

        def respawn(times: int) -> None:
            for number in range(times):
                gpu = number % 2
                restarts = live.snapshot()["gpus"][gpu]["restarts"]
                live.kill(gpu)
                until(lambda: live.snapshot()["gpus"][gpu]["restarts"] > restarts, 30)  # noqa: B023
                until(lambda: live.snapshot()["gpus"][gpu]["state"] == "ready", 30)  # noqa: B023

        respawn(2)
        before, memory = held(), (ours.memory_info().rss, nursery.memory_info().rss)
        respawn(RESPAWNS)
        after = (ours.memory_info().rss, nursery.memory_info().rss)
        assert held() == before
        grown = [(late - early) / 1e6 for early, late in zip(memory, after, strict=True)]
        print(f"{RESPAWNS} respawns: kernel {grown[0]:+.2f} MB, nursery {grown[1]:+.2f} MB")
        # A worker is some 300 MB: one that was kept, or its pages, would show.
        assert max(grown) < 8
        assert all(carries(answer, "hello") for answer in live.ask(["hello"] * 10))


def test_the_callers_process_never_loads_torch(tmp_path) -> None:
    script = (
        "import sys\n"
        "from labkit.gpu import curve\n"
        "from labkit.live import Live\n"
        "from labkit.teach.notebook import start\n"
        "start('01')\n"
        "with Live(gpus=2, workers='auto') as live:\n"
        "    print(live.ask(['hello'])[0], [gpu.get('kind') for gpu in live.snapshot()['gpus']])\n"
        "print(len(curve.expected()), len(curve.measured()))\n"
        "assert 'torch' not in sys.modules\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LABKIT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    banner, answer, figures = told.stdout.splitlines()
    assert banner.endswith(f"live: {plan_workers().banner}")
    assert answer.startswith("hello ")
    assert "#3610a686" in answer
    assert figures == "7 7"


def processor_s(processes: list[psutil.Process]) -> float:
    return sum(p.cpu_times().user + p.cpu_times().system for p in processes)


def busy_s() -> float:
    every = psutil.cpu_times()
    return sum(every) - every.idle - getattr(every, "iowait", 0.0) - getattr(every, "guest", 0.0)


@pytest.mark.slow
def test_live_torch_and_simulation_agree_within_five_percent() -> None:
    load = requests(poisson(200, 4.0, stream(7, "arrivals")))
    settings = live_settings(2, overdue_after=5 * S)
    simulated = simulate(settings, load, gpus=2).report()
    for _ in range(ATTEMPTS):
        with Live(settings, gpus=2, workers="cpu") as live:
            pids = [os.getpid(), *(gpu["pid"] for gpu in live.snapshot()["gpus"])]
            ours = [psutil.Process(pid) for pid in pids]
            busy, mine, began = busy_s(), processor_s(ours), time.monotonic()
            report = live.run(load).report()
            others = busy_s() - busy - (processor_s(ours) - mine)
            lasted = time.monotonic() - began
            took = live.fleet.timings()
        if others < OTHERS * lasted:
            break
    else:
        pytest.skip(f"others took over {OTHERS:.0%} of a core in each of {ATTEMPTS} runs")
    assert report["answered"] == simulated["answered"] == len(load)
    assert report["latency_ms"]["p95"] == pytest.approx(simulated["latency_ms"]["p95"], rel=0.05)
    assert took["raw_ms"]["p99"] < 100


def test_auto_is_torch_on_the_cores_and_timers_for_the_rest() -> None:
    kinds, options = planned(plan_workers(4, replace(look(), cores=1, cards=(), free_ram=10**12)))
    assert kinds == ["cpu", "timer", "timer", "timer"]
    assert options["workers"][0] == Worker("cpu", 1.0)
    with Live(live_settings(4), workers=kinds, options=options | WHOLE) as live:
        answers = live.ask([f"passenger {number}" for number in range(400)])
        shown = [gpu.get("kind", "timer") for gpu in live.snapshot()["gpus"]]
    assert shown == kinds
    assert all(carries(answer, f"passenger {n}") for n, answer in enumerate(answers))


def test_the_command_says_what_it_chose_and_what_computing_took(labkit_live) -> None:
    report = labkit_live("--workers", "auto", "--gpus", "2", "--rate", "40", "--seconds", "1")
    assert report["banner"] == plan_workers(2).banner
    assert report["offered"] == report["answered"] > 0
    assert 0 < report["raw_ms"]["p50"] <= report["padded_ms"]["p50"]
    fake = labkit_live("--workers", "fake", "--rate", "40", "--seconds", "0.2")
    assert (fake["banner"], fake["raw_ms"], fake["padded_ms"]) == (None, None, None)


def test_auto_without_torch_is_timers_alone(monkeypatch) -> None:
    bare = replace(look(), torch=None, torch_cuda=None)
    monkeypatch.setattr("labkit.gpu.device.look", lambda: bare)
    with Live(workers=fleet_of("auto", 2, Settings())) as live:
        assert live.ask(["hello"]) == ["hello #3610a686"]
        assert "kind" not in live.snapshot()["gpus"][0]
