"""The live engine: the same gateway on the real clock, in a thread of its own, safe to call."""

import asyncio
import atexit
import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from random import Random
from types import TracebackType
from typing import Any, Self

from labkit.core.admission import default_depth_limit
from labkit.core.gateway import Gateway
from labkit.core.messages import End, Outcome, Output, Request, Tier
from labkit.core.settings import SERVED, Settings
from labkit.core.trace import Recorder, Trace
from labkit.core.units import MS, NEVER
from labkit.live.collector import TunedCollector
from labkit.live.errors import LiveError, PromptTooLong
from labkit.live.fleet import FakeFleet, Fleet, State
from labkit.live.launch import BURIAL_S
from labkit.live.openloop import Fault, OpenLoop, Run, faults_of
from labkit.live.replies import Replies, Reply
from labkit.live.shell import Shell
from labkit.live.workers import START_WITHIN_S, ProcessFleet

GPUS = 8
OVERDUE_AFTER = 250 * MS
PROMPT_CAP = 32_768
"""Characters of one prompt."""

MOST_OPEN = 50_000
"""Replies that may be out and uncollected; a caller that never collects is told so."""

_running: "Live | None" = None
_one_at_a_time = threading.RLock()


def live_settings(gpus: int = GPUS, **changes: Any) -> Settings:
    """Settings of a live front door: overdue after 250 ms, tier timeouts, a depth limit."""
    base = Settings(tiers=SERVED, overdue_after=OVERDUE_AFTER).with_(**changes)
    if "depth_limit" in changes:
        return base
    limit = default_depth_limit(gpus, base.max_batch, base.budget, base.batch_time, base.reserve)
    return base.with_(depth_limit=limit)


