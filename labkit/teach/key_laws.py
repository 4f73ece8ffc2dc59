"""The laws of idempotency keys, checked at every step beside the laws of the gateway."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.core.door import Commit, DoorCommand, Send
from labkit.core.idempotency import Entry, Key
from labkit.core.messages import Answer, Command, End, Outcome
from labkit.core.units import NEVER
from labkit.teach.laws import LawBroken

ONE_COMPUTATION = "one computation at a time a key"
NOT_AGAIN = "what is recorded is not computed again"
ONE_RECORD = "at most one recorded outcome a key"
WORK_ONLY = "an outcome of work is recorded, and no other"
BEFORE_HEARD = "an outcome is durable before it is heard"
SAME_BYTES = "a replay equals the first answer, byte for byte"
OTHER_REFUSED = "another request under a key is refused, and no other is"
HEARS = "whoever waits on a key hears its outcome"
NOT_STUCK = "no key is stuck"
LAST_WAITER = "work goes on while anybody waits, and stops when nobody does"
PATIENCE = "whoever waits for another's work waits no longer than its own deadline"
ONE_OUTCOME = "a call has exactly one outcome"

KEPT = {Outcome.ANSWERED, Outcome.FAILED}
RECORDED = {200: Outcome.ANSWERED, 422: Outcome.FAILED}


@dataclass(slots=True)
class _Run:
    """One computation of a key: whose call it is, and which of its units are not over yet."""

    ticket: int
    prompt: str
    size: int
    left: set[int]
    arrived: set[int] = field(default_factory=set)
    ends: list[Outcome] = field(default_factory=list)

    def outcome(self) -> Outcome:
        """A failure of its own before a refusal, a refusal before what followed from it."""
        ranked = [Outcome.FAILED, Outcome.REJECTED, *self.ends]
        bad = [end for end in ranked if end in self.ends and end is not Outcome.ANSWERED]
        return bad[0] if bad else Outcome.ANSWERED


class KeyLaws:
    """Keeps its own books of who asked for what, and knows none of the door's code.

    `asked` comes before the door is told of a call and `leaving` before it is told that a caller
    leaves; `happened` sees what the scheduler behind the door was told and said, `told` what the
    door said, `settled` ends a step. `answer(prompt)` is what a GPU answers; `keep_for` in
    microseconds.
    """

    def __init__(self, answer: Callable[[str], str], keep_for: int) -> None:
        self.answer = answer
        self.keep_for = keep_for
        self.now = 0
        self.records: dict[Key, Entry] = {}
        self.durable: set[Key] = set()
        self._begin()

    def _begin(self) -> None:
        """What dies with the dispatcher."""
        self.open: dict[int, tuple[Key | None, str]] = {}
        self.running: dict[Key, _Run] = {}
        self._units: dict[int, tuple[int, ...]] = {}
        self._ticket_of: dict[int, int] = {}
        self._key_of_unit: dict[int, Key] = {}
        self._unwritten: set[Key] = set()
        self._waiting: dict[Key, set[int]] = {}
        self._deadline: dict[int, int] = {}
        self._refused: set[int] = set()
        self._may_leave: set[int] = set()
        self._gone_on: set[Key] = set()
        self._ended: dict[Key, tuple[Outcome, _Run]] = {}

    def crashed(self) -> list[tuple[int, Key | None]]:
        """The dispatcher is dead: what was not durable never happened; whose calls were cut off."""
        cut = [(ticket, key) for ticket, (key, _) in self.open.items()]
        self.records = {key: entry for key, entry in self.records.items() if key in self.durable}
        self._begin()
        return cut

    # -- what callers do --------------------------------------------------------------------------

    def asked(
        self,
        units: tuple[int, ...],
        key: Key | None,
        prompt: str,
        now: int,
        deadline: int = NEVER,
    ) -> None:
        """A call is about to be made: so many units of one prompt, the first is its ticket."""
        self.now = now
        ticket = units[0]
        self._units[ticket] = units
        self._ticket_of.update(dict.fromkeys(units, ticket))
        self.open[ticket] = (key, prompt)
        if key is None:
            return
        other = self._record(key)
        run = self.running.get(key)
        first = other.fingerprint if other else (run.prompt if run else prompt).encode()
        if first != prompt.encode():
            self._refused.add(ticket)
        else:
            self._waiting.setdefault(key, set()).add(ticket)
            if run is not None and deadline < NEVER:
                self._deadline[ticket] = deadline

    def leaving(self, ticket: int, now: int, comes_back: bool = False) -> None:
        """A caller is about to leave; one who `comes_back` does not end the work."""
        self.now = now
        self._may_leave.add(ticket)
        key = self.open.get(ticket, (None, ""))[0]
        if key is not None and ticket not in self._refused:
            self._waiting.get(key, set()).discard(ticket)
            if comes_back:
                self._gone_on.add(key)

    # -- behind the door --------------------------------------------------------------------------

    def happened(
        self, verb: str, args: tuple[Any, ...], commands: Sequence[Command], now: int
    ) -> None:
        """One verb that the scheduler was told, and what it said."""
        self.now = now
        if verb == "arrive":
            self._arrived(args[0].id)
        for command in commands:
            if isinstance(command, Answer):
                for row in command.rows:
                    self._over(row.id, Outcome.ANSWERED)
            elif isinstance(command, End):
                self._over(command.request_id, command.outcome)

    def _arrived(self, unit: int) -> None:
        ticket = self._ticket_of[unit]
        key, prompt = self.open.get(ticket, (None, ""))
        if key is None:
            return
        name = f"{key.tenant}/{key.text}"
        run = self.running.get(key)
        if run is None:
            units = self._units[ticket]
            run = self.running[key] = _Run(ticket, prompt, len(units), set(units))
            self._require(self._record(key) is None, NOT_AGAIN, f"{name} is recorded")
        self._require(run.ticket == ticket, ONE_COMPUTATION, f"{name} runs twice")
        run.arrived.add(unit)
        self._key_of_unit[unit] = key

    def _over(self, unit: int, outcome: Outcome) -> None:
        key = self._key_of_unit.pop(unit, None)
        run = None if key is None else self.running.get(key)
        if key is None or run is None:
            return
        run.left.discard(unit)
        run.ends.append(outcome)
        refused = Outcome.REJECTED in run.ends
        if refused:
            run.left &= run.arrived
        waits = {ticket for ticket in self._waiting.get(key, ()) if not self._impatient(ticket)}
        what = f"{unit} was cancelled, {waits} wait for it"
        fair = outcome is not Outcome.CANCELLED or not waits or refused
        self._require(fair, LAST_WAITER, what)
        if not run.left:
            del self.running[key]
            self._gone_on.discard(key)
            self._ended[key] = (run.outcome(), run)

    # -- what the door says -----------------------------------------------------------------------

    def told(self, commands: Sequence[DoorCommand], now: int) -> None:
        """What the door returned."""
        self.now = now
        for command in commands:
            if isinstance(command, Commit):
                self._committed(command)
            elif isinstance(command, Send):
                for ticket in command.tickets:
                    self._sent(ticket, command)
            elif isinstance(command, Answer):
                for row in command.rows:
                    key = self._close(row.id)
                    self._require(key is None, BEFORE_HEARD, f"{row.id} was answered unrecorded")
            elif isinstance(command, End):
                self._end(command)

    def _committed(self, commit: Commit) -> None:
        key, entry = commit.key, commit.entry
        name = f"{key.tenant}/{key.text}"
        if key in self._unwritten and self._record(key) == entry:
            self._unwritten.discard(key)
            return
        self._require(self._record(key) is None, ONE_RECORD, f"{name} has one already")
        outcome, run = self._ended.pop(key, (None, None))
        want = RECORDED.get(entry.status or 0)
        what = f"{name}: {entry.status} for work that was {outcome}"
        self._require(outcome is want and want is not None, WORK_ONLY, what)
        assert run is not None
        right = "|".join([self.answer(run.prompt)] * run.size).encode()
        fits = want is Outcome.FAILED or entry.body.partition(b":")[2] == right
        self._require(fits, WORK_ONLY, f"{name}: {entry.body!r} for {run.prompt!r}")
        self.records[key] = entry
        self.durable.discard(key)

    def _sent(self, ticket: int, send: Send) -> None:
        key = self._close(ticket)
        what = f"{ticket} got {send.status} {send.body!r}"
        self._require(key is not None, HEARS, f"{what} and has no key")
        assert key is not None
        unrecorded = key in self._ended and self._ended[key][0] in KEPT
        self._require(not unrecorded, WORK_ONLY, f"{what}, not recorded")
        if send.status in RECORDED:
            entry = self._record(key)
            self._require(entry is not None and key in self.durable, BEFORE_HEARD, what)
            assert entry is not None
            same = (entry.status, entry.body) == (send.status, send.body)
            self._require(same, SAME_BYTES, f"{what}, recorded is {entry.status} {entry.body!r}")
        else:
            freed = key in self._ended and self._ended[key][0] not in KEPT
            self._require(freed, HEARS, f"{what}, which is no outcome of its key")

    def _end(self, end: End) -> None:
        ticket = end.request_id
        refused, left = ticket in self._refused, ticket in self._may_leave
        left = left or (end.outcome is Outcome.EXPIRED and self._impatient(ticket))
        key = self._close(ticket)
        if key is None:
            return
        what = f"{ticket} ended {end.outcome}: {end.detail}"
        reuse = end.detail == "idempotency_key_reuse"
        self._require(refused == reuse, OTHER_REFUSED, what)
        unwritten = end.detail == "ledger_failed" and key in self._unwritten
        if not reuse and not unwritten:
            self._require(left, HEARS, f"{what}, and did not leave")

    def _close(self, ticket: int) -> Key | None:
        self._require(ticket in self.open, ONE_OUTCOME, f"{ticket} has no call open")
        refused = ticket in self._refused
        key, _ = self.open.pop(ticket)
        self._refused.discard(ticket)
        self._may_leave.discard(ticket)
        self._deadline.pop(ticket, None)
        if key is not None and not refused:
            self._waiting.get(key, set()).discard(ticket)
        return key

    def _impatient(self, ticket: int) -> bool:
        """It has waited for another's work until its own deadline."""
        return self._deadline.get(ticket, NEVER) <= self.now

    def stored(self, key: Key) -> None:
        """The journal has it."""
        if key in self.records:
            self.durable.add(key)

    def unstored(self, key: Key) -> None:
        """The journal could not write it: those who wait may be told so."""
        if key in self.records:
            self._unwritten.add(key)

    # -- at the end of a step, and of all ---------------------------------------------------------

    def settled(self, in_flight: int, now: int) -> None:
        """Nothing is owed: every outcome recorded, every waiter waits for something."""
        self.now = now
        for key, (outcome, _) in self._ended.items():
            name = f"{key.tenant}/{key.text}"
            self._require(outcome not in KEPT, WORK_ONLY, f"{name} {outcome}, not recorded")
            waits = self._waiting.get(key)
            self._require(not waits or key in self.running, HEARS, f"{waits} wait for {name}")
        self._ended.clear()
        late = [ticket for ticket in self._refused if ticket in self.open]
        self._require(not late, OTHER_REFUSED, f"{late} were not refused")
        past = [ticket for ticket, deadline in self._deadline.items() if deadline < now]
        late = [ticket for ticket in past if self.open[ticket][0] in self.running]
        self._require(not late, PATIENCE, f"{late} still wait")
        what = f"{in_flight} in flight, {len(self.running)} computed"
        self._require(in_flight == len(self.running), NOT_STUCK, what)
        for key, run in self.running.items():
            wanted = bool(self._waiting.get(key)) or key in self._gone_on
            self._require(wanted, LAST_WAITER, f"{run.ticket} is computed and nobody waits")

    def over(self, now: int) -> None:
        """Nothing is left to happen."""
        self.now = now
        self._require(not self.open, ONE_OUTCOME, f"{sorted(self.open)} have none")

    def _record(self, key: Key) -> Entry | None:
        """What is recorded of this key, unless its time is over."""
        entry = self.records.get(key)
        return None if entry is None or entry.since + self.keep_for <= self.now else entry

    def _require(self, holds: bool, law: str, what: str) -> None:
        if not holds:
            raise LawBroken(law, self.now, what)
