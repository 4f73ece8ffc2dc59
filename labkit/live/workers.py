"""A fleet of OS processes, one a GPU at a time: started, heard on the loop, and brought back."""

import asyncio
import selectors
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from labkit.core.messages import Result
from labkit.core.units import MS
from labkit.live.fleet import GpuView, Listener, State, dealt
from labkit.live.incarnation import Worker
from labkit.live.kinds import Setup, target_of
from labkit.live.launch import Launcher, launcher_for

LOOK_EVERY_S = 0.001
"""How often a busy loop looks for news between two of its steps, which may last 20 ms."""

MOST_FALSE_STARTS = 3
FIRST_PAUSE_S = 0.2


class _Seat:
    """One GPU of the fleet: the incarnation that plays it now, and the count of those before."""

    __slots__ = ("facts", "false_starts", "fenced", "restarts", "state", "why", "worker")

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.state = State.STARTING
        self.fenced = False
        self.false_starts = 0
        self.restarts = -1
        self.facts: dict[str, Any] = {}
        self.why = ""


class ProcessFleet:
    """Worker processes that come back when they end; `kinds[gpu]` says what each computes.

    `batch_time` in microseconds, see `dealt`; `options` go to each kind's factory.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        batch_time: int | Sequence[int] = 100 * MS,
        options: Mapping[str, Any] | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        self.gpus = len(kinds)
        told = {"gpus": len(kinds), **(options or {})}
        times = dealt(batch_time, len(kinds))
        self._setups = [
            Setup(gpu, target_of(kind), times[gpu], told) for gpu, kind in enumerate(kinds)
        ]
        self._launcher = launcher or launcher_for([setup.target for setup in self._setups])
        self._seats = [_Seat() for _ in kinds]
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._closing = False
        self._news: deque[tuple[str, Worker, tuple[Any, ...]]] = deque()
        self._woken = self._hearing = False
        self._look_at = 0.0
        self._selector: Any = None

    def open(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        """Start every process, all at once."""
        self._loop = loop
        self._listener = listener
        for gpu in range(self.gpus):
            self._start(gpu)

    def depart(self, gpu: int, batch_id: int, prompts: list[str]) -> None:
        """Write the batch to the GPU's pipe."""
        self._of(gpu).send("run", batch_id, prompts)

    def restart(self, gpu: int) -> None:
        """Fence first, so that nothing the old process still says counts; then end it."""
        seat = self._seats[gpu]
        seat.fenced, seat.state = True, State.LOST
        self._of(gpu).kill()

    def kill(self, gpu: int) -> None:
        """SIGKILL; the fleet learns of it as of any accident, by the end of the pipe."""
        self._of(gpu).kill()

    def inject(self, gpu: int, verb: str, *arguments: float) -> None:
        """The worker obeys when it reads the message: after the batch it is at."""
        self._of(gpu).send(verb, *arguments)

    def hear(self) -> None:
        """See `Fleet`."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._hear()

    def _hear(self) -> None:
        """What threads have told, then what workers have said; never within itself."""
        if self._hearing:
            return
        self._hearing = True
        try:
            while self._news:
                self._take(*self._news.popleft())
            if self._selector is not None:
                self._read()
        finally:
            self._hearing = False

    def _read(self) -> None:
        for ready, _ in self._selector.select(0):
            worker: Worker = ready.data
            for event, arguments in worker.read():
                self._take(event, worker, arguments)
                if event == "down":
                    self._selector.unregister(ready.fd)
                    worker.over.set()

    def _listen_to(self, worker: Worker) -> None:
        """From now on the loop reads it; all pipes together are one thing that it waits for."""
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            self._loop.add_reader(self._selector.fileno(), self._hear)
        try:
            self._selector.register(worker.fileno(), selectors.EVENT_READ, worker)
        except OSError:
            # Buried meanwhile, because the fleet closes.
            worker.over.set()

    def _deafen(self) -> None:
        if self._selector is not None:
            with suppress(RuntimeError):
                self._loop.remove_reader(self._selector.fileno())
            self._selector.close()
            self._selector = None

    def _take(self, event: str, worker: Worker, arguments: Sequence[Any]) -> None:
        """One piece of news; what goes wrong with it is the loop's to report, not the caller's."""
        try:
            getattr(self, f"_{event}")(worker, *arguments)
        except Exception as error:
            told = {"message": f"news of GPU {worker.setup.gpu}: {event}", "exception": error}
            self._loop.call_exception_handler(told)

    def view(self, gpu: int) -> GpuView:
        """The seat as it stands."""
        seat = self._seats[gpu]
        pid = None if seat.worker is None else seat.worker.pid
        facts = {**seat.facts, "why": seat.why} if seat.why else seat.facts
        return GpuView(seat.state, pid, max(seat.restarts, 0), facts)

    def close(self) -> None:
        """End every process, wait for every thread, then end what starts processes."""
        with self._starting:
            self._closing = True
        for seat in self._seats:
            if seat.worker is not None:
                seat.worker.kill()
                seat.worker.over.set()
        for thread in self._threads:
            thread.join()
        if self._selector is not None:
            try:
                self._loop.call_soon_threadsafe(self._deafen)
            except RuntimeError:
                # The loop has ended, and nobody but this thread has it any more.
                self._deafen()
        self._launcher.close()

    def _of(self, gpu: int) -> Worker:
        worker = self._seats[gpu].worker
        assert worker is not None, f"GPU {gpu} was never opened"
        return worker

    def _start(self, gpu: int) -> None:
        with self._starting:
            if self._closing:
                return
            seat = self._seats[gpu]
            seat.worker = Worker(self._setups[gpu], self._launcher, self._report)
            seat.state, seat.fenced = State.STARTING, False
            seat.restarts += 1
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._threads.append(seat.worker.thread)
            seat.worker.thread.start()

    def _report(self, event: str, worker: Worker, *arguments: Any) -> None:
        """From a worker's thread to the loop's; the loop may be gone when the process dies last."""
        self._news.append((event, worker, arguments))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Before the news is read, so that what comes meanwhile wakes the loop again.
        self._woken = False
        self._hear()

    def _up(self, worker: Worker, facts: dict[str, Any]) -> None:
        seat = self._seats[worker.setup.gpu]
        if worker.is_read_on_loop:
            self._listen_to(worker)
        if worker is seat.worker and not seat.fenced:
            seat.state, seat.facts, seat.false_starts, seat.why = State.READY, facts, 0, ""
            self._listener.joined(worker.setup.gpu)

    def _pieces(self, worker: Worker, batch_id: int, pieces: Sequence[str | None]) -> None:
        seat = self._seats[worker.setup.gpu]
        if worker is seat.worker and not seat.fenced:
            self._listener.pieces(batch_id, pieces)

    def _done(self, worker: Worker, batch_id: int, result: Result, raw_us: int) -> None:
        # A batch id belongs to one incarnation, so the core itself drops what comes from a lost
        # one; it is passed on because it must be counted.
        self._listener.done(batch_id, result, raw_us)

    def _down(self, worker: Worker, why: str) -> None:
        seat = self._seats[worker.setup.gpu]
        if worker is not seat.worker:
            return
        if seat.state is State.STARTING and not worker.doomed:
            seat.false_starts += 1
        seat.state, seat.why = State.LOST, why
        if not seat.fenced:
            seat.fenced = True
            self._listener.lost(worker.setup.gpu, why)

    def _buried(self, worker: Worker, exit_code: int | None) -> None:
        """Only now is the GPU's memory free for the next incarnation."""
        gpu = worker.setup.gpu
        seat = self._seats[gpu]
        if worker is not seat.worker or self._closing:
            return
        if not seat.false_starts:
            self._start(gpu)
        elif seat.false_starts < MOST_FALSE_STARTS:
            pause = FIRST_PAUSE_S * 2**seat.false_starts
            self._loop.call_later(pause, self._start, gpu)
        else:
            seat.state = State.BROKEN
            self._listener.broken(gpu, seat.why)
