"""One call for answers: its unit requests at the scheduler, joined into one response."""

from typing import TYPE_CHECKING

from labkit.core.door import Ended, Send, ended_of
from labkit.core.messages import End, Outcome, Output
from labkit.live.http.answers import Writer, cut, error_event, words
from labkit.live.http.exchange import EVENTS, JSON, Exchange
from labkit.live.http.refusals import Refusal, code_of, refusal_of
from labkit.live.keys import Account

if TYPE_CHECKING:
    from labkit.live.http.front import Front


_SAID_BY = {
    200: Outcome.ANSWERED,
    422: Outcome.FAILED,
    499: Outcome.CANCELLED,
    500: Outcome.FAILED,
    504: Outcome.EXPIRED,
}
"""The outcome of a keyed call, whose door speaks in statuses; any other is a rejection."""


class _Parts:
    """What there is so far of a list, or of a stream: by the id of each unit."""

    __slots__ = ("ends", "outputs", "said", "sent")

    def __init__(self) -> None:
        self.outputs: dict[int, Output] = {}
        self.ends: list[End] = []
        self.said: dict[int, str] = {}
        self.sent: dict[int, int] = {}


class Call:
    """From the first unit's arrival to the one response; the units' ids are consecutive.

    `keyed`: the door joins the units and sends bytes. `size`: bytes of the response's body so far.
    `boarded_at`: when the last unit went to a GPU, 0 where nobody asks. Everything is on the loop's
    thread.
    """

    __slots__ = (
        "_begun",
        "_front",
        "_parts",
        "account",
        "arrived_at",
        "boarded_at",
        "exchange",
        "first",
        "keyed",
        "over",
        "replayed",
        "route",
        "size",
        "writer",
    )

    def __init__(
        self,
        front: "Front",
        exchange: Exchange,
        route: str,
        account: Account,
        writer: Writer,
        first: int,
        arrived_at: int,
    ) -> None:
        self._front = front
        self.exchange = exchange
        self.route = route
        self.account = account
        self.writer = writer
        self.first = first
        self.arrived_at = arrived_at
        self.boarded_at = 0
        self.keyed = self.replayed = False
        self.over = False
        self.size = 0
        self._begun = False
        asked = writer.asked
        # One answer that comes whole, as most do, has no parts to be kept.
        self._parts = _Parts() if asked.stream or len(asked.prompts) > 1 else None
        exchange.left = self.leave

    @property
    def units(self) -> range:
        """The ids of the unit requests."""
        return range(self.first, self.first + len(self.writer.asked.prompts))

    # -- what the shell says ----------------------------------------------------------------------

    def hear(self, request_id: int, outcome: Output | End | Send) -> None:
        """A unit's outcome or, of a keyed call, the whole one's; never raises."""
        if self.over:
            return
        try:
            self._hear(request_id, outcome)
        except Exception as error:
            self.break_off(error)

    def break_off(self, error: Exception) -> None:
        """A defect of ours: this call fails, and no other."""
        self._front.defect(error)
        if not self.over:
            self._fail(Refusal("internal_error"), Outcome.FAILED)
            self._withdraw()

    def _hear(self, request_id: int, outcome: Output | End | Send) -> None:
        if isinstance(outcome, Send):
            self._deliver(outcome)
            return
        parts = self._parts
        if parts is None:
            self._respond(outcome if isinstance(outcome, End) else (outcome,))
            return
        if isinstance(outcome, End):
            parts.ends.append(outcome)
            if self.keyed or self._begun:
                self._refuse(outcome)
                return
        else:
            parts.outputs[request_id] = outcome
            if self.writer.asked.stream and not parts.ends:
                self._finish(parts, request_id, outcome)
                return
        if len(parts.outputs) + len(parts.ends) == len(self.writer.asked.prompts):
            self._respond(ended_of(self.units, parts.outputs, parts.ends))

    def _respond(self, ended: Ended) -> None:
        if isinstance(ended, End):
            self._refuse(ended)
            return
        body = self.writer.whole(ended)
        self.size = len(body)
        self._close(200, Outcome.ANSWERED)
        self.exchange.respond(200, body, JSON, self._name())

    def _deliver(self, send: Send) -> None:
        """The recorded bytes, whoever computed them."""
        extra = self._name()
        self.replayed = send.replayed
        if send.replayed:
            self._front.counters.replays += 1
            extra += b"idempotent-replayed: true\r\n"
        good = send.status == 200
        code = None if good else code_of(send.body)
        if code is not None:
            extra += self._front.when_to_return(code, self)
        self.size = len(send.body)
        self._close(send.status, _SAID_BY.get(send.status, Outcome.REJECTED), code)
        kind = EVENTS if good and self.writer.asked.stream else JSON
        self.exchange.respond(send.status, send.body, kind, extra)

    def render(self, ended: Ended) -> tuple[int, bytes]:
        """The status and the bytes of a keyed call, for everybody who waits and for the record."""
        self._front.note_boarding(self)
        if isinstance(ended, End):
            refusal = refusal_of(ended)
            return refusal.status, refusal.body()
        asked = self.writer.asked
        return 200, self.writer.stream(ended) if asked.stream else self.writer.whole(ended)

    # -- streams ----------------------------------------------------------------------------------

    def piece(self, request_id: int, text: str) -> None:
        """The next words of one unit, while it is still on its GPU; never raises."""
        if self.over or self._parts is None:
            return
        try:
            self._say(self._parts, request_id, text)
        except Exception as error:
            self.break_off(error)

    def _say(self, parts: _Parts, request_id: int, text: str) -> None:
        sent = parts.sent.get(request_id, 0)
        if self.writer.asked.max_tokens is not None:
            said = parts.said[request_id] = parts.said.get(request_id, "") + text
            text = cut(said, self.writer.asked.max_tokens)[0][sent:]
        if text:
            parts.sent[request_id] = sent + len(text)
            self._push(self.writer.piece(request_id - self.first, text))

    def lost(self, code: str) -> None:
        """What computed a part of this failed: begun, it ends here; not begun, it goes on."""
        if self._begun and not self.over:
            self._fail(Refusal(code), Outcome.FAILED)
            self._withdraw()

    def _finish(self, parts: _Parts, request_id: int, output: Output) -> None:
        """One unit has its whole answer: what was not said yet, and why it ends."""
        index = request_id - self.first
        text, why = cut(output, self.writer.asked.max_tokens)
        rest = text[parts.sent.get(request_id, 0) :]
        events = [self.writer.piece(index, word) for word in words(rest)]
        events.append(self.writer.finish(index, why))
        last = len(parts.outputs) == len(self.writer.asked.prompts)
        if last:
            events.append(self.writer.last())
        self._push(b"".join(events))
        if last:
            self._close(200, Outcome.ANSWERED)
            self.exchange.end()

    def _push(self, events: bytes) -> None:
        """The first bytes a client gets are the first words: until then it may still be refused."""
        if self._begun:
            self.size += len(events)
            self.exchange.push(events)
        else:
            self._begun = True
            self._front.began(self)
            events = self.writer.first() + events
            self.size = len(events)
            extra = self._name() + b"cache-control: no-store\r\n"
            self.exchange.begin(EVENTS, extra, events)

    # -- no answer --------------------------------------------------------------------------------

    def _refuse(self, end: End) -> None:
        self._fail(refusal_of(end), end.outcome)
        self._withdraw()

    def _fail(self, refusal: Refusal, outcome: Outcome) -> None:
        body = refusal.body()
        if self._begun:
            event = error_event(body)
            self.size += len(event)
            self._close(200, outcome, refusal.code)
            self._front.counters.streams_broken += 1
            self.exchange.push(event)
            self.exchange.cut()
        else:
            self.size = len(body)
            self._close(refusal.status, outcome, refusal.code)
            extra = self._name() + self._front.told_besides(refusal, self)
            self.exchange.respond(refusal.status, body, JSON, extra)

    def leave(self) -> None:
        """The client went."""
        if not self.over:
            self._close(200 if self._begun else 499, Outcome.CANCELLED, "client_left")
            self._withdraw()

    def _withdraw(self) -> None:
        """Nobody waits for what is still on its way."""
        shell = self._front.shell
        for unit in self.units:
            if unit in shell.open:
                shell.cancel(unit)

    def _close(self, status: int, outcome: Outcome, code: str | None = None) -> None:
        self.over = True
        self.exchange.left = None
        self._front.closed(self, status, outcome, code)

    def _name(self) -> bytes:
        return b"x-request-id: %b\r\n" % self.writer.id.encode()
