"""Plays a trace through once and writes down who stood where, from when until when."""

from collections.abc import Sequence
from typing import Any

from labkit.core.messages import (
    Answer,
    BatchError,
    Command,
    Depart,
    End,
    Outcome,
    Request,
    Stop,
    Tier,
)
from labkit.core.trace import Step, Trace
from labkit.core.units import NEVER
from labkit.viz import words

MOST_PASSENGERS = 2_000
"""More cannot be told apart on a screen, and make a notebook heavy."""


class Reader:
    """Plays one trace through and writes down who stood where, and from when until when."""

    def __init__(self, title: str, trace: Trace) -> None:
        self.title = title
        self.settings = trace.settings
        self.passengers: list[dict[str, Any]] = []
        self.boats: list[dict[str, Any]] = []
        self.timers: list[dict[str, int]] = []
        self.free: list[list[int]] = []
        self.events: list[dict[str, Any]] = []
        self.downs: dict[int, list[list[int]]] = {}
        self.instants: set[int] = set()
        self._waiting: dict[int, dict[str, Any]] = {}
        self._aboard: dict[int, list[dict[str, Any]]] = {}
        self._out: dict[int, dict[str, Any]] = {}
        self._up: set[int] = set()
        self._draining: set[int] = set()
        self._letters = _letters(trace)
        steps = list(trace.steps)
        for i, step in enumerate(steps):
            self._read(step)
            if i + 1 == len(steps) or steps[i + 1].now > step.now:
                self._settle(step.now)

    # -- one step ------------------------------------------------------------------------------

    def _read(self, step: Step) -> None:
        now = step.now
        if step.commands or step.verb != "advance":
            self.instants.add(now)
        if step.verb == "arrive":
            self._arrive(step.args[0], now)
        elif step.verb == "drain":
            self._draining.add(step.args[0])
        elif step.verb == "lose":
            self._down(step.args[0], now, step.commands)
        elif step.verb == "join":
            self._down(step.args[0], now, step.commands)
            if step.args[1] is not None:
                self._join(step.args[0], now)
        elif step.verb == "finish":
            self._finish(step.args[0], step.args[1], now, step.commands)
        for command in step.commands:
            if isinstance(command, Depart):
                self._depart(command, now)
            elif isinstance(command, End):
                self._end(command, now)
            elif isinstance(command, Stop):
                self._down(command.gpu, now, step.commands)

    def _arrive(self, request: Request, now: int) -> None:
        if len(self.passengers) == MOST_PASSENGERS:
            raise ValueError(
                f"a dock of more than {MOST_PASSENGERS:,} passengers cannot be read: draw a slice "
                "of the trace, or use a plot of its latencies"
            )
        self._wait(request, now, returned=False)

    def _wait(self, request: Request, now: int, *, returned: bool) -> None:
        passenger = {
            "id": request.id,
            "label": self._letters.get(request.tenant, str(request.id)),
            "paid": request.tier == Tier.PAID,
            "tier": int(request.tier),
            "arrived": request.arrived_at,
            "since": now,
            "boarded": None,
            "seat": None,
            "left": None,
            "boat": None,
            "ended": None,
            "outcome": None,
            "returned": returned,
            "request": request,
        }
        self.passengers.append(passenger)
        self._waiting[request.id] = passenger

    def _depart(self, depart: Depart, now: int) -> None:
        rows = [self._waiting.pop(row.id) for row in depart.rows]
        taken = {row["seat"] for row in rows}
        own = self.settings.of(depart.rows[0].model)
        spare = (seat for seat in range(own.max_batch) if seat not in taken)
        for row in rows:
            if row["boarded"] is None:
                row.update(boarded=now, seat=next(spare))
            row.update(left=now, boat=depart.batch_id)
        gpu = depart.gpus[0]
        boat = {
            "id": depart.batch_id,
            "gpu": gpu,
            "start": now,
            "end": None,
            "planned": now + own.batch_time,
            "size": len(rows),
            "badge": words.badge(depart.receipt.reason, own),
            "lost": False,
        }
        self.boats.append(boat)
        self._out[depart.batch_id], self._aboard[depart.batch_id] = boat, rows
        self._say(now, words.departure_sentence(depart, now, own))

    def _finish(self, batch_id: int, result: Any, now: int, commands: Sequence[Command]) -> None:
        boat = self._out.pop(batch_id, None)
        if boat is None:
            return
        boat["end"] = now
        answered = {
            row.id for command in commands if isinstance(command, Answer) for row in command.rows
        }
        rows = self._aboard.pop(batch_id)
        for row in rows:
            if row["id"] in answered:
                row.update(ended=now, outcome=Outcome.ANSWERED.value)
        back = self._return(rows, now, commands)
        if back and isinstance(result, BatchError):
            self._say(now, f"Boat {batch_id} failed at {words.ms(now)}; {back} try again.")

    def _down(self, gpu: int, now: int, commands: Sequence[Command]) -> None:
        """This GPU serves nobody from now on; whoever was aboard returns to the bank."""
        if gpu in self._up:
            self._up.discard(gpu)
            self._draining.discard(gpu)
            self.downs[gpu].append([now, NEVER])
        for boat in [boat for boat in self._out.values() if boat["gpu"] == gpu]:
            del self._out[boat["id"]]
            boat.update(end=now, lost=True)
            back = self._return(self._aboard.pop(boat["id"]), now, commands)
            self._say(now, words.loss_sentence(boat["id"], gpu, back, now))

    def _return(self, rows: list[dict[str, Any]], now: int, commands: Sequence[Command]) -> int:
        """Those whom no command ended wait again; returns how many."""
        over = {command.request_id for command in commands if isinstance(command, End)}
        back = [row for row in rows if row["ended"] is None and row["id"] not in over]
        for row in back:
            row.update(ended=now, outcome="returned")
            self._wait(row["request"], now, returned=True)
        return len(back)

    def _end(self, end: End, now: int) -> None:
        passenger = self._waiting.pop(end.request_id, None)
        if passenger is None:
            aboard = (row for rows in self._aboard.values() for row in rows)
            passenger = next((row for row in aboard if row["id"] == end.request_id), None)
        if passenger is None:
            passenger = next(
                (row for row in reversed(self.passengers) if row["id"] == end.request_id), None
            )
        if passenger is not None and passenger["ended"] is None:
            passenger.update(ended=now, outcome=end.outcome.value)

    def _join(self, gpu: int, now: int) -> None:
        self._up.add(gpu)
        downs = self.downs.setdefault(gpu, [[0, NEVER]] if now else [])
        if downs and downs[-1][1] == NEVER:
            downs[-1][1] = now

    def _say(self, now: int, text: str) -> None:
        self.events.append({"at": now, "text": text})

    # -- one instant ---------------------------------------------------------------------------

    def _settle(self, now: int) -> None:
        """After all that happened at one instant: who is aboard, and whose wait counts."""
        busy = {boat["gpu"] for boat in self._out.values()}
        free = len(self._up - self._draining - busy)
        if not self.free or self.free[-1][1] != free:
            self.free.append([now, free])
        if free:
            self._board(now)
        else:
            for passenger in self._waiting.values():
                passenger.update(boarded=None, seat=None)
        self._time(now)

    def _board(self, now: int) -> None:
        taken = {row["seat"] for row in self._waiting.values() if row["boarded"] is not None}
        spare = iter([seat for seat in range(self.settings.max_batch) if seat not in taken])
        for passenger in sorted(self._waiting.values(), key=place):
            if passenger["boarded"] is None and (seat := next(spare, None)) is not None:
                passenger.update(boarded=now, seat=seat)

    def _time(self, now: int) -> None:
        """Keep the bar on whoever has waited longest."""
        oldest = min((row["arrived"] for row in self._waiting.values()), default=None)
        last = self.timers[-1] if self.timers else None
        running = last if last and last["until"] == NEVER else None
        if running and running["arrived"] == oldest:
            return
        if running:
            running["until"] = now
        if oldest is not None:
            self.timers.append({"arrived": oldest, "since": now, "until": NEVER})

    def ends_at(self) -> int:
        """The last instant worth drawing."""
        planned = [boat["planned"] for boat in self._out.values()]
        return max([*self.instants, *planned, 1])


def _letters(trace: Trace) -> dict[str, str]:
    """A letter for each tenant; none while there is only the nameless one."""
    tenants = {step.args[0].tenant for step in trace.steps if step.verb == "arrive"}
    if tenants <= {"default"} or len(tenants) > 26:
        return {}
    return {tenant: chr(ord("A") + i) for i, tenant in enumerate(sorted(tenants))}


def place(passenger: dict[str, Any]) -> tuple[bool, int, int, int]:
    """Who stands in front of whom: the returned, then by tier, then by arrival."""
    return (not passenger["returned"], passenger["tier"], passenger["arrived"], passenger["id"])
