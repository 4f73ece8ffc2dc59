"""An engine's life: it starts whole or not at all, and whatever ends it leaves nothing behind."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from labkit.core.units import S
from labkit.gpu.tag import carries
from labkit.live import FakeFleet, Live, LiveError, current, incarnation, launch, live_settings
from labkit.live.keyed import KeyedLive
from labkit.live.kinds import UnknownKind
from labkit.live.launch import Spawner
from labkit.live.ledger import MemoryJournal
from labkit.live.workers import ProcessFleet

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")


@pytest.fixture
def nothing_left():
    """Fails when a process, a thread or a file handle is left that was not there before."""
    me = psutil.Process()
    before = me.num_fds(), set(threading.enumerate())
    yield
    assert me.children(recursive=True) == []
    assert set(threading.enumerate()) - before[1] == set()
    assert me.num_fds() == before[0]


def pids(live: Live) -> list[int]:
    return [gpu["pid"] for gpu in live.snapshot()["gpus"]]


@pytest.mark.usefixtures("nothing_left")
def test_it_answers_and_leaves_no_process_thread_or_handle() -> None:
    with Live(gpus=3) as live:
        assert current() is live
        workers = pids(live)
        assert all(psutil.pid_exists(pid) for pid in workers)
        said = ["plain", "", "ferry \N{FERRY}", "a\0b", "\ud800 alone"]
        answers = live.ask(said)
        assert all(carries(answer, prompt) for answer, prompt in zip(answers, said, strict=True))
    assert current() is None
    assert not any(psutil.pid_exists(pid) for pid in workers)


@pytest.mark.usefixtures("nothing_left")
def test_it_can_be_made_and_stopped_again_and_again() -> None:
    for _ in range(3):
        with Live(gpus=2) as live:
            assert len(live.ask(["a", "b"])) == 2


@pytest.mark.usefixtures("nothing_left")
def test_prompts_larger_than_the_pipe_do_not_hold_the_engine_up(until) -> None:
    with Live(gpus=2, prompt_cap=1_000_000) as live:
        live.hang(0, 8.0)
        began = time.monotonic()
        replies = [live.submit("x" * 100_000 + str(i)) for i in range(200)]
        assert all(carries(r.result(20), "x" * 100_000 + str(i)) for i, r in enumerate(replies))
        # Had the engine waited for the hung GPU to read, nobody had noticed for 8 seconds.
        assert time.monotonic() - began < 6.0
        until(lambda: live.snapshot()["gpus"][0]["restarts"] >= 1)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_inside_stops_it_at_once_and_tells_who_waits(error) -> None:
    live = Live(gpus=2)
    replies = []

    def block() -> None:
        with live:
            replies.extend(live.submit(f"p{i}") for i in range(50))
            raise error

    with pytest.raises(error):
        block()
    assert {reply.exception(0).code for reply in replies} == {"engine_stopped"}


@pytest.mark.usefixtures("nothing_left", "ctrl_c")
def test_an_interrupt_during_a_run_ends_the_run_and_not_the_engine() -> None:
    from labkit.core.messages import Request

    with Live(gpus=2) as live:
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            live.run(Request(i, f"p{i}", i * 10_000) for i in range(10_000))
        assert live.snapshot()["depth"] == 0
        assert carries(live.submit("still here").result(5), "still here")


@pytest.mark.usefixtures("nothing_left")
def test_a_start_that_another_thread_ends_says_so_at_once(kind) -> None:
    live = Live(workers=[kind("sleepy")])
    began = time.monotonic()
    threading.Timer(0.5, live.stop).start()
    with pytest.raises(LiveError, match="told to end before every GPU was up"):
        live.start()
    # Far less than the two minutes that a start may take.
    assert time.monotonic() - began < 30


@pytest.mark.usefixtures("nothing_left")
def test_a_start_that_was_ended_before_it_began_leaves_nothing() -> None:
    class Hasty(MemoryJournal):
        def open(self, clock, heard):
            ending = threading.Thread(target=live.stop)
            ending.start()
            ending.join()
            return super().open(clock, heard)

    before = gc.get_threshold()
    live = KeyedLive(gpus=2, journal=Hasty())
    with pytest.raises(LiveError, match="told to end before every GPU was up"):
        live.start()
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("nothing_left")
def test_an_engine_whose_thread_has_ended_is_closed_and_leaves_nothing() -> None:
    live = Live(gpus=2).start()
    live._engine.loop.call_soon_threadsafe(live._engine.loop.stop)
    live._engine._thread.join()
    reply = live.submit("too late")
    with pytest.raises(LiveError, match="does not answer"):
        live.close()
    assert live.state == "stopped"
    assert reply.exception(0).code == "engine_stopped"


@FORKS
@pytest.mark.usefixtures("nothing_left")
def test_a_child_of_a_worker_that_reads_nothing_does_not_hold_up_the_stop(kind, until) -> None:
    live = Live(live_settings(1, overdue_after=60 * S), workers=[kind("parent")]).start()
    live.submit("fork")
    until(lambda: len(psutil.Process(pids(live)[0]).children()) == 1)
    loop, inject = live._engine.loop, live.fleet.inject
    # More than the pipe holds, so that somebody waits for room in it.
    for _ in range(10_000):
        loop.call_soon_threadsafe(inject, 0, "straggle", 1.0)
    until(lambda: any(thread.name.endswith("-out") for thread in threading.enumerate()))
    began = time.monotonic()
    live.stop()
    # The child lives for 15 seconds.
    assert time.monotonic() - began < 8


def test_one_engine_a_process_and_the_second_says_how() -> None:
    with Live(workers=FakeFleet(1)) as first:
        with pytest.raises(LiveError, match=r"already runs.*current\(\)\.stop\(\)"):
            Live(workers=FakeFleet(1)).start()
        assert carries(first.submit("unharmed").result(5), "unharmed")
        with Live(workers=FakeFleet(1)).start(replace=True) as second:
            assert current() is second
            assert first.state == "stopped"
    with pytest.raises(LiveError, match="make a new Live"):
        first.start()


def test_the_collector_is_tuned_while_it_runs_and_restored() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with Live(workers=FakeFleet(1)):
        assert gc.get_threshold() == (200_000, 50, 100)
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unbuildable", "RuntimeError: no such device"),
        ("silent", "one output per prompt"),
        ("untagged", "does not end in the tag"),
        ("torchless", r"torch is not installed; pip install 'labkit\[torch\]'$"),
    ],
)
def test_a_gpu_that_cannot_start_is_named_with_its_reason(kind, name, why) -> None:
    live = Live(workers=["timer", kind(name)])
    with pytest.raises(LiveError, match=rf"GPU 1.*{why}"):
        live.start()
    assert current() is None


def test_workers_whose_words_come_together_start_at_once(kind, monkeypatch) -> None:
    # Whoever waits for a message that has come already waits this long.
    monkeypatch.setattr(incarnation, "START_WITHIN_S", 10.0)
    with Live(live_settings(8, batch_time=1), workers=kind("hasty")) as live:
        assert [gpu["restarts"] for gpu in live.snapshot()["gpus"]] == [0] * 8


def test_a_kind_nobody_knows_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownKind, match="workers 'tmier': choose one of timer, cpu, cuda"):
        Live(workers="tmier")
    with pytest.raises(ValueError, match="gpus 0: an engine needs at least 1"):
        Live(gpus=0)


@FORKS
def test_a_forked_child_can_neither_use_nor_end_the_engine_of_its_parent() -> None:
    with Live(gpus=1) as live:
        workers = pids(live)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                live.submit("from the child")
            except LiveError as error:
                os.write(tell, str(error).encode())
            live.stop()
            os.write(tell, f"; current: {current()}".encode())
            os._exit(0)
        os.close(tell)
        os.waitpid(child, 0)
        with os.fdopen(told) as pipe:
            said = pipe.read()
        assert "started in another process" in said
        assert "; current: None" in said
        assert len(live.ask(["a", "b"])) == 2
        assert pids(live) == workers


@FORKS
def test_a_forked_child_that_lives_on_does_not_hold_up_the_stop() -> None:
    live = Live(gpus=1).start()
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        begun = time.monotonic()
        live.stop()
        assert time.monotonic() - begun < 5
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@FORKS
@pytest.mark.usefixtures("nothing_left")
def test_what_starts_workers_may_fall_silent_and_the_engine_stops(monkeypatch) -> None:
    monkeypatch.setattr(launch, "BURIAL_S", 0.3)
    with Live(gpus=1):
        (nursery,) = psutil.Process().children()
        nursery.suspend()
    assert not nursery.is_running()


@POSIX
def test_workers_come_back_when_what_starts_them_was_killed(until) -> None:
    with Live(gpus=2) as live:
        (nursery,) = psutil.Process().children()
        nursery.kill()
        live.kill(0)
        until(lambda: live.snapshot()["gpus"][0]["restarts"] == 1)
        until(lambda: live.snapshot()["gpus"][0]["state"] == "ready")
        assert len(live.ask([f"p{i}" for i in range(300)])) == 300
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.slow
def test_workers_can_be_spawned_where_there_is_no_fork(until) -> None:
    with Live(workers=ProcessFleet(["timer"] * 2, launcher=Spawner())) as live:
        workers = pids(live)
        live.kill(0)
        assert len(live.ask([f"p{i}" for i in range(300)])) == 300
        until(lambda: live.snapshot()["gpus"][0]["state"] == "ready")
        assert pids(live)[0] != workers[0]
    assert not any(psutil.pid_exists(pid) for pid in workers)


# -- the end of the process that owns it ------------------------------------------------------


def script(body: str, launcher: str = "None") -> subprocess.Popen[str]:
    """A Python process of its own, which has started an engine and printed the pids of its GPUs."""
    begin = f"""
        import os, signal, sys, time
        from labkit.live import Live
        from labkit.live.launch import Spawner
        from labkit.live.workers import ProcessFleet
        live = Live(workers=ProcessFleet(["timer"] * 3, launcher={launcher})).start()
        print(*[gpu["pid"] for gpu in live.snapshot()["gpus"]], flush=True)
    """
    code = textwrap.dedent(begin) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def printed_pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def gone(workers: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in workers)


@POSIX
def test_a_killed_parent_leaves_no_orphan(until) -> None:
    parent = script("live.hang(0, 30.0); time.sleep(60)")
    workers = printed_pids(parent)
    nursery = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    until(lambda: gone([*workers, *(process.pid for process in nursery)]))
    parent.communicate()
    assert len(workers) == 3


FORKS_OF_A_CALLER = {
    "os.fork": """
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        """,
    "multiprocessing": """
        from multiprocessing import get_context
        it = get_context("fork").Process(target=time.sleep, args=(60,))
        it.start()
        child = it.pid
        """,
}


@FORKS
@pytest.mark.parametrize("how", FORKS_OF_A_CALLER)
@pytest.mark.parametrize("launcher", ["None", "Spawner()"])
def test_a_fork_that_outlives_a_killed_parent_keeps_no_worker_alive(until, how, launcher) -> None:
    body = textwrap.dedent(FORKS_OF_A_CALLER[how]) + "print(child, flush=True)\ntime.sleep(60)"
    parent = script(body, launcher)
    workers = printed_pids(parent)
    (child,) = printed_pids(parent)
    others = [p.pid for p in psutil.Process(parent.pid).children() if p.pid != child]
    if launcher != "None":
        # Python's own tracker of spawned processes ends with the last process that inherited it.
        others = []
    try:
        parent.kill()
        parent.wait()
        until(lambda: gone([*workers, *others]))
        assert psutil.pid_exists(child)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


@FORKS
def test_forks_while_workers_start_keep_none_of_their_pipes(until) -> None:
    parent = script(
        """
        children, deadline = [], time.monotonic() + 1.5
        while time.monotonic() < deadline:
            for gpu in range(3):
                if live.snapshot()["gpus"][gpu]["state"] == "ready":
                    live.kill(gpu)
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(60)
                os._exit(0)
            time.sleep(0.02)
        print(*children, flush=True)
        print(*[gpu["pid"] for gpu in live.snapshot()["gpus"]], flush=True)
        time.sleep(60)
        """
    )
    printed_pids(parent)
    children = printed_pids(parent)
    workers = printed_pids(parent)
    others = {p.pid for p in psutil.Process(parent.pid).children()} - set(children)
    try:
        assert len(others) == 1
        parent.kill()
        parent.wait()
        until(lambda: gone([*workers, *others]))
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        parent.communicate()


@POSIX
@pytest.mark.parametrize("launcher", ["None", "Spawner()"])
def test_an_interrupt_at_the_terminal_ends_everything_quietly(launcher) -> None:
    parent = script(
        """
        try:
            with live:
                live.ask(f"p{i}" for i in range(1_000_000))
        except KeyboardInterrupt:
            print("interrupted")
        """,
        launcher,
    )
    workers = printed_pids(parent)
    time.sleep(0.3)
    os.killpg(parent.pid, signal.SIGINT)
    out, err = parent.communicate(timeout=20)
    assert (out, err, parent.returncode) == ("interrupted\n", "", 0)
    assert gone(workers)


@POSIX
def test_a_process_that_was_stopped_for_a_while_blames_no_gpu_for_it() -> None:
    parent = script(
        """
        for _ in range(5):
            replies = [live.submit(f"p{i}") for i in range(10)]
            while not live.snapshot()["in_flight"]:
                time.sleep(0.001)
            print("aboard", flush=True)
            sys.stdin.readline()
            [reply.result() for reply in replies]
        print([gpu["restarts"] for gpu in live.snapshot()["gpus"]], flush=True)
        """
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    printed_pids(parent)
    for _ in range(5):
        assert parent.stdout.readline() == "aboard\n"
        os.kill(parent.pid, signal.SIGSTOP)
        # The batch is back after 100 ms and overdue after 250, but nobody listens.
        time.sleep(0.4)
        os.kill(parent.pid, signal.SIGCONT)
        parent.stdin.write("\n")
        parent.stdin.flush()
    out, err = parent.communicate(timeout=20)
    assert (out, err) == ("[0, 0, 0]\n", "")


def test_a_script_that_forgets_to_stop_ends_all_the_same() -> None:
    parent = script("reply = live.submit('never collected')")
    workers = printed_pids(parent)
    _, err = parent.communicate(timeout=20)
    assert (err, parent.returncode) == ("", 0)
    assert gone(workers)


def test_a_script_that_fails_shows_its_own_error_alone() -> None:
    parent = script("with live: 1 / 0")
    workers = printed_pids(parent)
    _, err = parent.communicate(timeout=20)
    assert err.count("Traceback") == 1
    assert "ZeroDivisionError" in err
    assert gone(workers)


def test_there_is_nothing_to_see_before_the_start() -> None:
    live = Live(gpus=1)
    with pytest.raises(LiveError, match="the engine is new"):
        live.snapshot()
    with pytest.raises(LiveError, match="the engine is new"):
        _ = live.trace
