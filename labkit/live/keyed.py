"""The live engine behind a door: calls with keys, and a journal that outlives the process."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from labkit.core.contract import Scheduler
from labkit.core.door import Commit, Door, DoorCommand, Ended, Render, Send
from labkit.core.idempotency import Key, KeyLedger
from labkit.core.messages import Command, End, Outcome, Output, Request, Tier
from labkit.core.settings import Settings
from labkit.live.configure import loop_factory
from labkit.live.driver import Live
from labkit.live.engine import Engine
from labkit.live.ledger import Journal, MemoryJournal
from labkit.live.replies import Reply
from labkit.live.shell import Shell

SCOPE = "lab"
"""What the keys of `KeyedLive.submit` are for."""

KeyedSink = Callable[[int, Output | End | Send], None]
"""As `labkit.live.shell.Sink`; a call with a key hears a `Send`, or an `End` of its ticket."""

STATUS = {
    Outcome.REJECTED: 429,
    Outcome.EXPIRED: 504,
    Outcome.FAILED: 422,
    Outcome.CANCELLED: 503,
}
"""What a call without an answer is sent as."""

_SAID_BY = {status: outcome for outcome, status in STATUS.items()}


def render(ticket: int, ended: Ended) -> tuple[int, bytes]:
    """A small JSON body; the id of the call that was computed tells two computations apart."""
    if isinstance(ended, End):
        told: dict[str, Any] = {"id": ticket, "error": ended.detail}
        return STATUS[ended.outcome], json.dumps(told).encode()
    return 200, json.dumps({"id": ticket, "outputs": list(ended)}).encode()


def outputs_of(body: bytes) -> list[str]:
    """The outputs in a body that `render` made."""
    outputs: list[str] = json.loads(body)["outputs"]
    return outputs


def fingerprint(request: object) -> bytes:
    """SHA-256 of a request as canonical JSON: the same for the same request, however written."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


