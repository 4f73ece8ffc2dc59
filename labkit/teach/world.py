"""A whole small service in virtual time: clients with keys, the door, its journal, GPUs, faults."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from typing import Any, Literal, Self

from labkit.core.batching import FerryRule
from labkit.core.contract import Scheduler
from labkit.core.dispatch import Rng
from labkit.core.door import Commit, Door, DoorCommand, Ended, Send
from labkit.core.gateway import Gateway
from labkit.core.idempotency import Entry, Key, KeyLedger
from labkit.core.messages import (
    BatchError,
    Command,
    Depart,
    End,
    Outcome,
    Request,
    Result,
    RowError,
    Stop,
)
from labkit.core.settings import Settings
from labkit.core.trace import Recorder, Trace
from labkit.core.units import MS, NEVER, S
from labkit.live.ledger import Group
from labkit.teach.key_laws import KeyLaws
from labkit.teach.laws import LawBroken, Laws
from labkit.teach.rig import CANCEL, DRAIN, FINISH, JOIN, LOSE, Gate, stamp
from labkit.workload import stream

Call = Literal["call", "again", "other", "leave", "wait_over"]
GpuFault = Literal["kill", "hang", "late", "straggle", "raise", "short", "row", "drain"]
What = Call | GpuFault | Literal["crash", "disk_full"]

CLIENT = DRAIN + 3
"""Of equal instants clients come last, as arrivals do."""

CRASH = -1
KEEP_FOR = 1 * S
"""A day is too long for a run of two seconds, and it must end in some."""

WRITE_TIME = 1 * MS
NOTICE, BACK, DOWN, RETRY = 12 * MS, 40 * MS, 60 * MS, 70 * MS
"""From a death to its notice; from then to the next life; a restart; before a client's retry."""

MOST_TRIES = 4
LATE = {"ok": 100 * MS, "late": 270 * MS, "straggle": 180 * MS}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens to the service at an instant, to a client or a GPU (`number`).

    `size`: prompts in a call with a key, all alike. `disk_full`: the journal's next write fails.
    """

    at: int
    what: What
    number: int = 0
    key: bool = False
    tier: int = 0
    tenant: str = "A"
    model: str = "ferry"
    patience: int = NEVER
    nature: Literal["ok", "kills", "raises"] = "ok"
    size: int = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run's settings and everything that happens in it; the same schedule is the same run.

    `faithful` clients retry by themselves; a GPU that was lost is back after `back_after`
    microseconds.
    """

    settings: Settings
    gpus: int
    events: tuple[Event, ...]
    faithful: bool = True
    back_after: int = BACK

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "settings": self.settings.as_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        events = tuple(Event(**event) for event in values["events"])
        settings = Settings.from_dict(values["settings"])
        return cls(**{**values, "settings": settings, "events": events})


