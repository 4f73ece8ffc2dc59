"""One loop in one thread of its own, with a shell, a fleet and the replies; safe to call into."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from labkit.core.contract import Scheduler
from labkit.core.gateway import Gateway
from labkit.core.messages import End, Output, Request
from labkit.core.settings import Settings
from labkit.core.trace import Recorder, Trace
from labkit.live.collector import TunedCollector
from labkit.live.errors import LiveError
from labkit.live.fleet import Fleet, State
from labkit.live.incarnation import START_WITHIN_S
from labkit.live.launch import BURIAL_S
from labkit.live.replies import Replies, Reply
from labkit.live.shell import Shell
from labkit.workload.streams import stream

ANSWER_WITHIN_S = 30.0
"""The loop's thread answers a call from another thread in microseconds, unless it is stuck."""


class Engine:
    """Everything that lives from the start of a `Live` to its stop.

    A notebook's widgets call from another thread than its cells, and neither has a loop to spare:
    hence a thread and a loop of its own. An error that nobody expected on the loop's thread is
    kept in `failure`, and every open reply fails at once: nothing waits for an engine that broke.
    """

    tunes_collector = True
    """Whether it tunes Python's collector while it runs; set before `start`."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        *,
        seed: int,
        ring: int | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.fleet = fleet
        self.loop = loop
        self.failure: BaseException | None = None
        self.gateway = Gateway(settings, stream(seed, "gateway"))
        scheduler: Any = self.gateway
        self.trace: Trace | None = None
        if ring is not None:
            scheduler = Recorder(self.gateway, settings, seed, ring)
            self.trace = scheduler.trace
        self.shell = self._shell(scheduler, settings)
        self.shell.watchers.append(self._watch)
        self.replies = Replies(self.post)
        self._inbox: deque[tuple[Request, Reply] | int] = deque()
        self._woken = False
        self._settled = threading.Event()
        self._given_up = False
        self._broken: dict[int, str] = {}
        self._collector: TunedCollector | None = None
        self._thread = threading.Thread(target=self._run, name="labkit-live", daemon=True)

    def _shell(self, scheduler: Scheduler, settings: Settings) -> Shell:
        return Shell(self.loop, scheduler, self.fleet, settings.model_of, settings)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Run, and return when every GPU is up; raises `LiveError` when one cannot be."""
        if self.tunes_collector:
            self._collector = TunedCollector()
        self.loop.set_exception_handler(self._failed)
        self._check_wanted()
        self.replies.start()
        self._thread.start()
        self.call(self.fleet.open, self.loop, self.shell)
        up = self._settled.wait(START_WITHIN_S + BURIAL_S)
        self.check()
        self._check_wanted()
        if self._broken:
            gpu, why = next(iter(self._broken.items()))
            raise LiveError(
                f"{len(self._broken)} of {self.fleet.gpus} GPUs cannot be brought up; "
                f"GPU {gpu}: {why}"
            )
        if not up:
            raise LiveError(f"not every GPU was up after {START_WITHIN_S:g} s; see the processes")

    def give_up(self) -> None:
        """Let a `start` that still waits raise; from any thread but not from a signal handler."""
        self._given_up = True
        self._settled.set()

    def _check_wanted(self) -> None:
        if self._given_up:
            raise LiveError("told to end before every GPU was up")

    def stop(self) -> None:
        """End at once: every open reply gets an outcome, then processes and threads end.

        Twice is once, and harmless before `start`.
        """
        self._later(self.shell.end_all, "engine_stopped")
        self.fleet.close()
        self._later(self.loop.stop)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        elif not self.loop.is_closed():
            self.loop.close()
        self.replies.stop()
        if self._collector is not None:
            self._collector.restore()
            self._collector = None
        # Another thread may still be in `start`.
        self.give_up()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def check(self) -> None:
        """Raises `LiveError` when the engine broke."""
        if self.failure is not None:
            raise LiveError(
                f"the engine broke: {self.failure!r}; stop it and start a new one"
            ) from self.failure

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Nothing the scheduler says after this can be trusted, so everybody is told."""
        self.failure = context.get("exception") or LiveError(str(context.get("message")))
        self.shell.end_all("engine_broke")
        self._settled.set()
        loop.default_exception_handler(context)

    def _watch(self, what: str, gpu: int, now: int, why: str) -> None:
        if what == "broken":
            self._broken[gpu] = why
        elif what == "joined":
            self._broken.pop(gpu, None)
        states = [self.fleet.view(g).state for g in range(self.fleet.gpus)]
        if all(state in (State.READY, State.BROKEN) for state in states):
            self._settled.set()

    # -- between threads ----------------------------------------------------------------------

    def post(self, item: tuple[Request, Reply] | int) -> None:
        """A request with its reply, or the id of a request to withdraw; wakes the loop once."""
        self._inbox.append(item)
        if not self._woken:
            self._woken = True
            self._later(self._empty_inbox)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call on the loop's thread and wait for it; what it raises is raised here."""
        outcome: SimpleQueue[BaseException | None] = SimpleQueue()

        def report() -> None:
            try:
                function(*arguments)
            except BaseException as error:
                outcome.put(error)
            else:
                outcome.put(None)

        self._later(report)
        try:
            error = outcome.get(timeout=0 if self.loop.is_closed() else ANSWER_WITHIN_S)
        except Empty:
            raise LiveError("the engine's thread does not answer; stop it, start another") from None
        if error is not None:
            raise error

    def _later(self, function: Callable[..., None], *arguments: Any) -> None:
        """On the loop's thread, soon; nothing when the loop is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def _empty_inbox(self) -> None:
        self._woken = False
        inbox = self._inbox
        while inbox:
            item = inbox.popleft()
            if isinstance(item, int):
                self.shell.cancel(item)
            elif not item[1].cancelled():
                self.shell.offer(item[0], self._conclude)

    def _conclude(self, request_id: int, outcome: Output | End) -> None:
        if self.replies.note(request_id, outcome):
            self.loop.call_soon(self.replies.flush)
