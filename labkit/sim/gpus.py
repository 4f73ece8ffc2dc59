"""The far bank of a simulation: what each GPU runs, when it comes back, and what goes wrong."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import simpy

from labkit.core.books import Books
from labkit.core.contract import Scheduler
from labkit.core.messages import BatchError, Command, Depart, Load, Result, Stop
from labkit.core.trace import Recorder
from labkit.sim.faults import (
    RESTART,
    BadCount,
    Death,
    Drain,
    FalseAlarm,
    Fault,
    FaultPlan,
    Hang,
    Leaves,
    Poison,
)
from labkit.sim.service import ServiceTime

FINISH, JOIN, LOSE, CANCEL, DRAIN = range(5)
"""The order in which things of one instant are told; arrivals and `advance` come after them."""

Obey = Callable[[Sequence[Command], int], None]


class Incident(NamedTuple):
    """Something that befell a GPU (or, with None, the run) at an instant in microseconds."""

    at: int
    gpu: int | None
    what: str


class Crossing(simpy.Event):
    """A batch on its way; `sunk` if it will never come back, `short` if one output is missing."""

    def __init__(
        self, env: simpy.Environment, depart: Depart, land: Callable[[simpy.Event], None]
    ) -> None:
        super().__init__(env)
        self._ok, self._value = True, depart
        self.callbacks = [land]
        self.depart = depart
        self.sunk = False
        self.short = False


class _Moment(simpy.Event):
    """A call to make at one instant, such as a death or a GPU that is back."""

    def __init__(self, env: simpy.Environment, act: Callable[[], None]) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        self.callbacks = [lambda _: act()]


class _Gpu:
    """One GPU; `life` counts its starts and ends, so that news of an earlier life is ignored."""

    __slots__ = ("back_after", "crossing", "life", "model", "number", "short", "stuck", "up")

    def __init__(self, number: int, model: str) -> None:
        self.number = number
        self.model = model
        self.up = False
        self.life = 0
        self.crossing: Crossing | None = None
        self.stuck: Hang | None = None
        self.short = False
        self.back_after: int | None = RESTART


class Gpus:
    """Carries out Depart, Stop and Load under SimPy, and tells the scheduler how it went.

    One SimPy event a batch. `respond` turns the prompts of a batch into its outputs.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler | Recorder,
        obey: Obey,
        books: Books,
        *,
        models: Sequence[str],
        count: int,
        service: ServiceTime,
        rng: Random,
        plan: FaultPlan,
        respond: Callable[[str], str] | None = None,
        load_time: int = 0,
    ) -> None:
        self.env = env
        self.scheduler = scheduler
        self.obey = obey
        self.books = books
        self.service = service
        self.rng = rng
        self.plan = plan
        self.respond = respond
        self.load_time = load_time
        self.incidents: list[Incident] = []
        self.gpus = [_Gpu(number, models[number % len(models)]) for number in range(count)]

    def start(self) -> None:
        """Every GPU joins now, and every fault is put on the agenda."""
        for gpu in self.gpus:
            self._join(gpu, gpu.life)
        for fault in self.plan.faults:
            self._expect(fault)

    @property
    def any_up(self) -> bool:
        """Whether any GPU still answers."""
        return any(gpu.up for gpu in self.gpus)

    # -- what the scheduler orders -------------------------------------------------------------

    def depart(self, command: Depart, now: int) -> None:
        """Start a batch; it lands after its service time, unless it is lost."""
        rows, on = command.rows, command.gpus
        crossing = Crossing(self.env, command, self._land)
        took = self.plan.slowed(self.service(len(rows), on[0], self.rng), on, now)
        hang = self.plan.hangs.get(command.batch_id)
        for number in on:
            gpu = self.gpus[number]
            gpu.crossing = crossing
            crossing.sunk |= not gpu.up
            crossing.short |= gpu.short
            hang = hang or gpu.stuck
            gpu.stuck, gpu.short = None, False
        if hang is not None:
            self._sink(crossing, hang)
        if not crossing.sunk:
            # SimPy has a type of its own for ranks, of which it knows two; any whole number sorts.
            self.env.schedule(crossing, FINISH, now + took - self.env.now)  # type: ignore[arg-type]
            poison = self.plan.poison_in(rows)
            if poison is not None:
                self._brew(self.gpus[on[0]], crossing, poison, now, min(poison.kills_after, took))

    def stop(self, command: Stop, now: int) -> None:
        """Fence a GPU and end its process; it is back after a restart, unless a fault forbids."""
        gpu = self.gpus[command.gpu]
        self._note(now, gpu, f"stopped: {command.why}")
        self._end(gpu)
        self._write_off(gpu, now)
        self._back(gpu, gpu.back_after, now)

    def load(self, command: Load, now: int) -> None:
        """Load a version on these GPUs; they join when `load_time` has passed."""
        for number in command.gpus:
            gpu = self.gpus[number]
            gpu.model = command.version
            self._back(gpu, self.load_time, now)

    # -- what the scheduler is told --------------------------------------------------------------

    def _land(self, crossing: simpy.Event) -> None:
        assert isinstance(crossing, Crossing)
        if crossing.sunk:
            return
        now, depart = int(self.env.now), crossing.depart
        held = [gpu for gpu in map(self.gpus.__getitem__, depart.gpus) if gpu.crossing is crossing]
        for gpu in held:
            gpu.crossing = None
        if held:
            # One that was written off is in the books already.
            self.books.returned(depart.batch_id, now)
        self.obey(self.scheduler.finish(depart.batch_id, self._result(crossing), now), now)

    def _result(self, crossing: Crossing) -> Result:
        rows = crossing.depart.rows
        raiser = self.plan.raiser_in(rows)
        if raiser is not None:
            return BatchError(f"request {raiser} makes batchstring raise")
        if self.respond is None:
            outputs = [row.prompt for row in rows]
        else:
            outputs = [self.respond(row.prompt) for row in rows]
        return outputs[:-1] if crossing.short else outputs

    def _join(self, gpu: _Gpu, life: int) -> None:
        if gpu.life != life:
            return
        gpu.life += 1
        gpu.up, gpu.crossing, gpu.back_after = True, None, RESTART
        now = int(self.env.now)
        if now:
            self._note(now, gpu, "back")
        self.obey(self.scheduler.join(gpu.number, gpu.model, now), now)

    def _lose(self, gpu: _Gpu, life: int, back_after: int | None) -> None:
        """The detector reports a death, unless the gateway has stopped this GPU already."""
        if gpu.life != life:
            return
        now = int(self.env.now)
        self._note(now, gpu, "reported lost")
        gpu.life += 1
        self._write_off(gpu, now)
        self.obey(self.scheduler.lose(gpu.number, now), now)
        self._back(gpu, back_after, now)

    # -- what goes wrong -------------------------------------------------------------------------

    def _expect(self, fault: Fault) -> None:
        """Put one fault on the agenda; those without an instant act when a batch departs."""
        if isinstance(fault, Leaves):
            self._at(fault.at, CANCEL, partial(self._leave, fault))
        elif isinstance(fault, Drain):
            self._at(fault.at, DRAIN, partial(self._drain, fault))
        elif isinstance(fault, Death):
            self._at(fault.at, LOSE, partial(self._die, fault))
        elif isinstance(fault, FalseAlarm):
            self._at(fault.at, LOSE, partial(self._false_alarm, fault, self.gpus[fault.gpu]))
        elif isinstance(fault, BadCount):
            self._at(fault.at, LOSE, partial(self._miscount, self.gpus[fault.gpu]))
        elif isinstance(fault, Hang) and fault.at is not None:
            self._at(fault.at, LOSE, partial(self._hang, fault))

    def _struck(self, number: int | None) -> _Gpu:
        """The GPU of this number, else the first in the middle of a batch, or the first alive."""
        if number is not None:
            return self.gpus[number]
        alive = [gpu for gpu in self.gpus if gpu.up]
        return next((gpu for gpu in alive if gpu.crossing), (alive or self.gpus)[0])

    def _die(self, fault: Death) -> None:
        self._kill(self._struck(fault.gpu), fault)

    def _kill(self, gpu: _Gpu, fault: Death | Poison) -> None:
        if not gpu.up:
            return
        now = int(self.env.now)
        self._note(now, gpu, "died")
        self._end(gpu)
        gpu.back_after = fault.back_after
        act = partial(self._lose, gpu, gpu.life, fault.back_after)
        if fault.detected_after:
            self._at(now + fault.detected_after, LOSE, act)
        else:
            act()

    def _brew(self, gpu: _Gpu, crossing: Crossing, poison: Poison, now: int, after: int) -> None:
        def kill() -> None:
            if gpu.crossing is crossing:
                self._kill(gpu, poison)

        crossing.sunk = True
        self._at(now + after, LOSE, kill)

    def _false_alarm(self, fault: FalseAlarm, gpu: _Gpu) -> None:
        if not gpu.up:
            return
        self._lose(gpu, gpu.life, fault.back_after)

    def _hang(self, fault: Hang) -> None:
        gpu = self._struck(fault.gpu)
        if gpu.crossing is None or not gpu.up:
            gpu.stuck = fault
        else:
            self._sink(gpu.crossing, fault)

    def _sink(self, crossing: Crossing, fault: Hang) -> None:
        """This batch hangs; when its GPUs are ended for it, they come back as the fault says."""
        crossing.sunk = True
        for number in crossing.depart.gpus:
            self.gpus[number].back_after = fault.back_after

    def _miscount(self, gpu: _Gpu) -> None:
        if gpu.crossing is None:
            gpu.short = True
        else:
            gpu.crossing.short = True

    def _leave(self, fault: Leaves) -> None:
        now = int(self.env.now)
        self.obey(self.scheduler.cancel(fault.request_id, now), now)

    def _drain(self, fault: Drain) -> None:
        now, gpu = int(self.env.now), self.gpus[fault.gpu]
        gpu.back_after = fault.back_after
        self._note(now, gpu, "draining")
        self.obey(self.scheduler.drain(gpu.number, now), now)

    # -- the agenda --------------------------------------------------------------------------------

    def _end(self, gpu: _Gpu) -> None:
        gpu.up = False
        gpu.life += 1
        if gpu.crossing is not None:
            gpu.crossing.sunk = True

    def _write_off(self, gpu: _Gpu, now: int) -> None:
        """Nobody expects this GPU's batch any more; until now it occupied the GPU."""
        if gpu.crossing is not None:
            self.books.returned(gpu.crossing.depart.batch_id, now)
            gpu.crossing = None

    def _back(self, gpu: _Gpu, after: int | None, now: int) -> None:
        if after is not None:
            self._at(now + after, JOIN, partial(self._join, gpu, gpu.life))

    def _at(self, at: int, rank: int, act: Callable[[], None]) -> None:
        self.env.schedule(_Moment(self.env, act), rank, at - self.env.now)  # type: ignore[arg-type]

    def _note(self, now: int, gpu: _Gpu, what: str) -> None:
        self.incidents.append(Incident(now, gpu.number, what))
