"""A small world for one gateway: arrivals, GPUs and faults from a plan, with every law checked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal, Protocol

from labkit.core.contract import Scheduler
from labkit.core.latency import Ledger
from labkit.core.messages import BatchError, Command, Depart, Request, Result, RowError, Stop
from labkit.core.settings import Settings
from labkit.core.trace import Recorder, Trace
from labkit.core.units import MS, NEVER
from labkit.teach.laws import LawBroken, Laws

Kind = Literal["ok", "die", "hang", "raise", "short", "row"]

# Equal instants: finish, join, lose, cancel, arrive, then the timer.
FINISH, JOIN, LOSE, DRAIN, CANCEL, ARRIVE = range(6)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one departure: after `time` microseconds it ends in this way."""

    kind: Kind = "ok"
    time: int = 100 * MS


@dataclass(frozen=True, slots=True)
class Plan:
    """One world: who comes and when, which GPUs there are, and what goes wrong.

    `fates[k]` is the k-th departure's, fine once the list is used up. `cancels` and `drains` are
    (instant, id) pairs. `poison` kills whatever GPU runs it; `bad` makes the function raise. A
    dead GPU is back after `back_after` microseconds, never if None; at `close_at` the gateway is
    told to close.
    """

    settings: Settings
    gpus: int
    arrivals: tuple[Request, ...]
    fates: tuple[Fate, ...] = ()
    cancels: tuple[tuple[int, int], ...] = ()
    drains: tuple[tuple[int, int], ...] = ()
    poison: frozenset[int] = frozenset()
    bad: frozenset[int] = frozenset()
    back_after: int | None = 300 * MS
    close_at: int | None = None


class Gate(Scheduler, Protocol):
    """A scheduler that can be closed."""

    def close(self, now: int) -> object:
        """Admit nobody any more."""


def stamp(prompt: str) -> str:
    """The rig's answer to a prompt."""
    return f"<{prompt}>"


@dataclass
class Rig:
    """Runs a gateway through a plan, one instant after another, and watches it by the laws.

    `run` returns the trace, or raises `LawBroken` with the trace so far in `trace`.
    """

    plan: Plan
    gateway: Gate
    max_wait: int | None = None
    laws: Laws = field(init=False)
    recorder: Recorder = field(init=False)
    most_steps: int = 200_000
    _events: list[tuple[int, int, int, Callable[[int], None]]] = field(default_factory=list)
    _count: int = 0
    _departures: int = 0
    _lives: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.laws = Laws(self.plan.settings, stamp, self.max_wait)
        self.recorder = Recorder(self.gateway, self.plan.settings)

    @property
    def trace(self) -> Trace:
        """Everything told so far."""
        return self.recorder.trace

    def run(self) -> Trace:
        """Live through the plan until nothing is left to happen."""
        plan = self.plan
        for gpu in range(plan.gpus):
            self._back(gpu, 0)
        for request in plan.arrivals:
            self._at(request.arrived_at, ARRIVE, self._verb("arrive", request))
        for at, request_id in plan.cancels:
            self._at(at, CANCEL, self._verb("cancel", request_id))
        for at, gpu in plan.drains:
            self._at(at, DRAIN, self._verb("drain", gpu))
        if plan.close_at is not None:
            self._at(plan.close_at, DRAIN, self._verb("close"))
        self._live()
        self._settle()
        self.laws.over()
        self._ledger_adds_up()
        return self.trace

    def _live(self) -> None:
        now, idle = 0, 0
        while self._events or self.recorder.due_at < NEVER:
            next_event = self._events[0][0] if self._events else NEVER
            due_at = max(self.recorder.due_at, now)
            if next_event <= due_at:
                now, _, _, happen = heappop(self._events)
                happen(now)
                idle = 0
            else:
                before, now = now, due_at
                idle = idle + 1 if now == before else 0
                self._tell("advance", now)
            if idle > 3 or len(self.trace.steps) > self.most_steps:
                raise LawBroken("after advance nothing is due", now, "the gateway spins")

    def _settle(self) -> None:
        """Whoever still waits, waits for a GPU or a full batch that will never come: let go."""
        at = self.laws.now
        self.laws.passes(NEVER)
        self.laws.now = at
        for life in list(self.laws.lives.values()):
            if life.ended is None and life.riding is None:
                self._tell("cancel", self.laws.now, life.request.id)

    def _ledger_adds_up(self) -> None:
        for account in Ledger(self.trace.steps).accounts.values():
            spent = sum(stage.end - stage.start for stage in account.stages)
            ended_at = account.ended_at
            if ended_at is None or spent != ended_at - account.arrived_at:
                what = f"request {account.request_id}: {account}"
                raise LawBroken("the latency ledger adds up", self.laws.now, what)

    # -- telling and obeying ----------------------------------------------------------------------

    def _at(self, at: int, order: int, happen: Callable[[int], None]) -> None:
        self._count += 1
        heappush(self._events, (at, order, self._count, happen))

    def _verb(self, verb: str, *args: object) -> Callable[[int], None]:
        return lambda now: self._tell(verb, now, *args)

    def _tell(self, verb: str, now: int, *args: object) -> None:
        commands = getattr(self.recorder, verb)(*args, now)
        self.laws.told(verb, args, now, commands, self.recorder.due_at)
        for command in commands:
            self._obey(command, now)

    def _obey(self, command: Command, now: int) -> None:
        if isinstance(command, Depart):
            self._depart(command, now)
        elif isinstance(command, Stop):
            self._lives[command.gpu] = self._lives.get(command.gpu, 0) + 1
            if command.why != "drained" and self.plan.back_after is not None:
                gpu = command.gpu
                self._at(now + self.plan.back_after, JOIN, lambda now: self._back(gpu, now))

    def _back(self, gpu: int, now: int) -> None:
        self._lives[gpu] = self._lives.get(gpu, 0) + 1
        models = self.plan.settings.models
        self._tell("join", now, gpu, models[gpu % len(models)])

    def _depart(self, depart: Depart, now: int) -> None:
        """Decide this batch's fate when it leaves; a GPU that died meanwhile says nothing more."""
        fate = Fate()
        if self._departures < len(self.plan.fates):
            fate = self.plan.fates[self._departures]
        self._departures += 1
        gpu, life = depart.gpus[0], self._lives[depart.gpus[0]]
        ids = {row.id for row in depart.rows}
        if ids & self.plan.poison:
            fate = Fate("die", fate.time)
        if fate.kind == "hang":
            return
        if fate.kind == "die":
            self._at(now + fate.time, LOSE, lambda now: self._die(gpu, life, now))
            return
        result = self._result(fate, depart.rows, bool(ids & self.plan.bad))
        batch_id = depart.batch_id
        # A fenced worker's result still comes, late: the gateway must drop it.
        self._at(now + fate.time, FINISH, self._verb("finish", batch_id, result))

    @staticmethod
    def _result(fate: Fate, rows: tuple[Request, ...], bad: bool) -> Result:
        if fate.kind == "raise" or bad:
            return BatchError("the function raised")
        outputs: list[str | RowError] = [stamp(row.prompt) for row in rows]
        if fate.kind == "short":
            return outputs[:-1]
        if fate.kind == "row":
            outputs[len(outputs) // 2] = RowError("this row alone")
        return outputs

    def _die(self, gpu: int, life: int, now: int) -> None:
        if self._lives[gpu] != life:
            return
        self._lives[gpu] += 1
        self._tell("lose", now, gpu)
        if self.plan.back_after is not None:
            self._at(now + self.plan.back_after, JOIN, lambda now: self._back(gpu, now))
