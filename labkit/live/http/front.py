"""The front: every route, and the one way a call takes from its request to the core and back."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any
from urllib.parse import unquote_to_bytes

from labkit.core.admission import DepthLimit
from labkit.core.door import Ended
from labkit.core.idempotency import Key
from labkit.core.messages import Outcome, Request
from labkit.core.settings import Settings
from labkit.core.units import S
from labkit.live.desk import DeskEngine, DeskShell
from labkit.live.http.access import AccessLog, call_line, plain_line
from labkit.live.http.answers import Writer
from labkit.live.http.bodies import CAPS, Asked, Caps, canonical, read_chat, read_completion
from labkit.live.http.call import Call
from labkit.live.http.counters import Counters
from labkit.live.http.doorkeeper import Doorkeeper
from labkit.live.http.exchange import Exchange
from labkit.live.http.headers import check_type, deadline_of, key_of
from labkit.live.http.metrics import exposition
from labkit.live.http.models import Models
from labkit.live.http.patience import Timetable
from labkit.live.http.readiness import Readiness
from labkit.live.http.refusals import CASES, Refusal
from labkit.live.keys import Account, Keyring

log = logging.getLogger("labkit.http")

MODEL = b"/v1/models/"
"""What the path of one model begins with; its name follows."""


class Front:
    """Answers exchanges from an engine; everything is on the engine's loop."""

    def __init__(
        self,
        settings: Settings,
        keyring: Keyring,
        caps: Mapping[int, Caps] = CAPS,
        seed: int = 0,
        access: AccessLog | None = None,
    ) -> None:
        self.settings = settings
        self.caps = caps
        self.counters = Counters()
        self.doorkeeper = Doorkeeper(keyring, self.counters)
        self.access = access
        created = int(time.time())
        self.models = Models(settings.models, created)
        shares = [tier.share for tier in settings.tiers]
        self._places = {
            model: DepthLimit.shared(settings.of(model).depth_limit, shares).limits
            for model in settings.models
        }
        self._routes: dict[bytes, tuple[bytes, str, Callable[[Exchange], None]]] = {
            b"/v1/completions": (b"POST", "completions", self._completion),
            b"/v1/chat/completions": (b"POST", "chat", self._chat),
            b"/v1/models": (b"GET", "models", self._models),
            b"/healthz": (b"GET", "healthz", self._health),
            b"/readyz": (b"GET", "readyz", self._ready),
            b"/metrics": (b"GET", "metrics", self._metrics),
            b"/openapi.json": (b"GET", "openapi", self._openapi),
        }
        self.lab: Callable[[Exchange, Account], bytes] | None = None
        self._rendering: dict[int, Call] = {}
        self._next_id = 1
        self._boot = f"{created:x}"
        self._budget_s = (settings.budget or S // 2) / S
        self._seed = seed

    def attach(self, engine: DeskEngine) -> None:
        """The engine that answers; called before it starts."""
        self.engine = engine
        self.shell: DeskShell = engine.shell
        self.shell.watchers.append(self._watch)
        self.readiness = Readiness(self.settings, engine)
        chance = Random(f"{self._seed}/retry").random
        self.timetable = Timetable(self.settings, engine, self._places, chance)
        self._exposed = exposition(self.counters, engine, self.timetable.drain, self.access)
        if self.access is not None:
            self.shell.boarded = {}

    # -- every exchange ---------------------------------------------------------------------------

    def handle(self, exchange: Exchange) -> None:
        """Answer it now or later; never raises."""
        name = "other"
        try:
            route = self._routes.get(exchange.path)
            if route is None and exchange.path.startswith(MODEL) and exchange.path != MODEL:
                route = (b"GET", "models", self._model)
            if route is None:
                if not exchange.path.startswith(b"/lab/") or self.lab is None:
                    raise Refusal("not_found")
                name = "lab"
                self._respond(exchange, name, self.lab(exchange, self.doorkeeper.admin(exchange)))
                return
            method, name, serve = route
            if exchange.method != method and not (method == b"GET" and exchange.method == b"HEAD"):
                raise Refusal("method_not_allowed", headers=b"allow: %b\r\n" % method)
            serve(exchange)
        except Refusal as refusal:
            self.refuse(exchange, refusal, name)
        except Exception as error:
            self.defect(error)
            self.refuse(exchange, Refusal("internal_error"), name)

    def defect(self, error: Exception) -> None:
        """Something went wrong that nobody expected: it is for the log, not for the client."""
        log.error("a defect while answering", exc_info=error)

    def refuse(self, exchange: Exchange, refusal: Refusal, route: str) -> None:
        """Say no, with when to come back where that may help."""
        body = refusal.body()
        self._count(exchange, route, refusal.status, len(body), refusal.code)
        exchange.respond(refusal.status, body, extra=self.told_besides(refusal))

    def told_besides(self, refusal: Refusal, call: Call | None = None) -> bytes:
        """The header lines of a refusal."""
        if not refusal.again or b"retry-after" in refusal.headers:
            return refusal.headers
        if call is None:
            return refusal.headers + self.timetable.longest()
        return refusal.headers + self.when_to_return(refusal.code, call)

    def when_to_return(self, code: str, call: Call) -> bytes:
        """Header lines for a call that ended with this code, if trying again may help."""
        if not CASES[code].again:
            return b""
        return self.timetable.headers(code, call.writer.asked.model, call.account.tier)

    def refused(self, status: int) -> None:
        """The carrier refused what was not even a request; it counts like any other response."""
        self.counters.responses["other", status] += 1

    def _respond(self, exchange: Exchange, route: str, body: bytes, **more: Any) -> None:
        self._count(exchange, route, 200, len(body))
        exchange.respond(200, body, **more)

    def _count(
        self, exchange: Exchange, route: str, status: int, size: int, code: str | None = None
    ) -> None:
        """An exchange that is no call is over."""
        self.counters.responses[route, status] += 1
        if self.access is not None:
            tier = None if exchange.account is None else self._tier(exchange.account)
            self.access.note(plain_line(exchange, route, tier, status, size, code))

    def _tier(self, account: Account) -> str:
        return self.settings.tiers[account.tier].name

    # -- answers ----------------------------------------------------------------------------------

    def _completion(self, exchange: Exchange) -> None:
        account = self.doorkeeper.account(exchange)
        check_type(exchange)
        self._call(
            exchange, "completions", account, read_completion(exchange.body, self._caps(account))
        )

    def _chat(self, exchange: Exchange) -> None:
        account = self.doorkeeper.account(exchange)
        check_type(exchange)
        self._call(exchange, "chat", account, read_chat(exchange.body, self._caps(account)))

    def _caps(self, account: Account) -> Caps:
        return self.caps[account.tier]

    def _call(self, exchange: Exchange, route: str, account: Account, asked: Asked) -> None:
        """From here on the call has an outcome, whatever happens."""
        model = asked.model = self.models.named(asked.model)
        headers = exchange.headers
        text = headers.get(b"idempotency-key")
        key = None if text is None else key_of(text, exchange, account)
        # What a key has, or waits for, needs no more of a GPU.
        known = key is not None and key in self.shell.door.keys
        places = self._places[model][account.tier]
        if len(asked.prompts) > places and not known:
            # All of a list wait together: no queue, however empty, would ever let this one in.
            raise Refusal(
                "batch_too_large",
                f"prompt has {len(asked.prompts)} strings; of this tier {places} may wait for "
                f"{model}, send no more at once",
                "prompt",
            )
        if self.readiness.unserved and self.readiness.is_unserved(model) and not known:
            again = self.timetable.headers("no_ready_replica", model, account.tier)
            why = f"no GPU serves {model} now; come back"
            raise Refusal("no_ready_replica", why, "model", again)
        if headers.get(b"x-stainless-retry-count", b"0") != b"0":
            self.counters.retries += 1
        now = self.shell.clock()
        deadline = deadline_of(headers.get(b"x-stainless-read-timeout"), now)
        first = self._next_id
        self._next_id += len(asked.prompts)
        requests = [
            Request(unit, prompt, now, account.tier, account.tenant, model, deadline)
            for unit, prompt in enumerate(asked.prompts, first)
        ]
        writer = Writer(asked, f"{self._boot}-{first}", int(time.time()))
        call = Call(self, exchange, route, account, writer, first, now)
        self.counters.in_flight += 1
        body = exchange.body
        exchange.forget()
        try:
            self._submit(call, requests, key, body)
        except Exception as error:
            call.break_off(error)

    def _submit(
        self, call: Call, requests: Sequence[Request], key: Key | None, body: bytes
    ) -> None:
        if key is not None:
            self._submit_keyed(call, requests, key, body)
            return
        if call.writer.asked.stream:
            self.shell.streams.update(dict.fromkeys(call.units, call))
        if len(requests) == 1:
            self.shell.offer(requests[0], call.hear)
        else:
            self.shell.submit(requests, None, b"", call.hear)

    def _submit_keyed(self, call: Call, requests: Sequence[Request], key: Key, body: bytes) -> None:
        call.keyed = True
        ticket = call.first
        self._rendering[ticket] = call
        fingerprint = sha256(canonical(body)).digest()
        self.shell.submit(requests, key, fingerprint, call.hear)
        if not call.over and not self.shell.door.computes(ticket):
            # Another call computes this one's answer; it is waited for, within the budget.
            self.engine.loop.call_later(self._budget_s, self.shell.wait_over, ticket)

    def render(self, ticket: int, ended: Ended) -> tuple[int, bytes]:
        """For the door: the bytes of a keyed call, even if its own client has left."""
        try:
            return self._rendering.pop(ticket).render(ended)
        except Exception as error:
            self.defect(error)
            raise

    def began(self, call: Call) -> None:
        """The first piece of a stream is on its way."""
        took = time.monotonic() - call.exchange.started_at
        self.counters.first_piece[self._tier(call.account), call.writer.asked.model].note(took)

    def closed(self, call: Call, status: int, outcome: Outcome, code: str | None) -> None:
        """A call is over: count it once."""
        counters, asked, tier = self.counters, call.writer.asked, self._tier(call.account)
        counters.in_flight -= 1
        counters.responses[call.route, status] += 1
        counters.calls[tier, outcome.value] += 1
        if outcome is Outcome.ANSWERED:
            took = time.monotonic() - call.exchange.started_at
            counters.answer[tier, asked.model].note(took)
        if call.keyed:
            # One that still computes has others who wait, though its own client has left.
            if not self.shell.door.computes(call.first):
                self._rendering.pop(call.first, None)
        elif asked.stream:
            for unit in call.units:
                self.shell.streams.pop(unit, None)
        if self.access is not None:
            self.note_boarding(call)
            self.access.note(call_line(call, tier, status, outcome, code))

    def note_boarding(self, call: Call) -> None:
        """For the log: when the last of its requests went to a GPU for the last time."""
        boarded = self.shell.boarded
        if boarded is not None:
            found = [boarded.pop(unit) for unit in call.units if unit in boarded]
            call.boarded_at = max(found, default=call.boarded_at)

    # -- the other routes -------------------------------------------------------------------------

    def _models(self, exchange: Exchange) -> None:
        self.doorkeeper.account(exchange)
        self._respond(exchange, "models", self.models.listed())

    def _model(self, exchange: Exchange) -> None:
        self.doorkeeper.account(exchange)
        name = unquote_to_bytes(exchange.path.removeprefix(MODEL)).decode(errors="replace")
        self._respond(exchange, "models", self.models.described(name))

    def _health(self, exchange: Exchange) -> None:
        self._respond(exchange, "healthz", b'{"status":"ok"}')

    def _ready(self, exchange: Exchange) -> None:
        self.readiness.check()
        self._respond(exchange, "readyz", b'{"status":"ready"}')

    def _metrics(self, exchange: Exchange) -> None:
        self._respond(
            exchange, "metrics", self._exposed(), kind=b"text/plain; version=0.0.4; charset=utf-8"
        )

    def _openapi(self, exchange: Exchange) -> None:
        from labkit.live.http.openapi import document

        self._respond(exchange, "openapi", document(tuple(self.models.names)))

    # -- now and then -----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """A few times a second: write the log, measure the drain rates, look who is served."""
        if self.access is not None:
            self.access.flush()
        self.timetable.read(now)
        self.readiness.look(now)

    def _watch(self, what: str, gpu: int, now: int, why: str) -> None:
        """Of a loss the scheduler is told after this, so what is withdrawn now stays withdrawn."""
        if what == "joined":
            self.readiness.joined(gpu)
        elif what == "lost":
            self.shell.end_streams(gpu, "gpu_lost")
