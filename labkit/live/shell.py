"""The gateway under the real clock: tell, obey, and one timer. Everything here is on one thread."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.books import Books
from labkit.core.contract import Scheduler
from labkit.core.messages import (
    Answer,
    Command,
    Depart,
    End,
    Load,
    Outcome,
    Output,
    Request,
    Result,
    Stop,
)
from labkit.core.settings import Settings
from labkit.core.units import MS, NEVER, S
from labkit.live.fleet import Fleet

logger = logging.getLogger(__name__)

STALL = 20 * MS
"""A timer that fires later than this tells of a stall in this process, or of a busy machine."""

GRACE_S = 0.02
"""How long results that wait in a socket may still be heard after a stall, in seconds."""

Sink = Callable[[int, Output | End], None]
"""Is told once, on the loop's thread, how a request ended: `sink(request_id, output or end)`.

It must not block. One that raises loses its own reply, and nobody else's.
"""

Watcher = Callable[[str, int, int, str], None]
"""`watcher(what, gpu, now, why)` hears that a GPU `joined`, is `lost`, `stopped` or `broken`."""


class Shell:
    """Drives a scheduler on an event loop; instants are microseconds since it was made.

    Implements `labkit.live.fleet.Listener`. `version_of(gpu)` names the model that a GPU serves.
    `violations` counts batches that took longer to compute than the settings allow; `unclaimed`
    counts outcomes of requests that had one already, and is 0 unless the core is broken.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        scheduler: Scheduler,
        fleet: Fleet,
        version_of: Callable[[int], str],
        settings: Settings | None = None,
    ) -> None:
        self.loop = loop
        self.scheduler = scheduler
        self.fleet = fleet
        self.version_of = version_of
        self._batch_times: dict[str | None, int] = {}
        if settings is not None:
            self._batch_times = {m: settings.of(m).batch_time for m in settings.models}
        self._longest = max(self._batch_times.values(), default=NEVER)
        self.overdue_after = (settings and settings.overdue_after) or NEVER
        self.open: dict[int, Sink] = {}
        self.on_gpu: dict[int, Depart] = {}
        self.departed_at: dict[int, int] = {}
        self.books: Books | None = None
        self.watchers: list[Watcher] = []
        self.unclaimed = 0
        self.violations = 0
        self.sink_error: Exception | None = None
        self._gpu_of: dict[int, int] = {}
        self._origin = time.monotonic_ns()
        self._now = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = NEVER
        self._settling = False
        self._over: str | None = None

    def clock(self) -> int:
        """Now; from any thread."""
        return (time.monotonic_ns() - self._origin) // 1_000

    def time(self) -> int:
        """Now, and never earlier than anything the scheduler has been told."""
        now = self.clock()
        if now > self._now:
            self._now = now
        return self._now

    # -- tell ---------------------------------------------------------------------------------

    def offer(self, request: Request, sink: Sink) -> None:
        """A request came; `sink` is told how it ends, perhaps before this returns.

        What a GPU has finished is heard first: a busy loop may have a thousand arrivals to go
        through before it comes to that, and the GPU would stand idle meanwhile.
        """
        self._hear()
        now = self.time()
        self.open[request.id] = sink
        if self._over is not None:
            self.end_all(self._over)
            return
        self._settle(self.scheduler.arrive(request, now), now)

    def _hear(self) -> None:
        """Not while a command is obeyed, whose GPU could be lost before the next one names it."""
        if not self._settling:
            self.fleet.hear()

    def cancel(self, request_id: int) -> None:
        """Nobody waits for it any more; harmless when it has ended."""
        if request_id in self.open:
            now = self.time()
            self._settle(self.scheduler.cancel(request_id, now), now)

    def joined(self, gpu: int) -> None:
        """See `Listener`."""
        now = self.time()
        self._settle(self.scheduler.join(gpu, self.version_of(gpu), now), now)
        self._say("joined", gpu, now)

    def lost(self, gpu: int, why: str) -> None:
        """See `Listener`."""
        self._say("lost", gpu, self.time(), why)
        # Who watches may have withdrawn requests meanwhile; the scheduler's time never goes back.
        now = self.time()
        self._vacate(gpu, now)
        self._settle(self.scheduler.lose(gpu, now), now)

    def done(self, batch_id: int, result: Result, raw_us: int) -> None:
        """See `Listener`; a batch of a lost GPU is still told, because the core counts it."""
        now = self.time()
        gpu = self._gpu_of.get(batch_id)
        model = None if gpu is None else self.version_of(gpu)
        if raw_us > self._batch_times.get(model, self._longest):
            self.violations += 1
        if gpu is not None:
            self._vacate(gpu, now)
        self._settle(self.scheduler.finish(batch_id, result, now), now)

    def pieces(self, batch_id: int, pieces: Sequence[str | None]) -> None:
        """See `Listener`; here nobody streams."""

    def broken(self, gpu: int, why: str) -> None:
        """See `Listener`; the scheduler was told when the GPU was lost."""
        self._say("broken", gpu, self.time(), why)

    def drain(self, gpu: int) -> None:
        """Take a GPU out of service and bring it back fresh; nobody aboard notices."""
        now = self.time()
        self._settle(self.scheduler.drain(gpu, now), now)

    def close(self) -> None:
        """Admit nobody any more; everyone who waits is due as soon as a GPU has room."""
        closing: Any = getattr(self.scheduler, "close", None)
        if closing is not None:
            now = self.time()
            self._settle(closing(now), now)

    def end_all(self, code: str) -> None:
        """Give every open request an outcome, without asking the scheduler; obey it no more.

        Whoever is offered after that has the same outcome at once.
        """
        self._over = code
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._armed_for = None, NEVER
        for request_id in list(self.open):
            self._conclude(request_id, End(request_id, Outcome.FAILED, code))

    # -- obey ---------------------------------------------------------------------------------

    def _settle(self, commands: Sequence[Command], now: int) -> None:
        """After every verb: obey, do what is due, arm the timer; nothing once all is over."""
        if self._over is not None:
            return
        outer, self._settling = self._settling, True
        try:
            if commands:
                self._obey(commands, now)
                # A sink may have taken its time, and then told something later.
                now = self._now
            due_at = self.scheduler.due_at
            if due_at <= now and not self._held_up(now):
                now = self._before_due(now)
                self._obey(self.scheduler.advance(now), now)
                due_at = self.scheduler.due_at
            if due_at < self._armed_for:
                self._arm(due_at)
        finally:
            self._settling = outer

    def _before_due(self, now: int) -> int:
        """Hook: what is to be done before anything falls due; the instant at which it then does."""
        return now

    def _obey(self, commands: Sequence[Command], now: int) -> None:
        for command in commands:
            if self.books is not None:
                self.books.note(command, now)
            if isinstance(command, Answer):
                conclude = self._conclude
                for row, output in zip(command.rows, command.outputs, strict=True):
                    conclude(row.id, output)
            elif isinstance(command, Depart):
                self._depart(command, now)
            elif isinstance(command, End):
                self._conclude(command.request_id, command)
            elif isinstance(command, Stop):
                self._say("stopped", command.gpu, now, command.why)
                self._vacate(command.gpu, now)
                self.fleet.restart(command.gpu)
            elif isinstance(command, Load):
                raise NotImplementedError(f"{command}: this engine keeps each GPU on its model")

    def _depart(self, depart: Depart, now: int) -> None:
        gpu = depart.gpus[0]
        self.on_gpu[gpu] = depart
        self.departed_at[gpu] = now
        self._gpu_of[depart.batch_id] = gpu
        self.fleet.depart(gpu, depart.batch_id, [row.prompt for row in depart.rows])

    def _vacate(self, gpu: int, now: int) -> None:
        """The batch on this GPU, if any, occupies it no longer."""
        depart = self.on_gpu.pop(gpu, None)
        if depart is not None:
            del self._gpu_of[depart.batch_id]
            if self.books is not None:
                self.books.returned(depart.batch_id, now)

    def _conclude(self, request_id: int, outcome: Output | End) -> None:
        sink = self.open.pop(request_id, None)
        if sink is None:
            self.unclaimed += 1
            return
        try:
            sink(request_id, outcome)
        except Exception as error:
            self.sink_error = error
            logger.exception("the sink of request %d raised; its batch goes on", request_id)

    def _say(self, what: str, gpu: int, now: int, why: str = "") -> None:
        for watcher in self.watchers:
            watcher(what, gpu, now, why)

    # -- one timer ----------------------------------------------------------------------------

    def _arm(self, due_at: int) -> None:
        """One timer, only ever moved forward; when it comes too soon it is set again."""
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = due_at
        self._timer = self.loop.call_later(max(due_at - self.time(), 0) / S, self._fire)

    def _fire(self) -> None:
        if self._held_up(self.time()):
            self._timer = self.loop.call_later(GRACE_S, self._ring)
        else:
            self._ring()

    def _ring(self) -> None:
        # A loop may wake a hair too soon; the scheduler is told the instant it asked for.
        self._now = now = max(self._armed_for, self.time())
        self._timer, self._armed_for = None, NEVER
        self._settle((), now)

    def _held_up(self, now: int) -> bool:
        """Whether this very process was held up while a batch became overdue.

        That says nothing about the GPUs: results that came meanwhile are heard first, for as long
        as `GRACE_S`, and only then does anything fall due.
        """
        if now - self._armed_for <= STALL:
            return False
        return bool(self._overdue(now))

    def _overdue(self, now: int) -> set[int]:
        """The GPUs whose batch is out for so long that the scheduler will call it lost."""
        deadline = now - self.overdue_after
        return {gpu for gpu in self.on_gpu if self.departed_at[gpu] <= deadline}
