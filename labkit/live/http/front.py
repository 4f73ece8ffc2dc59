"""The front: routes, keys, limits, and the one way a request takes from its bytes to the core."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from prometheus_client.core import Metric

from labkit.core.admission import DepthLimit
from labkit.core.door import Ended
from labkit.core.idempotency import Key
from labkit.core.messages import Outcome, Request
from labkit.core.settings import Settings
from labkit.core.units import NEVER, S
from labkit.live.desk import DeskEngine, DeskShell
from labkit.live.http.access import AccessLog, call_line, plain_line
from labkit.live.http.answers import Writer
from labkit.live.http.bodies import CAPS, Asked, Caps, canonical, read_chat, read_completion
from labkit.live.http.call import Call
from labkit.live.http.counters import Counters, count, counts, exposition, gauge, gauges
from labkit.live.http.exchange import Exchange
from labkit.live.http.patience import DrainMeter, quota_headers, retry_headers, wait_for
from labkit.live.http.refusals import CASES, Refusal
from labkit.live.keys import Account, Keyring

log = logging.getLogger("labkit.http")

TICK_S = 0.25
UNSERVED_S = 1.0
"""A model without a GPU for longer than this answers 503; a GPU that restarts is back sooner."""

STUCK_S = 1.0
"""Work that is due and has not moved for so long, besides one batch: not ready."""

FAILURES, FORGIVEN_PER_S = 20, 2.0
"""Unknown keys that one address may show at once, and how fast they are forgiven."""

LONGEST_HINT_S = 3_600.0

MODEL = b"/v1/models/"
"""What the path of one model begins with; its name follows."""


class Front:
    """Answers exchanges from an engine; everything is on the engine's loop.

    Assign `keyring` to replace who may come in. `settings.models` are the names, perhaps with a
    version (`ferry@1`), that a client may ask for with or without it.
    """

    def __init__(
        self,
        settings: Settings,
        keyring: Keyring,
        caps: Mapping[int, Caps] = CAPS,
        seed: int = 0,
        access: AccessLog | None = None,
    ) -> None:
        self.settings = settings
        self.keyring = keyring
        self.caps = caps
        self.counters = Counters()
        self.drain = {model: DrainMeter() for model in settings.models}
        self.access = access
        self.draining = False
        self.created = int(time.time())
        self.chance = Random(f"{seed}/retry").random
        self.models = _names(settings.models)
        self.own = {model: settings.of(model) for model in settings.models}
        shares = [tier.share for tier in settings.tiers]
        self._places = {
            model: DepthLimit.shared(own.depth_limit, shares).limits
            for model, own in self.own.items()
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
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._unserved: dict[str, float] = {}
        self._moved: dict[str, tuple[int, float]] = {}
        self._next_id = 1
        self._boot = f"{self.created:x}"
        self._budget_s = (settings.budget or S // 2) / S
        self._exposed = exposition(self.counters, self._gauges)

    def attach(self, engine: DeskEngine) -> None:
        """The engine that answers; called before it starts."""
        self.engine = engine
        self.shell: DeskShell = engine.shell
        self.shell.watchers.append(self._watch)
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
                self._respond(exchange, name, self.lab(exchange, self._admin(exchange)))
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
        return refusal.headers + self.when_to_return(refusal.code, call)

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

    # -- who is it? -------------------------------------------------------------------------------

    def _account(self, exchange: Exchange) -> Account:
        """Who holds the bearer key; raises `Refusal`."""
        scheme, _, key = exchange.headers.get(b"authorization", b"").partition(b" ")
        account = self.keyring.find(key.strip()) if scheme.lower() == b"bearer" else None
        if account is None:
            self.counters.unknown_keys += 1
            self._check_failures(exchange.peer)
            raise Refusal("invalid_api_key", headers=b"www-authenticate: Bearer\r\n")
        exchange.account = account
        return account

    def _check_failures(self, peer: str) -> None:
        """A known key is never held up by who guesses beside it; a guesser soon is."""
        now = time.monotonic()
        level, since = self._failures.pop(peer, (0.0, now))
        level = max(level - (now - since) * FORGIVEN_PER_S, 0.0) + 1
        self._failures[peer] = (min(level, FAILURES + 1), now)
        if len(self._failures) > 10_000:
            self._failures.popitem(last=False)
        if level > FAILURES:
            raise Refusal("too_many_failures", headers=retry_headers(1 / FORGIVEN_PER_S))

    def _admin(self, exchange: Exchange) -> Account:
        account = self._account(exchange)
        if not account.admin or exchange.peer not in ("127.0.0.1", "::1"):
            raise Refusal("not_an_admin")
        return account

    # -- answers ----------------------------------------------------------------------------------

    def _completion(self, exchange: Exchange) -> None:
        account = self._account(exchange)
        _check_type(exchange)
        self._call(
            exchange, "completions", account, read_completion(exchange.body, self._caps(account))
        )

    def _chat(self, exchange: Exchange) -> None:
        account = self._account(exchange)
        _check_type(exchange)
        self._call(exchange, "chat", account, read_chat(exchange.body, self._caps(account)))

    def _caps(self, account: Account) -> Caps:
        return self.caps[account.tier]

    def _call(self, exchange: Exchange, route: str, account: Account, asked: Asked) -> None:
        """From here on the call has an outcome, whatever happens."""
        model = asked.model = self._named(asked.model)
        headers = exchange.headers
        text = headers.get(b"idempotency-key")
        key = None if text is None else _key(text, exchange, account)
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
        if self._unserved and self._is_unserved(model) and not known:
            again = self._return_to(model, account.tier)
            why = f"no GPU serves {model} now; come back"
            raise Refusal("no_ready_replica", why, "model", retry_headers(again))
        if headers.get(b"x-stainless-retry-count", b"0") != b"0":
            self.counters.retries += 1
        now = self.shell.clock()
        deadline = _hint(headers.get(b"x-stainless-read-timeout"), now)
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

    def when_to_return(self, code: str, call: Call | None) -> bytes:
        """Header lines for whoever may try again: from the measured depth and drain rate.

        A queue that is full also says how many may wait in it, in all or of the call's tier.
        """
        if not CASES[code].again:
            return b""
        if call is None:
            tiers = range(len(self.settings.tiers))
            return retry_headers(
                max(self._return_to(model, tier) for model in self.own for tier in tiers)
            )
        model, tier = call.writer.asked.model, call.account.tier
        busy = self.own[model].batch_time / S if code == "idempotency_in_flight" else 0.0
        seconds = self._return_to(model, tier, busy)
        extra = retry_headers(seconds)
        if code == "queue_full":
            extra += quota_headers(b"queue", max(self._places[model]), seconds)
        elif code == "tier_quota":
            extra += quota_headers(b"tier", self._places[model][tier], seconds)
        return extra

    def _return_to(self, model: str, tier: int, busy: float = 0.0) -> float:
        """Seconds after which this model should have room, once it was `busy` for some."""
        gateway, own = self.engine.gateway, self.own[model]
        gpus, on_gpu = gateway.gpus(model), self.shell.on_gpu
        rate = self.drain[model].rate(self.engine.loop.time()) or self._nominal(model)
        aboard = sum(len(on_gpu[gpu].rows) for gpu in gpus if gpu in on_gpu)
        # What is due may be another model's, or the end of somebody's patience.
        due = 0 if gateway.due_at == NEVER else gateway.due_at - self.shell.time()
        first = max(min(due, max(own.max_wait, own.batch_time)), 0) / S
        return wait_for(
            busy + first,
            max(gateway.depth(model) + aboard, 1),
            rate,
            self.settings.tiers[tier].timeout / S,
            self.chance,
        )

    def _nominal(self, model: str) -> float:
        """Answers a second that this model's GPUs in service could give."""
        own = self.own[model]
        return len(self.engine.gateway.gpus(model)) * own.max_batch * S / own.batch_time

    # -- the other routes -------------------------------------------------------------------------

    def _models(self, exchange: Exchange) -> None:
        self._account(exchange)
        rows = [self._described(model) for model in self.settings.models]
        self._respond(exchange, "models", _encode({"object": "list", "data": rows}))

    def _model(self, exchange: Exchange) -> None:
        self._account(exchange)
        name = unquote_to_bytes(exchange.path.removeprefix(MODEL)).decode(errors="replace")
        self._respond(exchange, "models", _encode(self._described(self._named(name))))

    def _named(self, name: str) -> str:
        """The model that a client means by this name; raises `Refusal`."""
        model = self.models.get(name)
        if model is None:
            raise Refusal("model_not_found", f"no model {name!r}; see /v1/models", "model")
        return model

    def _described(self, model: str) -> dict[str, Any]:
        return {"id": model, "object": "model", "created": self.created, "owned_by": "labkit"}

    def _health(self, exchange: Exchange) -> None:
        self._respond(exchange, "healthz", b'{"status":"ok"}')

    def _ready(self, exchange: Exchange) -> None:
        if self.draining:
            raise Refusal("draining")
        if self.engine.failure is not None:
            raise Refusal("engine_broke")
        if not self.engine.gateway.gpus():
            raise Refusal("no_ready_replica", "no GPU is in service")
        if self.is_stuck(self.engine.loop.time()):
            raise Refusal("no_ready_replica", "due work does not move")
        self._respond(exchange, "readyz", b'{"status":"ready"}')

    def _metrics(self, exchange: Exchange) -> None:
        self._respond(
            exchange, "metrics", self._exposed(), kind=b"text/plain; version=0.0.4; charset=utf-8"
        )

    def _openapi(self, exchange: Exchange) -> None:
        from labkit.live.http.openapi import document

        self._respond(exchange, "openapi", document(tuple(self.models)))

    def _gauges(self) -> Iterator[Metric]:
        shell, gateway, models = self.shell, self.engine.gateway, self.settings.models
        yield gauges(
            "queue_depth", "Requests that wait.", "model", {m: gateway.depth(m) for m in models}
        )
        yield gauge("on_gpu_requests", "Requests on a GPU.", gateway.in_flight())
        yield gauges(
            "gpus_ready", "GPUs in service.", "model", {m: len(gateway.gpus(m)) for m in models}
        )
        now = self.engine.loop.time()
        rates = {model: meter.rate(now) or 0.0 for model, meter in self.drain.items()}
        yield gauges("drained_rows_per_second", "Answers while a queue waits.", "model", rates)
        yield gauge("streamed_prompts", "Prompts of streams not at their end.", len(shell.streams))
        yield gauge("idempotency_keys", "Keys in flight or kept.", len(shell.door.keys))
        yield counts("batches", "Batches that departed.", ["model", "reason"], dict(shell.reasons))
        yield count("batch_rows", "Requests aboard them.", shell.aboard)
        yield count("returned_rows", "Requests that came back from a GPU.", shell.returned.total())
        yield counts("refused_requests", "Not let in.", ["code"], dict(gateway.refused))
        yield count("late_results", "Results of lost GPUs, dropped.", gateway.late)
        yield count("contract_violations", "Batches computed too slowly.", shell.violations)
        if self.access is not None:
            yield count("access_log_lost_lines", "Lines no disk would take.", self.access.lost)

    # -- now and then -----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Measure the drain rates, and notice models nobody serves and work that does not move."""
        if self.access is not None:
            self.access.flush()
        shell, gateway = self.shell, self.engine.gateway
        for model, own in self.own.items():
            busy = gateway.depth(model) >= own.max_batch
            self.drain[model].read(shell.returned[model], busy, now)
            if gateway.gpus(model):
                self._unserved.pop(model, None)
            else:
                self._unserved.setdefault(model, now)
            departed = shell.departed[model]
            if departed != self._moved.get(model, (-1, 0.0))[0] or not self._is_due(model):
                self._moved[model] = (departed, now)

    def is_stuck(self, now: float) -> bool:
        """Whether requests for a model are due and no batch of it has departed for too long."""
        return any(
            self._is_due(model) and now - at > self._patience(model)
            for model, (_, at) in self._moved.items()
        )

    def _patience(self, model: str) -> float:
        own = self.own[model]
        window = own.max_wait if own.rule == "ferry" else 0
        return STUCK_S + (own.batch_time + window) / S

    def _is_due(self, model: str) -> bool:
        """Whether so many wait that a batch leaves, now or when the window is over."""
        least = self.own[model].max_batch if self.settings.rule == "full" else 1
        return self.engine.gateway.depth(model) >= least

    def _is_unserved(self, model: str) -> bool:
        since = self._unserved.get(model)
        return since is not None and self.engine.loop.time() - since > UNSERVED_S

    def _watch(self, what: str, gpu: int, now: int, why: str) -> None:
        """Of a loss the scheduler is told after this, so what is withdrawn now stays withdrawn."""
        if what == "joined":
            self._unserved.pop(self.shell.version_of(gpu), None)
        elif what == "lost":
            self.shell.end_streams(gpu, "gpu_lost")