class Live:
    """A gateway and its GPUs, running until it is stopped; `with Live() as live:` stops it.

    `workers`: one kind for all GPUs (`timer`, `cpu`, `cuda`, `fake` or `module:function`), a kind
    for each, or a `Fleet`. `trace`: keep a ring of the last so many verb calls. One engine runs in
    a process at a time. Leaving the `with` block normally answers everybody first (`close`);
    leaving it by an exception stops at once, and every open reply gets an outcome all the same.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        gpus: int = GPUS,
        workers: str | Sequence[str] | Fleet = "timer",
        seed: int = 0,
        prompt_cap: int = PROMPT_CAP,
        most_open: int = MOST_OPEN,
        trace: int | None = None,
        uvloop: bool = False,
    ) -> None:
        self.fleet, self.gpus = _fleet_of(workers, gpus, settings)
        self.settings = settings or live_settings(self.gpus)
        self.seed = seed
        self.prompt_cap = prompt_cap
        self.replies = Replies(most_open, self._withdraw)
        self._new_loop = _loop_factory(uvloop)
        self._ring = trace
        self._ids = count(1)
        self._inbox: deque[tuple[Request, Reply] | int] = deque()
        self._woken = False
        self._state = "new"
        self._ready = threading.Event()
        self._broken: dict[int, str] = {}
        self._failure: BaseException | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self, *, replace: bool = False) -> Self:
        """Bring every GPU up and return; `replace` stops an engine that still runs first.

        Raises `LiveError` when another engine runs, or a GPU cannot be brought up.
        """
        global _running
        _refuse_inside_a_worker()
        with _one_at_a_time:
            if self._state != "new":
                raise LiveError("this engine was started before; make a new Live(...)")
            if _running is not None and not replace:
                raise LiveError(
                    f"an engine with {_running.gpus} GPUs already runs in this process; stop it "
                    "first (labkit.live.current().stop()), or start with replace=True"
                )
            if _running is not None:
                _running.stop()
            _running = self
            self._state = "running"
            atexit.register(self.stop)
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise
        return self

    def _begin(self) -> None:
        self._collector = TunedCollector()
        self.loop = self._new_loop()
        self.loop.set_exception_handler(self._loop_failed)
        self.gateway = Gateway(self.settings, Random(self.seed))
        self._recorder = (
            None
            if self._ring is None
            else Recorder(self.gateway, self.settings, self.seed, self._ring)
        )
        self.shell = Shell(
            self.loop,
            self._recorder or self.gateway,
            self.fleet,
            lambda gpu: self.settings.models[gpu % len(self.settings.models)],
            self.settings.batch_time,
        )
        self.shell.watchers.append(self._watch)
        self._thread = threading.Thread(target=self._run_loop, name="labkit-live", daemon=True)
        self._thread.start()
        self.replies.start()
        self.loop.call_soon_threadsafe(self.fleet.open, self.loop, self.shell)
        self._await_gpus()

    def _await_gpus(self) -> None:
        deadline = time.monotonic() + START_WITHIN_S + BURIAL_S
        while not self._ready.wait(0.1):
            if self._failure is not None or time.monotonic() > deadline:
                break
        if self._broken:
            gpu, why = next(iter(self._broken.items()))
            raise LiveError(
                f"{len(self._broken)} of {self.gpus} GPUs cannot be brought up; GPU {gpu}: {why}"
            )
        self._check_running()
        if not self._ready.is_set():
            raise LiveError(f"not every GPU was up after {START_WITHIN_S:g} s: {self.snapshot()}")

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def close(self, within: float = 10.0) -> None:
        """Let nobody in, answer everybody, then stop; after `within` seconds stop anyway."""
        if self._state == "running" and self._failure is None:
            self._state = "closing"
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.shell.close)
            deadline = time.monotonic() + within
            while self.replies.open and self._failure is None and time.monotonic() < deadline:
                time.sleep(0.005)
        self.stop()

    def stop(self) -> None:
        """Stop at once: open replies fail with `engine_stopped`, processes and threads end.

        Harmless when called again.
        """
        global _running
        with _one_at_a_time:
            if self._state in ("new", "stopped"):
                return
            self._state = "stopped"
            try:
                self._end()
            finally:
                if _running is self:
                    _running = None
                atexit.unregister(self.stop)

    def _end(self) -> None:
        started = hasattr(self, "_thread")
        if started:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.shell.end_all, "engine_stopped")
        self.fleet.close()
        if started:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()
        self.replies.stop()
        if hasattr(self, "_collector"):
            self._collector.restore()

    def __enter__(self) -> Self:
        """Started, if it was not."""
        return self if self._state == "running" else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close after a normal end; stop after an exception."""
        if kind is None:
            self.close()
        else:
            self.stop()

    # -- requests -----------------------------------------------------------------------------

    def submit(
        self,
        prompt: str,
        *,
        tier: int = Tier.PAID,
        tenant: str = "default",
        model: str | None = None,
        deadline_ms: float | None = None,
    ) -> Reply:
        """Send one prompt; the reply's `result()` is the answer or raises a `NoAnswer`.

        Returns at once, from any thread. Cancelling the reply cancels the request. `deadline_ms`
        from now: a request still queued then expires. Raises `PromptTooLong`.
        """
        self._check_prompt(prompt)
        self._check_running()
        now = self.shell.clock()
        deadline = NEVER if deadline_ms is None else now + round(deadline_ms * MS)
        model = model or self.settings.models[0]
        request = Request(next(self._ids), prompt, now, tier, tenant, model, deadline)
        reply = self.replies.new(request.id)
        if self._state == "closing":
            reply.conclude(End(request.id, Outcome.REJECTED, "draining"))
        elif self.replies.open > self.replies.most:
            reply.conclude(End(request.id, Outcome.REJECTED, "too_many_open"))
        else:
            self._post((request, reply))
        return reply

    def ask(
        self, prompts: Iterable[str], *, tier: int = Tier.PAID, tenant: str = "default"
    ) -> list[str]:
        """The answers of many prompts, in order; sends no more at once than may wait.

        Raises what the first prompt without an answer raises.
        """
        limit = self.settings.depth_limit or 1_000
        waiting: deque[Reply] = deque()
        answers: list[str] = []
        try:
            for prompt in prompts:
                if len(waiting) >= limit:
                    answers.append(waiting.popleft().result())
                waiting.append(self.submit(prompt, tier=tier, tenant=tenant))
            while waiting:
                answers.append(waiting[0].result())
                waiting.popleft()
        finally:
            for reply in waiting:
                reply.cancel()
        return answers

    def run(
        self,
        arrivals: Iterable[Request],
        *,
        kills: Iterable[float] = (),
        faults: Iterable[Fault] = (),
        patience: float = 30.0,
        progress: Callable[[int], None] | None = None,
    ) -> Run:
        """Offer requests at their instants, answers or not, and measure from those instants.

        `kills`: seconds at which a GPU in the middle of a batch is killed. `patience`: seconds
        after the last arrival until the run gives up. `progress(settled)` is called now and then.
        """
        self._check_running()
        load = OpenLoop(
            self.shell,
            arrivals,
            self._ids,
            faults_of(kills, faults),
            patience,
            lambda: self.gateway.late,
        )
        self._call(load.start)
        try:
            while not load.finished.wait(0.1):
                self._check_running()
                if progress is not None:
                    progress(load.settled())
        except BaseException:
            with suppress(LiveError):
                self._call(load.abort)
            raise
        if load.error is not None:
            raise load.error
        return load.run

    # -- GPUs ---------------------------------------------------------------------------------

    def kill(self, gpu: int) -> None:
        """SIGKILL this GPU's process, as an accident would; it is noticed, and comes back."""
        self._call(self.fleet.kill, self._gpu(gpu))

    def hang(self, gpu: int, seconds: float) -> None:
        """Let this GPU do nothing for a while, alive and silent, after the batch it is at."""
        self._call(self.fleet.inject, self._gpu(gpu), "hang", seconds)

    def straggle(self, gpu: int, factor: float) -> None:
        """Make this GPU's batches take `factor` times as long, until it is restarted."""
        self._call(self.fleet.inject, self._gpu(gpu), "straggle", factor)

    def poison(self, gpu: int) -> None:
        """Break this GPU's context: its next batch fails, and so would every later one."""
        self._call(self.fleet.inject, self._gpu(gpu), "poison")

    def drain(self, gpu: int) -> None:
        """Take this GPU out of service between two batches and bring it back fresh."""
        self._call(self.shell.drain, self._gpu(gpu))

    def snapshot(self) -> dict[str, Any]:
        """What is where, now; from any thread."""
        on_gpu = [self.shell.on_gpu.get(gpu) for gpu in range(self.gpus)]
        return {
            "depth": self.gateway.depth(),
            "in_flight": sum(len(depart.rows) for depart in on_gpu if depart is not None),
            "open": self.replies.open,
            "late_dropped": self.gateway.late,
            "contract_violations": self.shell.violations,
            "gpus": [self._show(gpu, depart) for gpu, depart in enumerate(on_gpu)],
        }

    @property
    def trace(self) -> Trace | None:
        """The ring of the last verb calls, if one was asked for."""
        return None if self._recorder is None else self._recorder.trace

    def _show(self, gpu: int, depart: Any) -> dict[str, Any]:
        view = self.fleet.view(gpu)
        busy = depart is not None and view.state is State.READY
        return {
            "gpu": gpu,
            "state": "busy" if busy else view.state.value,
            "aboard": len(depart.rows) if depart is not None else 0,
            "pid": view.pid,
            "restarts": view.restarts,
            **view.facts,
        }

    # -- between threads ----------------------------------------------------------------------

    def _post(self, item: tuple[Request, Reply] | int) -> None:
        """Into the loop's inbox, waking the loop once for many."""
        self._inbox.append(item)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._empty_inbox)

    def _empty_inbox(self) -> None:
        self._woken = False
        inbox = self._inbox
        while inbox:
            item = inbox.popleft()
            if isinstance(item, int):
                self.shell.cancel(item)
            else:
                request, reply = item
                if not reply.cancelled():
                    self.shell.offer(request, self._conclude)

    def _conclude(self, request_id: int, outcome: Output | End) -> None:
        if self.replies.note(request_id, outcome):
            self.loop.call_soon(self.replies.flush)

    def _withdraw(self, request_id: int) -> None:
        if self._state in ("running", "closing"):
            self._post(request_id)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call on the loop's thread and wait for it; what it raises is raised here."""
        self._check_running()
        outcome: SimpleQueue[BaseException | None] = SimpleQueue()

        def call() -> None:
            try:
                function(*arguments)
            except BaseException as error:
                outcome.put(error)
            else:
                outcome.put(None)

        self.loop.call_soon_threadsafe(call)
        error = outcome.get(timeout=BURIAL_S)
        if error is not None:
            raise error

    def _watch(self, what: str, gpu: int, now: int, why: str) -> None:
        if what == "broken":
            self._broken[gpu] = why
        elif what == "joined":
            self._broken.pop(gpu, None)
        states = [self.fleet.view(g).state for g in range(self.gpus)]
        if all(state in (State.READY, State.BROKEN) for state in states):
            self._ready.set()

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error nobody expected: nothing after it can be trusted, so everybody is told."""
        self._failure = context.get("exception") or LiveError(str(context.get("message")))
        self.shell.end_all("engine_stopped")
        loop.default_exception_handler(context)

    # -- checks -------------------------------------------------------------------------------

    def _check_running(self) -> None:
        if self._failure is not None:
            raise LiveError(
                f"the engine broke: {self._failure!r}; stop it and start a new one"
            ) from self._failure
        if self._state not in ("running", "closing"):
            raise LiveError(f"the engine is {self._state}; use `with Live() as live:` or start()")

    def _check_prompt(self, prompt: str) -> None:
        if not isinstance(prompt, str):
            raise TypeError(f"prompt {prompt!r} is no text; send a str")
        if len(prompt) > self.prompt_cap:
            raise PromptTooLong(
                f"prompt of {len(prompt):,} characters: the cap is {self.prompt_cap:,}; shorten "
                "it, or start the engine with a larger prompt_cap"
            )

    def _gpu(self, gpu: int) -> int:
        if not 0 <= gpu < self.gpus:
            raise ValueError(f"GPU {gpu}: this engine has GPUs 0 to {self.gpus - 1}")
        return gpu


def current() -> Live | None:
    """The engine that runs in this process, if any."""
    return _running


def _fleet_of(
    workers: str | Sequence[str] | Fleet, gpus: int, settings: Settings | None
) -> tuple[Fleet, int]:
    batch_time = (settings or Settings()).batch_time
    if isinstance(workers, str) and workers == "fake":
        workers = FakeFleet(_at_least_one(gpus), batch_time)
    if not isinstance(workers, (str, Sequence)):
        return workers, workers.gpus
    kinds = [workers] * _at_least_one(gpus) if isinstance(workers, str) else list(workers)
    return ProcessFleet(kinds, batch_time), _at_least_one(len(kinds))


def _at_least_one(gpus: int) -> int:
    if gpus < 1:
        raise ValueError(f"gpus {gpus}: an engine needs at least 1")
    return gpus


def _loop_factory(uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    if not uvloop:
        return asyncio.new_event_loop
    try:
        import uvloop as fast
    except ImportError:
        raise LiveError(
            "uvloop is not installed; pip install uvloop, or leave uvloop=False"
        ) from None
    return fast.new_event_loop


def _refuse_inside_a_worker() -> None:
    """Where workers are spawned, each imports the caller's script again: it needs a guard."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise LiveError(
            "an engine was started by a worker that imports this script; put the script's code "
            'under `if __name__ == "__main__":`'
        )