class KeyedShell(Shell):
    """A shell whose scheduler stands behind a door; it obeys `Commit` and `Send` too.

    `recorded` counts outcomes that became durable. Books see no call with a key.
    """

    def __init__(
        self, door: Door, journal: Journal, loop: Any, fleet: Any, version_of: Any, settings: Any
    ) -> None:
        scheduler: Any = door
        super().__init__(loop, scheduler, fleet, version_of, settings)
        self.door = door
        self.journal = journal
        self.recorded = 0

    def recover(self) -> None:
        """Take over what the journal kept; call once, before anything is offered."""
        kept = self.journal.open(self.clock, self._on_stored)
        self.door.keys.restore(kept, self.clock())

    def call(
        self, requests: Sequence[Request], key: Key | None, fingerprint: bytes, sink: KeyedSink
    ) -> None:
        """A call came; `sink` is told how it ends under its ticket, the first request's id.

        A call that the scheduler cannot even be told raises, and is not open. As in `offer`, what
        a GPU has finished is heard first.
        """
        self._hear()
        now, ticket = self.time(), requests[0].id
        told: Any = sink
        self.open[ticket] = told
        try:
            commands = self.door.submit(requests, key, fingerprint, now)
        except BaseException:
            del self.open[ticket]
            self._settle((), now)
            raise
        if self._over is None:
            self._settle_door(commands, now)
        else:
            # Nothing is written or computed any more, but what is recorded costs neither.
            heard: Any = [one for one in commands if not isinstance(one, Commit)]
            self._obey(heard, now)
            self.end_all(self._over)

    def wait_over(self, ticket: int) -> None:
        """This call waits no longer for another's work, and will come back for it."""
        now = self.time()
        self._settle_door(self.door.wait_over(ticket, now), now)

    def end_all(self, code: str) -> None:
        """As every shell; no key stays behind, and what is recorded still replays."""
        super().end_all(code)
        now = self.time()
        self.door.abandon(code, now)
        self.door.close(now)

    def _settle_door(self, commands: Sequence[DoorCommand], now: int) -> None:
        told: Any = commands
        self._settle(told, now)

    def _obey(self, commands: Sequence[Command], now: int) -> None:
        others: list[Command] = []
        told: Sequence[DoorCommand] = commands
        for command in told:
            if isinstance(command, Commit):
                self.journal.append(command, now)
            elif isinstance(command, Send):
                sent: Any = command
                for ticket in command.tickets:
                    self._conclude(ticket, sent)
            else:
                others.append(command)
        if others:
            super()._obey(others, now)

    def _on_stored(self, group: Sequence[Commit], error: Exception | None) -> None:
        """From the journal's thread to the loop's."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._heard, group, error)

    def _heard(self, group: Sequence[Commit], error: Exception | None) -> None:
        now, door = self.time(), self.door
        for commit in group:
            if error is None:
                self.recorded += 1
                self._settle_door(door.stored(commit.key), now)
            else:
                self._settle_door(door.unstored(commit.key), now)


class KeyedEngine(Engine):
    """An engine with a door and a journal; `shell` is of its `shell_type`."""

    shell: KeyedShell
    shell_type: type[KeyedShell] = KeyedShell

    def __init__(self, *args: Any, journal: Journal, keys: KeyLedger, render: Render, **more: Any):
        self._door_of = lambda scheduler: Door(scheduler, keys, render)
        self._journal = journal
        super().__init__(*args, **more)

    def _shell(self, scheduler: Scheduler, settings: Settings) -> Shell:
        door, model_of = self._door_of(scheduler), settings.model_of
        return self.shell_type(door, self._journal, self.loop, self.fleet, model_of, settings)

    def start(self) -> None:
        """What the journal kept is known before the first GPU is up."""
        self.shell.recover()
        super().start()

    def stop(self) -> None:
        """As every engine; the journal writes what it has, last."""
        super().stop()
        self._journal.close()


class KeyedLive(Live):
    """A `Live` whose calls may carry keys: `submit(prompt, key="...")`.

    `journal`: where outcomes are kept, in memory unless given (`SqliteJournal(path)`); `render`
    makes the body that is kept and replayed.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        journal: Journal | None = None,
        keys: KeyLedger | None = None,
        render: Render = render,
        seed: int = 0,
        trace: int | None = None,
        uvloop: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(settings, seed=seed, trace=trace, uvloop=uvloop, **options)
        self.journal = MemoryJournal() if journal is None else journal
        self.keys = KeyLedger() if keys is None else keys
        new_loop = loop_factory(uvloop)
        self._make = lambda: KeyedEngine(
            self.settings,
            self.fleet,
            seed=seed,
            ring=trace,
            loop=new_loop(),
            journal=self.journal,
            keys=self.keys,
            render=render,
        )

    @property
    def shell(self) -> KeyedShell:
        """The shell of the engine that runs; its methods are for the loop's thread."""
        shell = self._serving().shell
        assert isinstance(shell, KeyedShell)
        return shell

    def call_on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call on the engine's thread and wait for it."""
        self._call(function, *arguments)

    def submit(
        self,
        prompt: str,
        *,
        tier: int = Tier.PAID,
        tenant: str = "default",
        model: str | None = None,
        deadline_ms: float | None = None,
        key: str | None = None,
    ) -> Reply:
        """As `Live.submit`; with a key, the same prompt under it is computed once and no more.

        The reply's result is the output that was recorded, whoever asked for it first. It is
        replayed while the engine closes too, and computed no more then.
        """
        if key is None:
            return super().submit(
                prompt, tier=tier, tenant=tenant, model=model, deadline_ms=deadline_ms
            )
        if not isinstance(key, str):
            raise ValueError(f"key {key!r}: must be text; pass a string, or None for no key")
        request = self._request(prompt, tier, tenant, model, deadline_ms)
        engine, shell = self._engine, self.shell
        reply = engine.replies.new(request.id)
        print = fingerprint({"prompt": prompt, "model": request.model})
        whole = Key(tenant, SCOPE, key)
        if engine.replies.open > self.most_open:
            reply.conclude(End(request.id, Outcome.REJECTED, "too_many_open"))
        else:
            engine._later(_offer, shell, reply, request, whole, print, _concluding(engine))
        return reply


def _offer(
    shell: KeyedShell, reply: Reply, request: Request, key: Key, print: bytes, sink: KeyedSink
) -> None:
    """On the loop's thread, unless the caller has given the reply up meanwhile."""
    if not reply.cancelled():
        shell.call([request], key, print, sink)


def _concluding(engine: Engine) -> KeyedSink:
    """Hand a call's outcome to its reply: the one output, or why there is none."""

    def sink(ticket: int, outcome: Output | End | Send) -> None:
        if isinstance(outcome, Send):
            outcome = _outcome_of(ticket, outcome)
        engine._conclude(ticket, outcome)

    return sink


def _outcome_of(ticket: int, sent: Send) -> Output | End:
    """What a recorded body says to one caller; a body that says nothing is a failure."""
    try:
        if sent.status == 200:
            return outputs_of(sent.body)[0]
        ended = _SAID_BY.get(sent.status, Outcome.FAILED)
        return End(ticket, ended, json.loads(sent.body)["error"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        why = f"no output in the body kept under this key: {error!r}; make it as {__name__}.render"
        return End(ticket, Outcome.FAILED, why)
