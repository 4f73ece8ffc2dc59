"""The door: keyed calls in front of a scheduler, each key with one recorded outcome."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from labkit.core.contract import Scheduler
from labkit.core.expiry import Deadlines
from labkit.core.idempotency import Entry, Key, KeyLedger, Standing
from labkit.core.messages import Answer, Command, End, Outcome, Output, Request, Result
from labkit.core.units import NOW


@dataclass(frozen=True, slots=True)
class Commit:
    """Make this outcome durable, then say so (`Door.stored`); nobody hears it before."""

    key: Key
    entry: Entry


@dataclass(frozen=True, slots=True)
class Send:
    """The same status and the very same bytes to all of these; `replayed` if recorded earlier."""

    tickets: tuple[int, ...]
    status: int
    body: bytes
    replayed: bool = False


Ended = tuple[Output, ...] | End
"""How a call ended: one output a prompt, in order, or the `End` that speaks for it (`ended_of`)."""

Render = Callable[[int, Ended], tuple[int, bytes]]
"""`render(ticket, ended)`: the status and the bytes of a call, told once for all who wait."""

DoorCommand = Command | Commit | Send

NO_BODY = "no body for this outcome"
"""How the `End` of a call begins for which `render` raised."""


@dataclass(slots=True)
class _Call:
    """A keyed call that is being computed: its unit requests, and what came of them so far."""

    key: Key
    units: tuple[int, ...]
    outputs: dict[int, Output] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Every unit has its outcome."""
        return len(self.outputs) + len(self.ends) == len(self.units)


def ended_of(units: Iterable[int], outputs: Mapping[int, Output], ends: Sequence[End]) -> Ended:
    """How a call ended: a failure of its own speaks for it, else the first of its ends.

    Every unit has its outcome. Of all ends a failure alone is recorded.
    """
    if not ends:
        return tuple([outputs[unit] for unit in units])
    failed = (end for end in ends if end.outcome is Outcome.FAILED)
    return next(failed, ends[0])


