"""What GPUs say is heard before whoever comes next, and goes wrong by itself alone."""

import asyncio
import os
import signal
import time

import pytest

from labkit.core.messages import Request
from labkit.core.units import MS, S
from labkit.live import Live, live_settings
from labkit.live.workers import ProcessFleet

pytestmark = pytest.mark.live


class Heard:
    """A listener that keeps what it hears; `broken_on` names a batch whose result it chokes on."""

    def __init__(self, broken_on: int = 0) -> None:
        self.events: list[tuple] = []
        self.broken_on = broken_on

    def joined(self, gpu: int) -> None:
        self.events.append(("joined", gpu))

    def lost(self, gpu: int, why: str) -> None:
        self.events.append(("lost", gpu, why))

    def pieces(self, batch_id: int, pieces) -> None:
        self.events.append(("pieces", batch_id, pieces))

    def done(self, batch_id: int, result, raw_us: int) -> None:
        if batch_id == self.broken_on:
            raise RuntimeError(f"batch {batch_id}")
        self.events.append(("done", batch_id))

    def broken(self, gpu: int, why: str) -> None:
        self.events.append(("broken", gpu, why))


async def heard(listener: Heard, *events: tuple) -> None:
    """Wait until the listener has heard these."""
    async with asyncio.timeout(30):
        while not all(event in listener.events for event in events):
            await asyncio.sleep(0.005)


def test_a_result_is_heard_before_the_next_arrival_however_busy_the_loop_is() -> None:
    told: list[str] = []
    settings = live_settings(1, rule="at_once", batch_time=20 * MS)
    with Live(settings, gpus=1) as live:
        engine = live._engine

        def busy() -> None:
            engine.shell.offer(Request(1, "first"), lambda number, outcome: told.append("first"))
            # The loop comes to nothing else meanwhile, as among a thousand arrivals.
            time.sleep(0.5)
            assert told == []
            engine.shell.offer(Request(2, "second"), lambda number, outcome: told.append("second"))
            assert told == ["first"]
            # Its GPU has left with the next one already.
            assert [row.id for row in engine.shell.on_gpu[0].rows] == [2]

        engine.call(busy)


def test_news_that_goes_wrong_is_the_loops_to_report_and_stops_no_other() -> None:
    async def run() -> tuple[list, list]:
        loop = asyncio.get_running_loop()
        errors: list[str] = []
        loop.set_exception_handler(lambda loop, context: errors.append(str(context["exception"])))
        listener = Heard(broken_on=1)
        fleet = ProcessFleet(["timer", "timer"], 10 * MS)
        fleet.open(loop, listener)
        try:
            await heard(listener, ("joined", 0), ("joined", 1))
            fleet.depart(0, 1, ["a"])
            fleet.depart(1, 2, ["b"])
            time.sleep(0.3)
            # Whoever looks for news as they come by is not the one to suffer for it.
            fleet.hear()
            return list(listener.events), errors
        finally:
            await asyncio.to_thread(fleet.close)

    events, errors = asyncio.run(run())
    assert ("done", 2) in events
    assert ("done", 1) not in events
    assert errors == ["batch 1"]


def test_news_is_not_heard_within_news() -> None:
    depth: list[int] = []

    class Nosy(Heard):
        def done(self, batch_id: int, result, raw_us: int) -> None:
            depth.append(batch_id)
            fleet.hear()
            fleet._hear()
            depth.append(-batch_id)

    async def run() -> None:
        listener = Nosy()
        fleet.open(asyncio.get_running_loop(), listener)
        try:
            await heard(listener, ("joined", 0), ("joined", 1))
            fleet.depart(0, 1, ["a"])
            fleet.depart(1, 2, ["b"])
            async with asyncio.timeout(30):
                while len(depth) < 4:
                    await asyncio.sleep(0.3)
        finally:
            await asyncio.to_thread(fleet.close)

    fleet = ProcessFleet(["timer", "timer"], 10 * MS)
    asyncio.run(run())
    assert depth in ([1, -1, 2, -2], [2, -2, 1, -1])


