"""The gateway under SimPy's virtual clock: the same decisions that answer HTTP, without waiting.

SimPy's agenda holds what happens on the GPUs. Between two entries of it nothing can happen but
arrivals and the gateway's own timer, so these two are merged in a plain loop: one SimPy event a
batch, and none a request.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from time import perf_counter
from typing import Any

import simpy

from labkit.core.books import Books
from labkit.core.contract import Scheduler
from labkit.core.gateway import Gateway
from labkit.core.messages import Command, Depart, End, Load, Request, Stop
from labkit.core.settings import Settings
from labkit.core.trace import Recorder, Trace
from labkit.core.units import NEVER
from labkit.sim.faults import Fault, FaultPlan
from labkit.sim.gpus import Gpus, Incident
from labkit.sim.service import ServiceTime, contract, service_stream
from labkit.workload.streams import stream

NO_GPU_LEFT = "no_gpu_left"
"""Detail of a request that was still waiting when nothing could ever happen again."""


@dataclass(slots=True)
class Run:
    """What one simulation leaves behind; `horizon` in microseconds, `wall_s` in real seconds.

    `events`: what befell the GPUs. `trace`: None unless it was asked for.
    """

    settings: Settings
    gpus: int
    books: Books
    gateway: Scheduler
    trace: Trace | None
    events: list[Incident]
    horizon: int
    wall_s: float

    def report(self) -> dict[str, Any]:
        """The stable keys of `labkit sim --json`."""
        return self.books.report(self.gpus, self.horizon, self.wall_s)


def simulate(
    settings: Settings,
    arrivals: Iterable[Request],
    *,
    gpus: int,
    service: ServiceTime | None = None,
    faults: Sequence[Fault] = (),
    seed: int = 0,
    trace: bool = False,
    warm_up: int = 0,
    horizon: int = 0,
    gateway: Scheduler | None = None,
    respond: Callable[[str], str] | None = None,
    load_time: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Run `arrivals`, ascending in time, through a gateway until each request has its outcome.

    Durations in microseconds. `service` is the settings' own unless given. `warm_up`:
    latency counts only requests that arrived later. `horizon`: GPU time is counted up to here, or
    to the last outcome if that is later. `gateway` replaces the one built by `gateway_for`.
    `respond` makes an output of a prompt, which is the prompt itself unless given. `progress` is
    called with the virtual instant after every batch.
    """
    if gpus < 1:
        raise ValueError(f"gpus {gpus}: nothing moves without at least 1")
    inner = gateway_for(settings, seed) if gateway is None else gateway
    recorder = Recorder(inner, settings, seed) if trace else None
    scheduler = inner if recorder is None else recorder
    shell = _Shell(scheduler, arrivals, Books(warm_up), progress)
    far_bank = Gpus(
        shell.env,
        shell.scheduler,
        shell.obey,
        shell.books,
        models=settings.models,
        count=gpus,
        service=service or contract(settings),
        rng=service_stream(seed),
        plan=FaultPlan(faults, gpus),
        respond=respond,
        load_time=load_time,
    )
    with quiet_collector():
        started = perf_counter()
        shell.run(far_bank)
        wall_s = perf_counter() - started
    return Run(
        settings,
        gpus,
        shell.books,
        inner,
        recorder.trace if recorder else None,
        far_bank.incidents,
        max(horizon, shell.now),
        wall_s,
    )


def gateway_for(settings: Settings, seed: int) -> Gateway:
    """The gateway of a run with this seed; build it again to replay the run's trace."""
    return Gateway(settings, stream(seed, "gateway"))