_encode = msgspec.json.Encoder().encode


def _names(models: Sequence[str]) -> dict[str, str]:
    """Every name a client may use, to the model it means: of several versions the last one."""
    names = {model.partition("@")[0]: model for model in models}
    return names | {model: model for model in models}


def _check_type(exchange: Exchange) -> None:
    kind = exchange.headers.get(b"content-type")
    if kind is None or kind == b"application/json":
        return
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise Refusal("unsupported_media_type")


def _key(text: bytes, exchange: Exchange, account: Account) -> Key:
    """Raw or in quotes; whose it is and for what is part of the key."""
    word = text.decode("latin-1").strip()
    if len(word) >= 2 and word[0] == word[-1] == '"':
        word = word[1:-1]
    if not (1 <= len(word) <= 255 and word.isascii() and word.isprintable()):
        raise Refusal("invalid_idempotency_key")
    return Key(account.tenant, f"{exchange.method.decode()} {exchange.path.decode()}", word)


def _hint(seconds: bytes | None, now: int) -> int:
    """How long the client says it will wait, as a deadline; a hint that makes no sense is none."""
    if seconds is None:
        return NEVER
    try:
        hint = float(seconds)
    except ValueError:
        return NEVER
    return now + round(hint * S) if 0 < hint <= LONGEST_HINT_S else NEVER