def render(ticket: int, ended: Ended) -> tuple[int, bytes]:
    """A body that tells one computation of a prompt from another."""
    if isinstance(ended, End):
        status = {Outcome.FAILED: 422, Outcome.REJECTED: 429}.get(ended.outcome, 503)
        return status, f"{ticket}:{ended.detail}".encode()
    return 200, f"{ticket}:{'|'.join(ended)}".encode()


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service is built from; a planted fault replaces one of them."""

    gateway: Callable[[Settings, Rng], Gate] = Gateway
    door: Callable[[Scheduler, KeyLedger], Door] = lambda behind, keys: Door(behind, keys, render)
    keys: Callable[[], KeyLedger] = lambda: KeyLedger(KEEP_FOR)
    restores: bool = True


class _Watched:
    """The scheduler as the door sees it, with all laws looking on."""

    def __init__(self, recorder: Recorder, laws: Laws, key_laws: KeyLaws) -> None:
        self.recorder = recorder
        self.laws = laws
        self.key_laws = key_laws

    @property
    def due_at(self) -> int:
        return self.recorder.due_at

    def __getattr__(self, verb: str) -> Callable[..., Sequence[Command]]:
        tell = getattr(self.recorder, verb)

        def told(*args: Any) -> Sequence[Command]:
            *rest, now = args
            commands: Sequence[Command] = tell(*args)
            self.laws.told(verb, tuple(rest), now, commands, self.recorder.due_at)
            self.key_laws.happened(verb, tuple(rest), commands, now)
            return commands

        return told


class _Client:
    """One caller: what it asks for, and the tickets of its tries."""

    __slots__ = ("event", "key", "prompt", "tickets", "tries")

    def __init__(self, event: Event) -> None:
        mark = {"ok": "p", "kills": "x", "raises": "b"}[event.nature]
        self.event = event
        self.prompt = f"{mark}{event.number}"
        self.key = Key(event.tenant, "POST", f"k{event.number // 2}") if event.key else None
        self.tickets: list[int] = []
        self.tries = 0


class World:
    """Runs a service through a schedule with every law checked at every step.

    `run` returns the traces, one for each life of the dispatcher; it raises `LawBroken` with the
    traces so far in `traces`.
    """

    def __init__(self, schedule: Schedule, parts: Parts | None = None, seed: int = 0) -> None:
        self.schedule = schedule
        self.parts = parts or Parts()
        self.traces: list[Trace] = []
        self.key_laws = KeyLaws(stamp, KEEP_FOR)
        self.now = 0
        self._seed = seed
        self._file: dict[Key, Entry] = {}
        self._clients: dict[int, _Client] = {}
        self._client_of: dict[int, _Client] = {}
        self._events: list[tuple[int, int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._ids = 0
        self._life = 0
        self._up = False

    def run(self) -> list[Trace]:
        """Live through the schedule until nothing is left to happen."""
        self._start()
        for event in self.schedule.events:
            order = CRASH if event.what == "crash" else CLIENT
            happen = self._crash if event.what == "crash" else self._happen
            self._at(event.at, order, happen, event, always=True)
        self._live()
        self.laws.passes(NEVER)
        self.laws.over()
        self.key_laws.over(self.now)
        return self.traces

    def _live(self) -> None:
        events, idle = self._events, 0
        while True:
            due_at = max(self.door.due_at, self.now) if self._up else NEVER
            if events and events[0][0] <= due_at:
                self.now, _, _, life, happen, args = heappop(events)
                if life in (0, self._life):
                    happen(*args)
                idle = 0
            elif due_at == NEVER:
                return
            else:
                idle = idle + 1 if due_at == self.now else 0
                self.now = due_at
                self._tell("advance")
                if idle > 3 or len(self.traces[-1].steps) > 20_000:
                    law = "after advance nothing is due"
                    raise LawBroken(law, self.now, "the gateway spins")

    def _at(
        self, at: int, order: int, happen: Callable[..., None], *args: Any, always: bool = False
    ) -> None:
        self._count += 1
        life = 0 if always else self._life
        heappush(self._events, (at, order, self._count, life, happen, args))

    # -- the dispatcher's life --------------------------------------------------------------------

    def _start(self) -> None:
        """A new gateway, a new door, and what the journal kept."""
        settings, now = self.schedule.settings, self.now
        self._life += 1
        self._up = True
        self._epoch: dict[int, int] = {}
        self._alive: dict[int, bool] = {}
        self._mark: dict[int, str] = {}
        self._group = Group(FerryRule(4, 3 * MS))
        self._written: list[Commit] = []
        self._full = False
        gateway = self.parts.gateway(settings, stream(self._seed, "gateway"))
        recorder = Recorder(gateway, settings, self._seed)
        self.traces.append(recorder.trace)
        max_wait = settings.max_wait if settings.rule == "ferry" else None
        self.laws = Laws(settings, stamp, max_wait)
        self.laws.now = now
        keys = self.parts.keys()
        watched: Any = _Watched(recorder, self.laws, self.key_laws)
        self.door = self.parts.door(watched, keys)
        if self.parts.restores:
            keys.restore(list(self._file.items()), now)
        for gpu in range(self.schedule.gpus):
            self._join(gpu)

    def _crash(self, event: Event) -> None:
        """`kill -9`: the process and all it knew are gone, its GPUs' work too."""
        if not self._up:
            return
        self._up = False
        self._life += 1
        for ticket, _ in self.key_laws.crashed():
            self._again_later(self._client_of.pop(ticket), DOWN)
        self._at(self.now + DOWN, JOIN, self._start)

    # -- telling and obeying ----------------------------------------------------------------------

    def _tell(self, verb: str, *args: Any) -> None:
        self._obey(getattr(self.door, verb)(*args, self.now))

    def _obey(self, commands: Sequence[DoorCommand]) -> None:
        now = self.now
        if commands:
            self.key_laws.told(commands, now)
        for command in commands:
            if isinstance(command, Depart):
                self._depart(command)
            elif isinstance(command, Stop):
                self._alive[command.gpu] = False
                self._at(now + self.schedule.back_after, JOIN, self._join, command.gpu)
            elif isinstance(command, Commit):
                self._append(command)
            elif isinstance(command, Send):
                for ticket in command.tickets:
                    client = self._client_of.pop(ticket)
                    if command.status not in (200, 422):
                        self._again_later(client, RETRY)
            elif isinstance(command, End):
                ended = self._client_of.pop(command.request_id, None)
                if ended is not None and command.detail == "ledger_failed":
                    self._again_later(ended, RETRY)
        self.key_laws.settled(self.door.keys.in_flight(), now)

    # -- the journal ------------------------------------------------------------------------------

    def _append(self, commit: Commit) -> None:
        group = self._group
        group.add(commit, self.now)
        if not self._written and group.depth in (1, group.rule.max_batch):
            self._at(max(group.due_at, self.now), FINISH, self._write)

    def _write(self) -> None:
        """A group is in the file at once or not at all; it is heard of a little later."""
        if self._written or self._group.due_at > self.now:
            return
        self._written = self._group.take()
        full, self._full = self._full, False
        if full:
            self._at(self.now + WRITE_TIME, FINISH, self._stored, False)
            return
        for commit in self._written:
            self._file.pop(commit.key, None)
            self._file[commit.key] = commit.entry
            self.key_laws.stored(commit.key)
        self._at(self.now + WRITE_TIME, FINISH, self._stored, True)

    def _stored(self, kept: bool) -> None:
        written, self._written = self._written, []
        if self._group.depth:
            self._at(max(self._group.due_at, self.now), FINISH, self._write)
        for commit in written:
            if kept:
                self._obey(self.door.stored(commit.key))
            else:
                self.key_laws.unstored(commit.key)
                self._obey(self.door.unstored(commit.key))

    # -- clients ----------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        if event.what == "call":
            client = self._clients[event.number] = _Client(event)
            self._ask(client, client.prompt)
        elif event.what in ("kill", "drain"):
            if self._up:
                (self._kill if event.what == "kill" else self._drain)(event.number)
        elif event.what in ("again", "other", "leave", "wait_over"):
            known = self._clients.get(event.number)
            if known is not None:
                self._of_client(event.what, known)
        elif self._up and event.what == "disk_full":
            self._full = True
        elif self._up:
            self._mark[event.number] = event.what

    def _of_client(self, what: str, client: _Client) -> None:
        if what == "again" and client.key is not None:
            self._ask(client, client.prompt)
        elif what == "other" and client.key is not None:
            self._ask(client, f"q{client.event.number}")
        elif what in ("leave", "wait_over") and self._up:
            comes_back = what == "wait_over"
            waiting = [ticket for ticket in client.tickets if ticket in self._client_of]
            if waiting and not (comes_back and client.key is None):
                self.key_laws.leaving(waiting[0], self.now, comes_back)
                self._tell("wait_over" if comes_back else "cancel", waiting[0])

    def _ask(self, client: _Client, prompt: str) -> None:
        event, now = client.event, self.now
        if not self._up:
            self._again_later(client, RETRY)
            return
        ticket = self._ids + 1
        size = event.size if client.key is not None else 1
        units = tuple(range(ticket, ticket + size))
        self._ids += size
        client.tickets.append(ticket)
        self._client_of[ticket] = client
        deadline = NEVER if event.patience == NEVER else now + event.patience
        requests = [
            Request(unit, prompt, now, event.tier, event.tenant, event.model, deadline)
            for unit in units
        ]
        self.key_laws.asked(units, client.key, prompt, now, deadline)
        self._obey(self.door.submit(requests, client.key, prompt.encode(), now))

    def _again_later(self, client: _Client, after: int) -> None:
        """A client with a key asks again when it was cut off or put off; others give up."""
        client.tries += 1
        if self.schedule.faithful and client.key is not None and client.tries < MOST_TRIES:
            at = self.now + after * client.tries
            self._at(at, CLIENT, self._ask, client, client.prompt, always=True)

    # -- GPUs -------------------------------------------------------------------------------------

    def _join(self, gpu: int) -> None:
        self._epoch[gpu] = self._epoch.get(gpu, 0) + 1
        self._alive[gpu] = True
        models = self.schedule.settings.models
        self._tell("join", gpu, models[gpu % len(models)])

    def _kill(self, gpu: int) -> None:
        """Dead at once, noticed a little later."""
        if self._alive.get(gpu):
            self._alive[gpu] = False
            self._epoch[gpu] += 1
            self._at(self.now + NOTICE, LOSE, self._lose, gpu, self._epoch[gpu])

    def _lose(self, gpu: int, epoch: int) -> None:
        if self._epoch[gpu] == epoch:
            self._tell("lose", gpu)
            self._at(self.now + self.schedule.back_after, JOIN, self._join, gpu)

    def _drain(self, gpu: int) -> None:
        if self._alive.get(gpu):
            self._at(self.now, CANCEL, self._tell, "drain", gpu)

    def _depart(self, depart: Depart) -> None:
        gpu, now = depart.gpus[0], self.now
        mark = self._mark.pop(gpu, "ok")
        if not self._alive.get(gpu) or mark == "hang":
            return
        if any(row.prompt[0] == "x" for row in depart.rows):
            self._at(now + 50 * MS, FINISH, self._dies, gpu, self._epoch[gpu])
            return
        result = self._result(mark, depart.rows)
        after = LATE.get(mark, LATE["ok"])
        self._at(now + after, FINISH, self._done, gpu, self._epoch[gpu], depart.batch_id, result)

    def _dies(self, gpu: int, epoch: int) -> None:
        if self._epoch[gpu] == epoch:
            self._kill(gpu)

    def _done(self, gpu: int, epoch: int, batch_id: int, result: Result) -> None:
        """What a killed process had is gone; what a fenced one had may still come, late."""
        if self._epoch[gpu] == epoch:
            self._tell("finish", batch_id, result)

    @staticmethod
    def _result(mark: str, rows: Sequence[Request]) -> Result:
        if mark == "raise" or any(row.prompt[0] == "b" for row in rows):
            return BatchError("the function raised")
        outputs: list[str | RowError] = [stamp(row.prompt) for row in rows]
        if mark == "short":
            return outputs[:-1]
        if mark == "row":
            outputs[len(outputs) // 2] = RowError("this row alone")
        return outputs


def lives(schedule: Schedule, parts: Parts | None = None) -> tuple[LawBroken | None, list[Trace]]:
    """Run a schedule: the law it breaks, None if none, and the traces up to there.

    A faulty service may fall over by itself: that is an outcome too.
    """
    world = World(schedule, parts)
    try:
        world.run()
    except LawBroken as broken:
        return broken, world.traces
    except (LookupError, ValueError, AssertionError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        return LawBroken("the service does not fall over", world.now, what), world.traces
    return None, world.traces