@contextmanager
def quiet_collector() -> Iterator[None]:
    """No cyclic garbage collection inside: a run makes no cycles, so nobody need look for them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Shell:
    """Tells, obeys, and keeps the one timer."""

    def __init__(
        self,
        scheduler: Scheduler | Recorder,
        arrivals: Iterable[Request],
        books: Books,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.env = simpy.Environment()
        self.scheduler = scheduler
        self.books = books
        self.progress = progress
        self.now = 0
        self._closed = False
        self._ids: list[int] = []
        self._known = arrivals if isinstance(arrivals, Sequence) else None
        source = iter(arrivals) if self._known is not None else self._noted(arrivals)
        self._next = next(source, None)
        self._source = source

    def _noted(self, arrivals: Iterable[Request]) -> Iterator[Request]:
        """Requests that come from a stream, remembered by id."""
        for request in arrivals:
            self._ids.append(request.id)
            yield request

    def run(self, gpus: Gpus) -> None:
        """From the first GPU's start to the last request's outcome."""
        self.gpus = gpus
        env = self.env
        gpus.start()
        while True:
            self._cross(self._agenda())
            if self._next is None and self._open() <= 0:
                return
            if self._agenda() < NEVER:
                env.step()
                while env.peek() == env.now:
                    env.step()
                self.now = int(env.now)
                if self.progress is not None:
                    self.progress(self.now)
            elif not self._last_resort():
                return

    def _agenda(self) -> int:
        """When something happens next on a GPU; `NEVER` when nothing will."""
        at = self.env.peek()
        return int(at) if at < NEVER else NEVER

    def _cross(self, limit: int) -> None:
        """Arrivals and the timer, in the order of time, up to but not including `limit`."""
        scheduler = self.scheduler
        while True:
            due_at = max(scheduler.due_at, self.now)
            first = self._next
            if first is not None and first.arrived_at <= due_at:
                limit = self._admit(first, limit)
                due_at = max(scheduler.due_at, self.now)
            if due_at >= limit:
                return
            self.now = due_at
            commands = scheduler.advance(due_at)
            if commands:
                self.obey(commands, due_at)
                limit = self._agenda()
            elif scheduler.due_at <= due_at:
                raise RuntimeError(
                    f"the scheduler has work at {scheduler.due_at} us, and at {due_at} us "
                    "advance did none of it and left due_at where it was; advance must move it on"
                )

    def _admit(self, first: Request, limit: int) -> int:
        """Tell of arrivals in bulk while they come before `limit` and not after the timer."""
        scheduler, now = self.scheduler, self.now
        arrive = scheduler.arrive
        due_at = scheduler.due_at
        for request in chain((first,), self._source):
            at = request.arrived_at
            if at > now:
                if at > due_at or at >= limit:
                    self._next = request
                    break
                now = at
            elif at < now:
                raise ValueError(
                    f"request {request.id} arrived at {at} us, after one at {now} us was told: "
                    "sort arrivals by arrived_at"
                )
            commands = arrive(request, at)
            if commands:
                self.obey(commands, at)
                limit = self._agenda()
            due_at = scheduler.due_at
        else:
            self._next = None
        self.now = now
        return limit

    def obey(self, commands: Sequence[Command], now: int) -> None:
        """Enter every command in the books and carry it out."""
        note = self.books.note
        for command in commands:
            note(command, now)
            if isinstance(command, Depart):
                self.gpus.depart(command, now)
            elif isinstance(command, Stop):
                self.gpus.stop(command, now)
            elif isinstance(command, Load):
                self.gpus.load(command, now)

    # -- the end ----------------------------------------------------------------------------------

    def _told(self) -> Sequence[int]:
        if self._known is None:
            return self._ids
        return [request.id for request in self._known]

    def _open(self) -> int:
        """How many requests were told and have no outcome yet, once all have arrived."""
        told = len(self._ids) if self._known is None else len(self._known)
        return told - self.books.outcomes.total()

    def _last_resort(self) -> bool:
        """Nothing will ever happen again by itself: close the door, then give up the rest."""
        close: Callable[[int], Sequence[Command]] | None = getattr(self.scheduler, "close", None)
        if self.gpus.any_up and close is not None and not self._closed:
            self._closed = True
            self.obey(close(self.now), self.now)
            return True
        self._say(f"{self._open()} requests ended: {NO_GPU_LEFT}")
        for request_id in self._told():
            ends = self.scheduler.cancel(request_id, self.now)
            why = [replace(end, detail=NO_GPU_LEFT) for end in ends if isinstance(end, End)]
            self.obey(why, self.now)
        if self._open():
            self._say(f"{self._open()} requests have no outcome: the scheduler has lost them")
        return False

    def _say(self, what: str) -> None:
        self.gpus.incidents.append(Incident(self.now, None, what))
