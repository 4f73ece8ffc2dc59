"""Doors that are wrong in one way each: faults of idempotency that other people published."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from labkit.core.contract import Scheduler
from labkit.core.door import Commit, Door, DoorCommand, Send, _Call
from labkit.core.idempotency import Entry, Found, Key, KeyLedger, Standing
from labkit.core.messages import End, Outcome, Request
from labkit.teach import key_laws as laws
from labkit.teach.world import KEEP_FOR, Parts, render


@dataclass(frozen=True, slots=True)
class KeyBug:
    """One planted fault of the door, the index of keys, or the restart; see `labkit.teach.zoo.Bug`.

    `parts`: what a service with this fault is built from.
    """

    id: str
    title: str
    story: str
    source: str
    parts: Parts
    law: str
    question: str
    hint: str


KEY_ZOO: dict[str, KeyBug] = {}


def _keep(
    id: str,
    make: type[Door] | type[KeyLedger] | None,
    law: str,
    source: str,
    story: str,
    question: str,
    hint: str,
) -> None:
    if make is None:
        parts, title = Parts(restores=False), "A restart begins with an empty book"
    elif issubclass(make, Door):
        parts, title = Parts(door=_door(make)), _title(make)
    else:
        parts, title = Parts(keys=_keys(make)), _title(make)
    KEY_ZOO[id] = KeyBug(id, title, story, source, parts, law, question, hint)


def _title(make: type) -> str:
    return (make.__doc__ or "").splitlines()[0].rstrip(".")


def _door(make: type[Door]) -> Callable[[Scheduler, KeyLedger], Door]:
    return lambda behind, keys: make(behind, keys, render)


def _keys(make: type[KeyLedger]) -> Callable[[], KeyLedger]:
    return lambda: make(KEEP_FOR)


# -- who computes ---------------------------------------------------------------------------------


class BothRun(KeyLedger):
    """The key is written down when the work is done, not when it begins."""

    def begin(self, key: Key, fingerprint: bytes, holder: int, now: int) -> Found | None:
        found = super().begin(key, fingerprint, holder, now)
        if found is None or found.standing is not Standing.IN_FLIGHT:
            return found
        return Found(Standing.NEW, found.entry)


class NoFingerprint(KeyLedger):
    """Whatever comes under the key is taken for the first request."""

    def begin(self, key: Key, fingerprint: bytes, holder: int, now: int) -> Found | None:
        known = self._in_flight.get(key) or self._done.get(key)
        return super().begin(key, known.fingerprint if known else fingerprint, holder, now)


class NoTenant(Door):
    """Two customers who chose the same key share one outcome."""

    def submit(
        self, requests: Sequence[Request], key: Key | None, fingerprint: bytes, now: int
    ) -> Sequence[DoorCommand]:
        own = None if key is None else key._replace(tenant="")
        return super().submit(requests, own, fingerprint, now)


# -- what is recorded -----------------------------------------------------------------------------


class KeepsRefusals(KeyLedger):
    """A 429 is stored like an answer, and replayed for a day."""

    def finish(
        self, key: Key, holder: int, outcome: Outcome, status: int, body: bytes, now: int
    ) -> Entry | None:
        kept = Outcome.ANSWERED if outcome is Outcome.REJECTED else outcome
        return super().finish(key, holder, kept, status, body, now)


class ForgetsFailures(KeyLedger):
    """A request that broke its workers frees its key, and its client sends it again."""

    def finish(
        self, key: Key, holder: int, outcome: Outcome, status: int, body: bytes, now: int
    ) -> Entry | None:
        kept = Outcome.EXPIRED if outcome is Outcome.FAILED else outcome
        return super().finish(key, holder, kept, status, body, now)


class Wedged(KeyLedger):
    """Only a finished request gives its key back; one whose client leaves never does."""

    def finish(
        self, key: Key, holder: int, outcome: Outcome, status: int, body: bytes, now: int
    ) -> Entry | None:
        if outcome is Outcome.CANCELLED:
            return None
        return super().finish(key, holder, outcome, status, body, now)


# -- what is heard --------------------------------------------------------------------------------


class HeardBeforeStored(Door):
    """The answer goes out first and is written down after."""

    def settle(self, commands: Sequence[DoorCommand], now: int) -> Sequence[DoorCommand]:
        out: list[DoorCommand] = []
        for command in super().settle(commands, now):  # type: ignore[arg-type]
            out.append(command)
            if isinstance(command, Commit):
                out += self.stored(command.key)
        return out


class HeardUnwritten(Door):
    """The disk refused the write, and the answer goes out all the same."""

    def unstored(self, key: Key) -> Sequence[DoorCommand]:
        return self.stored(key)


class FirstRowSpeaks(Door):
    """Of a list the first row that comes back answers for all of it."""

    def _conclude_if_over(self, call: _Call, now: int, out: list[DoorCommand]) -> None:
        if call.outputs and not call.ends:
            self._conclude(call, tuple(call.outputs.values()), now, out)
        else:
            super()._conclude_if_over(call, now, out)


class MadeAgain(Door):
    """A replay is rendered anew, with its own id, in place of the bytes that were kept."""

    def submit(
        self, requests: Sequence[Request], key: Key | None, fingerprint: bytes, now: int
    ) -> Sequence[DoorCommand]:
        return [
            replace(c, body=b"%d:" % requests[0].id + c.body.partition(b":")[2])
            if isinstance(c, Send) and c.replayed
            else c
            for c in super().submit(requests, key, fingerprint, now)
        ]


class LoserFails(Door):
    """Of two at once the second is told that nobody is ready."""

    def submit(
        self, requests: Sequence[Request], key: Key | None, fingerprint: bytes, now: int
    ) -> Sequence[DoorCommand]:
        busy = key in self._call_of
        commands = super().submit(requests, key, fingerprint, now)
        ticket = requests[0].id
        if busy and not commands and key is not None:
            self._stop_waiting(ticket, key)
            return [End(ticket, Outcome.REJECTED, "no_ready_replica")]
        return commands


class OnlyTheFirstHears(Door):
    """The outcome is sent to the request that computed it; who waited beside it waits on."""

    def stored(self, key: Key) -> Sequence[DoorCommand]:
        return [
            replace(c, tickets=c.tickets[:1]) if isinstance(c, Send) else c
            for c in super().stored(key)
        ]


# -- who leaves -----------------------------------------------------------------------------------


class FirstLeavesAllLose(Door):
    """The client that came first hangs up, and everybody's work is cancelled."""

    def cancel(self, request_id: int, now: int) -> Sequence[DoorCommand]:
        call = self._calls.get(request_id)
        out = list(super().cancel(request_id, now))
        if call is not None and call.key in self._call_of:
            out += self.settle(self.scheduler.cancel(request_id, now), now)
        return out