class Door:
    """A scheduler whose callers may carry keys; told the time, returns values, awaits nothing.

    Whoever calls has a ticket: the id of the call's first unit request. The first call under a
    key is computed; others with the same fingerprint wait for it and get the same bytes. An answer
    or a failure of its own becomes a `Commit`, and after `stored` a `Send`; every other outcome
    frees the key and is sent at once. Requests without a key pass untouched.

    A request's deadline ends its wait: of the first by the scheduler, in the queue only, and of
    others here, while the first goes on.
    """

    def __init__(self, scheduler: Scheduler, keys: KeyLedger, render: Render) -> None:
        self.scheduler = scheduler
        self.keys = keys
        self.render = render
        self._calls: dict[int, _Call] = {}
        self._key_of: dict[int, Key] = {}
        self._call_of: dict[Key, _Call] = {}
        self._waiting: dict[Key, list[int]] = {}
        self._writing: dict[Key, Entry] = {}
        self._unwritten: dict[Key, Entry] = {}
        self._deadlines = Deadlines(self._key_of.__contains__)
        self._owed: list[Command] = []

    # -- in ---------------------------------------------------------------------------------------

    def submit(
        self, requests: Sequence[Request], key: Key | None, fingerprint: bytes, now: int
    ) -> Sequence[DoorCommand]:
        """A call of one or more unit requests, which the scheduler lets in together or not at all.

        Refused by an `End` of its ticket: `idempotency_key_reuse` for another request under the
        key, decided before anything else; `too_many_keys` when every place is in flight. What the
        scheduler raises is raised, and the key is free.
        """
        if key is None:
            return self._arrive(requests, now)
        ticket = requests[0].id
        found = self.keys.begin(key, fingerprint, ticket, now)
        if found is None:
            return (End(ticket, Outcome.REJECTED, "too_many_keys"),)
        if found.standing is Standing.OTHER_REQUEST:
            return (End(ticket, Outcome.REJECTED, "idempotency_key_reuse"),)
        entry = found.entry
        if found.standing is Standing.NEW and key in self._writing:
            # Dropped for room before it was written: its waiters are owed that outcome first.
            self.keys.finish(key, ticket, Outcome.CANCELLED, 0, b"", now)
            return (End(ticket, Outcome.REJECTED, "too_many_keys"),)
        written = key not in self._writing and key not in self._unwritten
        if entry.status is not None and written:
            return (Send((ticket,), entry.status, entry.body, replayed=True),)
        self._waiting.setdefault(key, []).append(ticket)
        self._key_of[ticket] = key
        if found.standing is Standing.NEW:
            # What was never written and has had its time since is nobody's outcome any more.
            self._unwritten.pop(key, None)
            return self._run(_Call(key, tuple(request.id for request in requests)), requests, now)
        self._deadlines.watch(ticket, requests[0].deadline)
        if key in self._unwritten:
            self._writing[key] = self._unwritten.pop(key)
            return (Commit(key, entry),)
        return ()

    def _run(self, call: _Call, requests: Sequence[Request], now: int) -> Sequence[DoorCommand]:
        """The first under its key; if the scheduler raises, the key is free again."""
        self._call_of[call.key] = call
        self._calls.update(dict.fromkeys(call.units, call))
        try:
            return self._arrive(requests, now)
        except BaseException:
            self._free(call, now)
            raise

    def _arrive(self, requests: Sequence[Request], now: int) -> Sequence[DoorCommand]:
        """All or none: where one is refused, those let in before it leave at the same instant.

        So they do where the scheduler raises; what it had said of others by then is owed, and
        `advance` says it.
        """
        if len(requests) == 1:
            return self.settle(self._offer(requests[0], now), now)
        told: list[Command] = []
        for number, request in enumerate(requests):
            try:
                commands = self._offer(request, now)
            except BaseException:
                own = {request.id for request in requests}
                for earlier in requests[:number]:
                    told += self.scheduler.cancel(earlier.id, now)
                self._owed += [c for c in told if not (isinstance(c, End) and c.request_id in own)]
                raise
            told += commands
            refused = [c for c in commands if isinstance(c, End) and c.request_id == request.id]
            if refused:
                for earlier in requests[:number]:
                    told += self.scheduler.cancel(earlier.id, now)
                told += [replace(refused[0], request_id=r.id) for r in requests[number + 1 :]]
                break
        return self.settle(told, now)

    def _offer(self, request: Request, now: int) -> Sequence[Command]:
        """One request; when the scheduler raises, nothing of it is left there."""
        try:
            return self.scheduler.arrive(request, now)
        except BaseException:
            self.scheduler.cancel(request.id, now)
            raise

    # -- out --------------------------------------------------------------------------------------

    def settle(self, commands: Sequence[Command], now: int) -> Sequence[DoorCommand]:
        """What a verb returned, with the outcomes of keyed calls taken out and settled."""
        if not commands or not self._calls:
            return commands
        out: list[DoorCommand] = []
        for command in commands:
            if isinstance(command, Answer):
                self._answer(command, now, out)
            elif isinstance(command, End) and command.request_id in self._calls:
                call = self._calls[command.request_id]
                call.ends.append(command)
                self._conclude_if_over(call, now, out)
            else:
                out.append(command)
        return out

    def _answer(self, answer: Answer, now: int, out: list[DoorCommand]) -> None:
        """Keyed rows go to their calls; the others stay together, in order."""
        calls = self._calls
        if not any(row.id in calls for row in answer.rows):
            out.append(answer)
            return
        rows, outputs = [], []
        for row, output in zip(answer.rows, answer.outputs, strict=True):
            call = calls.get(row.id)
            if call is None:
                rows.append(row)
                outputs.append(output)
            else:
                call.outputs[row.id] = output
                self._conclude_if_over(call, now, out)
        if rows:
            out.append(Answer(answer.batch_id, tuple(rows), tuple(outputs)))

    def _conclude_if_over(self, call: _Call, now: int, out: list[DoorCommand]) -> None:
        if call.over:
            self._conclude(call, ended_of(call.units, call.outputs, call.ends), now, out)

    def _conclude(self, call: _Call, ended: Ended, now: int, out: list[DoorCommand]) -> None:
        """Record what is kept; send at once what frees the key."""
        key, holder = call.key, call.units[0]
        outcome = ended.outcome if isinstance(ended, End) else Outcome.ANSWERED
        try:
            status, body = self.render(holder, ended)
        except Exception as error:
            # Whatever a body is made of, a key is never stuck: it is free, and its waiters know.
            why = f"{NO_BODY}: {type(error).__name__}: {error}"
            out.extend(End(ticket, Outcome.FAILED, why) for ticket in self._free(call, now))
            return
        self._forget(call)
        entry = self.keys.finish(key, holder, outcome, status, body, now)
        if entry is not None:
            self._writing[key] = entry
            out.append(Commit(key, entry))
        elif tickets := self._leave_all(key):
            out.append(Send(tickets, status, body))

    def computes(self, ticket: int) -> bool:
        """Whether this keyed call is the one whose work is under way, and no waiter."""
        return ticket in self._calls

    def _free(self, call: _Call, now: int) -> tuple[int, ...]:
        """Forget a call as if it had never come; who waited for it."""
        self._forget(call)
        self.keys.finish(call.key, call.units[0], Outcome.CANCELLED, 0, b"", now)
        return self._leave_all(call.key)

    def _forget(self, call: _Call) -> None:
        self._call_of.pop(call.key, None)
        for unit in call.units:
            self._calls.pop(unit, None)

    def stored(self, key: Key) -> Sequence[DoorCommand]:
        """This key's outcome is durable: everybody who waits for it may hear it."""
        entry = self._writing.pop(key, None)
        if entry is None or entry.status is None:
            return ()
        tickets = self._leave_all(key)
        return (Send(tickets, entry.status, entry.body),) if tickets else ()

    def unstored(self, key: Key) -> Sequence[DoorCommand]:
        """It could not be written: those who wait are told, and the next call tries once more."""
        entry = self._writing.pop(key, None)
        if entry is None:
            return ()
        self._unwritten[key] = entry
        if len(self._unwritten) > 2 * self.keys.most:
            # A store that fails for good must not fill the memory with keys dropped long ago.
            self._unwritten = {k: e for k, e in self._unwritten.items() if k in self.keys}
        return tuple(End(t, Outcome.FAILED, "ledger_failed") for t in self._leave_all(key))

    def _leave_all(self, key: Key) -> tuple[int, ...]:
        tickets = tuple(self._waiting.pop(key, ()))
        for ticket in tickets:
            del self._key_of[ticket]
        return tickets

    # -- leaving early ----------------------------------------------------------------------------

    def cancel(self, request_id: int, now: int) -> Sequence[DoorCommand]:
        """A caller left; its work is cancelled only when nobody else waits for it."""
        key = self._key_of.get(request_id)
        if key is None:
            return self.settle(self.scheduler.cancel(request_id, now), now)
        return self._leave(End(request_id, Outcome.CANCELLED, "client_left"), key, now)

    def _leave(self, end: End, key: Key, now: int) -> list[DoorCommand]:
        """Somebody's wait ends like this, and with the last one's the work."""
        nobody = self._stop_waiting(end.request_id, key)
        out: list[DoorCommand] = [end]
        if nobody:
            for unit in self._call_of[key].units:
                out += self.settle(self.scheduler.cancel(unit, now), now)
        return out

    def wait_over(self, ticket: int, now: int) -> Sequence[DoorCommand]:
        """A caller will wait no longer for another's work, and means to come back for it.

        The work goes on even if nobody waits. () when the ticket has its outcome already.
        """
        key = self._key_of.get(ticket)
        if key is None:
            return ()
        self._stop_waiting(ticket, key)
        return (End(ticket, Outcome.REJECTED, "idempotency_in_flight"),)

    def abandon(self, detail: str, now: int) -> Sequence[DoorCommand]:
        """The scheduler will say nothing more: free every key in flight and tell its waiters."""
        calls = list(self._call_of.values())
        return [
            End(ticket, Outcome.FAILED, detail)
            for call in calls
            for ticket in self._free(call, now)
        ]

    def _stop_waiting(self, ticket: int, key: Key) -> bool:
        """One waiter less; whether nobody is left to work for."""
        del self._key_of[ticket]
        self._waiting[key].remove(ticket)
        return key in self._call_of and self.keys.leave(key)

    # -- the scheduler's other verbs --------------------------------------------------------------

    @property
    def due_at(self) -> int:
        """The scheduler's, or when somebody has waited for another's work until a deadline."""
        return NOW if self._owed else min(self.scheduler.due_at, self._deadlines.next())

    def arrive(self, request: Request, now: int) -> Sequence[DoorCommand]:
        """A request without a key."""
        return self.settle(self.scheduler.arrive(request, now), now)

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[DoorCommand]:
        """See `Scheduler.finish`."""
        return self.settle(self.scheduler.finish(batch_id, result, now), now)

    def join(self, gpu: int, version: str | None, now: int) -> Sequence[DoorCommand]:
        """See `Scheduler.join`."""
        return self.settle(self.scheduler.join(gpu, version, now), now)

    def lose(self, gpu: int, now: int) -> Sequence[DoorCommand]:
        """See `Scheduler.lose`."""
        return self.settle(self.scheduler.lose(gpu, now), now)

    def drain(self, gpu: int, now: int) -> Sequence[DoorCommand]:
        """See `Scheduler.drain`."""
        return self.settle(self.scheduler.drain(gpu, now), now)

    def advance(self, now: int) -> Sequence[DoorCommand]:
        """See `Scheduler.advance`; before it, what is owed, and waiters whose deadline has come."""
        owed, self._owed = self._owed, []
        left: list[DoorCommand] = [*self.settle(owed, now)]
        for ticket in self._deadlines.expired(now):
            end = End(ticket, Outcome.EXPIRED, "deadline_exceeded")
            left += self._leave(end, self._key_of[ticket], now)
        return [*left, *self.settle(self.scheduler.advance(now), now)]

    def close(self, now: int) -> Sequence[DoorCommand]:
        """Admit nobody any more, if the scheduler can be closed; what is recorded still replays."""
        closing = getattr(self.scheduler, "close", None)
        return () if closing is None else self.settle(closing(now), now)