def test_the_last_words_of_a_killed_worker_are_heard_before_its_loss() -> None:
    async def run() -> list[tuple]:
        listener = Heard()
        fleet = ProcessFleet(["timer"], 10 * MS)
        fleet.open(asyncio.get_running_loop(), listener)
        try:
            await heard(listener, ("joined", 0))
            fleet.depart(0, 1, ["a"])
            # It answers and is killed while the loop is busy with something else.
            time.sleep(0.3)
            fleet.kill(0)
            time.sleep(0.1)
            await heard(listener, ("lost", 0, "its process ended"))
            # It comes back.
            async with asyncio.timeout(30):
                while listener.events.count(("joined", 0)) < 2:
                    await asyncio.sleep(0.005)
            return list(listener.events)
        finally:
            await asyncio.to_thread(fleet.close)

    assert asyncio.run(run()) == [
        ("joined", 0),
        ("done", 1),
        ("lost", 0, "its process ended"),
        ("joined", 0),
    ]


def test_a_worker_that_hears_nothing_holds_nobody_up() -> None:
    async def run() -> float:
        listener = Heard()
        fleet = ProcessFleet(["timer"], 10 * MS)
        fleet.open(asyncio.get_running_loop(), listener)
        try:
            await heard(listener, ("joined", 0))
            fleet.inject(0, "hang", 25.0)
            began = time.monotonic()
            # More than any pipe holds.
            for _ in range(100_000):
                fleet.inject(0, "straggle", 1.0)
            return time.monotonic() - began
        finally:
            await asyncio.to_thread(fleet.close)

    # Far less than the hang, which is what a full pipe would wait for.
    assert asyncio.run(run()) < 20


def test_no_gpu_is_lost_between_a_command_and_the_next() -> None:
    told: list[str] = []
    settings = live_settings(1, max_wait=50 * MS, batch_time=10 * MS)
    with Live(settings, gpus=1) as live:
        engine = live._engine
        shell, pid = engine.shell, live.snapshot()["gpus"][0]["pid"]

        def watch(what: str, gpu: int, now: int, why: str) -> None:
            told.append(what)

        def note(number: int, outcome: object) -> None:
            told.append(f"{number} {type(outcome).__name__}")

        def expired(number: int, outcome: object) -> None:
            # The next command is that the GPU departs.
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
            shell.offer(Request(3, "third"), note)
            told.append(f"{number} {type(outcome).__name__}")

        def begin() -> None:
            now = shell.clock()
            shell.watchers.append(watch)
            shell.offer(Request(1, "first", now, deadline=now + 20 * MS), expired)
            shell.offer(Request(2, "second", now), note)
            time.sleep(0.1)

        engine.call(begin)
        deadline = time.monotonic() + 30
        while len(told) < 5:
            assert time.monotonic() < deadline, told
            time.sleep(0.005)
    assert told[:3] == ["1 End", "lost", "joined"]
    assert sorted(told[3:5]) == ["2 str", "3 str"]


def test_a_sink_that_takes_its_time_does_not_turn_the_schedulers_time_back() -> None:
    settings = live_settings(1, rule="at_once", batch_time=10 * MS, overdue_after=100 * MS)
    with Live(settings, gpus=1, trace=1_000) as live:
        engine = live._engine
        shell = engine.shell

        def slow(number: int, outcome: object) -> None:
            time.sleep(0.05)
            shell.offer(Request(3, "third", shell.clock()), lambda number, outcome: None)

        def begin() -> None:
            now = shell.clock()
            shell.offer(Request(1, "first", now), lambda number, outcome: None)
            shell.offer(Request(2, "second", now), slow)
            # The first is overdue a little when the second is withdrawn.
            time.sleep((shell.departed_at[0] + 105 * MS - shell.clock()) / S)
            shell.cancel(2)

        live.hang(0, 20.0)
        engine.call(begin)
        live.close()
        assert engine.failure is None


def test_two_threads_may_send_to_one_worker_and_no_message_is_torn() -> None:
    prompts = ["z" * 150_000]

    async def run() -> list[tuple]:
        listener = Heard()
        fleet = ProcessFleet(["timer"], 1 * MS)
        fleet.open(asyncio.get_running_loop(), listener)
        try:
            await heard(listener, ("joined", 0))
            for number in range(1, 60, 2):
                both = [
                    asyncio.to_thread(fleet.depart, 0, number + more, prompts) for more in range(2)
                ]
                await asyncio.gather(*both)
                await heard(listener, ("done", number), ("done", number + 1))
            return list(listener.events)
        finally:
            await asyncio.to_thread(fleet.close)

    events = asyncio.run(run())
    assert [event for event in events if event[0] == "lost"] == []
    assert sorted(number for event, number in events[1:]) == [*range(1, 61)]
