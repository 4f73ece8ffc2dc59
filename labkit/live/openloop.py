"""Load on a schedule that does not wait for answers, and faults at set instants within it."""

import asyncio
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from typing import Any, Literal, get_args

from labkit.core.books import Books, percentile
from labkit.core.messages import End, Output, Request
from labkit.core.units import MS, NEVER, S, to_ms
from labkit.gpu.tag import carries
from labkit.live.errors import LiveError
from labkit.live.shell import Shell

HEAD_START = 20 * MS
"""From the call to the schedule's instant 0, so that the first arrivals are not late already."""

LEAST_NAP_S = 0.0002
"""Arrivals closer than this are told together; each keeps its own scheduled instant."""

LOOK_AGAIN_S = 0.005
"""When no GPU has a batch to be hit in the middle of."""

LATEST_S = 1e9
"""Thirty years: a later fault is a mistake, `inf` among them."""

How = Literal["kill", "hang", "straggle", "poison"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something to break `at` seconds into a run.

    `gpu` None: one that is in the middle of a batch. `amount`: seconds of a hang, or the factor of
    a straggler.
    """

    at: float
    how: How = "kill"
    gpu: int | None = None
    amount: float = 1.0

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise ValueError(f"fault {self.how!r}: choose kill, hang, straggle or poison")
        if not (isfinite(self.amount) and self.amount >= 0):
            raise ValueError(f"amount {self.amount}: give seconds or a factor, 0 or more")


@dataclass(slots=True)
class Injury:
    """What became of one fault; instants in microseconds of the run, None until it happens.

    `aboard`: requests on the GPU when it was hit. `noticed_at`: the dispatcher knew. `back_at`:
    the GPU had answered its self-test again.
    """

    how: How
    gpu: int
    pid: int | None
    aboard: int
    at: int
    noticed_at: int | None = None
    noticed_after: int | None = None
    back_at: int | None = None
    why: str = ""

    @property
    def healed(self) -> bool:
        """Nothing more is expected of it."""
        return self.how == "straggle" or self.back_at is not None

    def report(self) -> dict[str, Any]:
        """For JSON, in milliseconds; `detection_ms` of a hang counts from the batch's departure."""
        back_after = None if self.back_at is None else self.back_at - self.at
        return {
            "how": self.how,
            "gpu": self.gpu,
            "pid": self.pid,
            "at_ms": to_ms(self.at),
            "aboard": self.aboard,
            "detection_ms": None if self.noticed_after is None else to_ms(self.noticed_after),
            "back_ms": None if back_after is None else to_ms(back_after),
            "why": self.why,
        }


@dataclass(slots=True)
class Run:
    """What one open-loop run leaves behind; `horizon` in microseconds, `wall_s` in seconds.

    `lost`: requests without an outcome when the run gave up. `late`: answers of GPUs that were
    fenced, dropped. `lags`: how long after its instant each arrival was told, microseconds; part
    of its latency.
    """

    gpus: int
    books: Books = field(default_factory=Books)
    offered: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong_tag: int = 0
    late: int = 0
    violations: int = 0
    horizon: int = 0
    wall_s: float = 0.0
    injuries: list[Injury] = field(default_factory=list)
    lags: "array[int]" = field(default_factory=lambda: array("q"))

    def report(self) -> dict[str, Any]:
        """The stable keys of `labkit live --json`."""
        noticed = sorted(i.noticed_after for i in self.injuries if i.noticed_after is not None)
        back = sorted(i.back_at - i.at for i in self.injuries if i.back_at is not None)
        return {
            **self.books.report(self.gpus, self.horizon, self.wall_s),
            "offered": self.offered,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "wrong_tag": self.wrong_tag,
            "late_dropped": self.late,
            "contract_violations": self.violations,
            "kills": sum(injury.how == "kill" for injury in self.injuries),
            "detection_ms": _spread(noticed),
            "back_ms": _spread(back),
            "not_back": sum(not injury.healed for injury in self.injuries),
            "faults": [injury.report() for injury in self.injuries],
            "generator_lag_ms": _spread(sorted(self.lags)),
        }


def _spread(ordered: Sequence[int]) -> dict[str, float | None]:
    middle = percentile(ordered, 50)
    return {
        "p50": None if middle is None else to_ms(middle),
        "max": to_ms(ordered[-1]) if ordered else None,
    }


class OpenLoop:
    """Offers requests at their instants, counts every outcome, injects the faults.

    Lives on the loop's thread; `finished` may be waited for from another. `late` tells how many
    answers of fenced GPUs the scheduler has dropped so far.
    """

    def __init__(
        self,
        shell: Shell,
        arrivals: Iterable[Request],
        ids: "count[int]",
        faults: Sequence[Fault] = (),
        patience_s: float = 30.0,
        late: Callable[[], int] = lambda: 0,
    ) -> None:
        self.run = Run(shell.fleet.gpus)
        self.finished = threading.Event()
        self.error: BaseException | None = None
        self._shell = shell
        self._arrivals: Iterator[Request] = iter(arrivals)
        self._ids = ids
        self._faults = faults
        self._patience_s = patience_s
        self._late = late
        self._open: dict[int, str] = {}
        self._next: Request | None = None
        self._exhausted = False
        self._timers: list[asyncio.TimerHandle] = []
        self._nap: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; refuses on an engine that has other requests open, whose books it would read."""
        shell = self._shell
        if shell.open or shell.books is not None:
            raise LiveError(
                f"{len(shell.open)} requests are open on this engine; let them end, then run: a "
                "run measures the whole engine"
            )
        shell.books = self.run.books
        shell.watchers.append(self._watch)
        self._late_before, self._violations_before = self._late(), shell.violations
        self._unclaimed_before = shell.unclaimed
        self._began = time.perf_counter()
        self._origin = shell.time() + HEAD_START
        for fault in self._faults:
            self._later(fault.at + HEAD_START / S, self._break, fault)
        self._guarded(self._step)

    def abort(self) -> None:
        """Offer nothing more and withdraw what is open."""
        self._exhausted = True
        for request_id in list(self._open):
            self._shell.cancel(request_id)
        self._end()

    def settled(self) -> int:
        """How many requests have had their outcome; from any thread."""
        return self.run.offered - len(self._open)

    # -- arrivals and outcomes ----------------------------------------------------------------

    def _step(self) -> None:
        """Offer everyone whose instant has come, then sleep until the next."""
        shell, origin, lags = self._shell, self._origin, self.run.lags
        if self._exhausted:
            return
        request = self._next or next(self._arrivals, None)
        while request is not None:
            now = shell.clock()
            at = origin + request.arrived_at
            if at > now:
                self._next = request
                nap = max((at - now) / S, LEAST_NAP_S)
                self._nap = shell.loop.call_later(nap, self._guarded, self._step)
                return
            lags.append(now - at)
            self._offer(request, at)
            request = next(self._arrivals, None)
        self._exhausted = True
        self._later(self._patience_s, self._end)
        self._end_if_over()

    def _offer(self, request: Request, at: int) -> None:
        """Under an id of this engine's, since ids are used once; `at` is the scheduled instant."""
        request_id = next(self._ids)
        deadline = request.deadline
        if deadline < NEVER:
            deadline += self._origin
        self.run.offered += 1
        self._open[request_id] = request.prompt
        self._shell.offer(
            Request(
                request_id,
                request.prompt,
                at,
                request.tier,
                request.tenant,
                request.model,
                deadline,
            ),
            self._settled,
        )

    def _settled(self, request_id: int, outcome: Output | End) -> None:
        prompt = self._open.pop(request_id, None)
        if prompt is None:
            self.run.duplicated += 1
        elif not isinstance(outcome, End) and not carries(outcome, prompt):
            self.run.wrong_tag += 1
        self.run.horizon = self._shell.time() - self._origin
        if self._exhausted and not self._open:
            self._end_if_over()

    # -- faults -------------------------------------------------------------------------------

    def _break(self, fault: Fault) -> None:
        """Hit the GPU asked for, else the one whose batch departed last; wait for one if none."""
        shell = self._shell
        gpu = fault.gpu
        if gpu is None:
            if not shell.on_gpu:
                self._later(LOOK_AGAIN_S, self._break, fault)
                return
            gpu = max(shell.on_gpu, key=lambda busy: shell.departed_at[busy])
        depart = shell.on_gpu.get(gpu)
        aboard = 0 if depart is None else len(depart.rows)
        now = shell.time() - self._origin
        self.run.injuries.append(Injury(fault.how, gpu, shell.fleet.view(gpu).pid, aboard, now))
        if fault.how == "kill":
            shell.fleet.kill(gpu)
        elif fault.how == "poison":
            shell.fleet.inject(gpu, "poison")
        else:
            shell.fleet.inject(gpu, fault.how, fault.amount)

    def _watch(self, what: str, gpu: int, now: int, why: str) -> None:
        """Enter in the first injury of this GPU that still waits for it."""
        at = now - self._origin
        for injury in self.run.injuries:
            if injury.gpu != gpu or injury.healed:
                continue
            if what in ("lost", "stopped") and injury.noticed_at is None:
                since = injury.at
                if injury.how in ("hang", "poison"):
                    departed = self._shell.departed_at.get(gpu, now) - self._origin
                    since = max(since, departed)
                injury.noticed_at, injury.noticed_after, injury.why = at, at - since, why
            elif what == "joined" and injury.noticed_at is not None:
                injury.back_at = at
        if what == "joined":
            self._end_if_over()

    # -- the end ------------------------------------------------------------------------------

    def _end_if_over(self) -> None:
        """Over when nobody is on the way, here or there, and every GPU that was hit is back."""
        healed = all(injury.healed for injury in self.run.injuries)
        if self._exhausted and not self._open and healed:
            self._end()

    def _end(self) -> None:
        if self.finished.is_set():
            return
        for timer in (*self._timers, self._nap):
            if timer is not None:
                timer.cancel()
        shell, run = self._shell, self.run
        run.lost = len(self._open)
        run.late = self._late() - self._late_before
        run.violations = shell.violations - self._violations_before
        run.duplicated += shell.unclaimed - self._unclaimed_before
        run.wall_s = time.perf_counter() - self._began
        shell.books = None
        shell.watchers.remove(self._watch)
        self.finished.set()

    def _later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        self._timers.append(self._shell.loop.call_later(delay_s, call, *arguments))

    def _guarded(self, step: Callable[[], None]) -> None:
        """An iterable of arrivals is the caller's code: its error is the caller's to see."""
        try:
            step()
        except Exception as error:
            self.error = error
            self.abort()


def faults_of(kills: Iterable[float], faults: Iterable[Fault]) -> list[Fault]:
    """Kills at these seconds and other faults, in order of time; `ValueError` for no instant."""
    every = sorted([*(Fault(at) for at in kills), *faults], key=lambda fault: fault.at)
    for fault in every:
        if not 0 <= fault.at <= LATEST_S:
            raise ValueError(
                f"a fault at {fault.at:g} s: give seconds from the start, 0 to {LATEST_S:g}"
            )
    return every