class NobodyWaits(Door):
    """All clients have hung up, and the GPU works on."""

    def cancel(self, request_id: int, now: int) -> Sequence[DoorCommand]:
        key = self._key_of.get(request_id)
        if key is None:
            return super().cancel(request_id, now)
        self._stop_waiting(request_id, key)
        return [End(request_id, Outcome.CANCELLED, "client_left")]


# -- a restart ------------------------------------------------------------------------------------


class StillReserved(KeyLedger):
    """What was read back is taken for in flight: its computing process is dead, and it stays so."""

    def restore(self, entries: Iterable[tuple[Key, Entry]], now: int) -> None:
        for key, entry in entries:
            self._in_flight[key] = replace(entry, status=None)
            self._waiters[key] = 0


_keep(
    "both_run",
    BothRun,
    laws.ONE_COMPUTATION,
    "mastodon issue 37879; grape-idempotency issue 10; mitos issue 240",
    "Two requests with one key come within a millisecond. Each looks, finds nothing, and runs: the "
    "customer pays twice, and one of the two answers is thrown away.",
    "How many of the rows aboard belong to one key?",
    "Look for two arrivals of one prompt with no outcome in between.",
)
_keep(
    "no_fingerprint",
    NoFingerprint,
    laws.OTHER_REFUSED,
    "a common shortcut: the key alone is looked up",
    "A client numbers its keys from 1 and starts again after a restart. Its new question gets the "
    "answer to an old one, with status 200.",
    "Did everyone who was answered ask that question?",
    "Compare the prompt of each call with the text it got.",
)
_keep(
    "no_tenant",
    NoTenant,
    laws.OTHER_REFUSED,
    "a common shortcut: one name space for all customers",
    "Two customers both chose the key `1`. One is told that its request differs from one it never "
    "sent; had they asked the same, one would read the other's answer.",
    "Who was refused, and whose key was it?",
    "Write the tenant beside each key.",
)
_keep(
    "keeps_refusals",
    KeepsRefusals,
    laws.WORK_ONLY,
    "Comfy SDK issue 79",
    "The queue was full for a second. The refusal is kept under the key, and every polite retry of "
    "that day is refused again.",
    "What did the second call under that key cost the gateway?",
    "It never arrived.",
)
_keep(
    "forgets_failures",
    ForgetsFailures,
    laws.WORK_ONLY,
    "hindsight issue 2675: retries of a request that kills",
    "One request kills four GPUs and fails. Its client retries what looks temporary, with the same "
    "key, and kills four more.",
    "How many GPUs died for one key?",
    "Add the losses of every arrival under it.",
)
_keep(
    "wedged",
    Wedged,
    laws.NOT_STUCK,
    "Friday issue 403",
    "The client leaves between reserve and finish. The key stays reserved for ever, and every "
    "retry waits for work that nobody does.",
    "Which key is in flight while nothing of it is queued or aboard?",
    "Look at who left.",
)
_keep(
    "heard_before_stored",
    HeardBeforeStored,
    laws.BEFORE_HEARD,
    "the classic order mistake of every write-behind store",
    "The client has its answer; three milliseconds later the process dies with the record. The "
    "retry is computed again, and the two answers differ.",
    "Which instant comes first, the answer or the write?",
    "Take the commit's instant and the send's.",
)
_keep(
    "heard_unwritten",
    HeardUnwritten,
    laws.BEFORE_HEARD,
    "a common shortcut: the error of the write is logged",
    "The disk is full. The log says so, the clients hear nothing of it, and after the next restart "
    "none of their keys is known.",
    "What did the journal say before the answer went out?",
    "Look for a group that failed.",
)
_keep(
    "first_row_speaks",
    FirstRowSpeaks,
    laws.WORK_ONLY,
    "kserve issue 3071 and BentoML issues 3710 and 3859: requests of many items",
    "A call with three prompts is split over two batches. The first to come back is taken for "
    "the whole answer, and kept.",
    "How many outputs has the body, and how many prompts had the call?",
    "Count them in the record.",
)
_keep(
    "made_again",
    MadeAgain,
    laws.SAME_BYTES,
    "a common shortcut: the answer is kept, the response is built anew",
    "The text is the same, the id and the time are not: a client that checks a signature or counts "
    "by id sees two answers.",
    "Are the replayed bytes the first ones?",
    "Compare the ids in the two bodies.",
)
_keep(
    "loser_fails",
    LoserFails,
    laws.HEARS,
    "idempot-js issue 186",
    "Of two requests at once one is computed, the other gets a 503: a status that clients retry, "
    "for work that is under way.",
    "Who got an error while their key was being computed?",
    "The end comes at the very instant of the call.",
)
_keep(
    "only_the_first_hears",
    OnlyTheFirstHears,
    laws.ONE_OUTCOME,
    "async-batcher, and every single-flight whose waiters share a future by accident",
    "The first request is answered. The retry that waited beside it waits for its own timeout, "
    "although its answer lies ready.",
    "Who waited on a key that is done?",
    "Count the waiters and the answers.",
)
_keep(
    "first_leaves_all_lose",
    FirstLeavesAllLose,
    laws.LAST_WAITER,
    "the request's own cancel scope, in any framework that ties work to a connection",
    "A client loses patience, hangs up and asks again. Hanging up cancels the work that its second "
    "try is waiting for.",
    "Was anybody waiting when the work was cancelled?",
    "Look at the calls under that key before the cancel.",
)
_keep(
    "nobody_waits",
    NobodyWaits,
    laws.LAST_WAITER,
    "LitServe issue 165; Triton issues 4618 and 4818",
    "Everyone has gone. The key is kept busy for a reader who never comes, and so is a GPU.",
    "For whom is that batch?",
    "Every ticket of its key has ended.",
)
_keep(
    "empty_after_restart",
    None,
    laws.NOT_AGAIN,
    "any store that lives in the process",
    "The process is restarted in the middle of the day. Every retry of a request answered before "
    "is computed, and charged, again.",
    "Is there a prompt that was computed in both lives of the dispatcher?",
    "Compare the arrivals after the restart with the answers before.",
)
_keep(
    "still_reserved",
    StillReserved,
    laws.NOT_STUCK,
    "any store that writes down reservations and forgets who made them",
    "After the crash the keys are there, and so are their locks. Whoever held them is dead.",
    "Which keys are in flight in the first instant after the restart?",
    "Nobody has called yet.",
)
