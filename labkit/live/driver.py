"""The live engine as its callers see it: the same gateway, on the real clock."""

import atexit
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self

from labkit.core.messages import Depart, End, Outcome, Request, Tier
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import MS, NEVER
from labkit.live.checks import check_amount, check_request, checked_arrivals
from labkit.live.configure import GPUS, fleet_of, live_settings, loop_factory
from labkit.live.engine import Engine
from labkit.live.errors import LiveError
from labkit.live.fleet import Fleet, State
from labkit.live.openloop import Fault, OpenLoop, Run, faults_of
from labkit.live.replies import Reply
from labkit.workload.prompts import PROMPT_CAP, check_prompt

MOST_OPEN = 50_000
"""Replies that may be out at once; a caller who sends without end is told so."""

_running: "Live | None" = None
_one_at_a_time = threading.RLock()


class Live:
    """A gateway and its GPUs, running until it is stopped; `with Live() as live:` stops it.

    `workers`: one kind for all GPUs (`timer`, `cpu`, `cuda`, `fake`, `module:function`; `auto` is
    what this machine has), a kind for each, or a `Fleet`; `options` go to the kinds' factories.
    `trace`: keep a ring of the last so many verb calls. One engine runs in a process at a time.
    Leaving the `with` block normally answers everybody first (`close`); leaving it by an exception
    stops at once, and every open reply gets an outcome all the same.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        gpus: int = GPUS,
        workers: str | Sequence[str] | Fleet = "timer",
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        prompt_cap: int = PROMPT_CAP,
        most_open: int = MOST_OPEN,
        trace: int | None = None,
        uvloop: bool = False,
    ) -> None:
        self.fleet = fleet_of(workers, gpus, settings or Settings(), options)
        self.gpus = self.fleet.gpus
        self.settings = settings or live_settings(self.gpus)
        self.prompt_cap = prompt_cap
        self.most_open = most_open
        self.state = "new"
        new_loop = loop_factory(uvloop)
        self._make = lambda: Engine(
            self.settings,
            self.fleet,
            seed=seed,
            ring=trace,
            loop=new_loop(),
        )
        self._ids = count(1)
        self._process = os.getpid()

    # -- life ---------------------------------------------------------------------------------

    def start(self, *, replace: bool = False) -> Self:
        """Bring every GPU up and return; `replace` stops an engine that still runs first.

        Raises `LiveError` when another engine runs, or a GPU cannot be brought up.
        """
        global _running
        _refuse_inside_a_worker()
        with _one_at_a_time:
            if self.state != "new":
                raise LiveError(f"this engine is {self.state}; make a new Live(...) to start")
            self._process = os.getpid()
            if _running is not None and not replace:
                raise LiveError(
                    f"an engine with {_running.gpus} GPUs already runs in this process; stop it "
                    "first (labkit.live.current().stop()), or start with replace=True"
                )
            if _running is not None:
                _running.stop()
            self._engine = self._make()
            self.state, _running = "running", self
            atexit.register(self.stop)
        try:
            self._engine.start()
        except BaseException:
            self.stop()
            # Stopped by another thread before its own threads ran, it has these now.
            self._engine.stop()
            raise
        return self

    def close(self, within: float = 10.0) -> None:
        """Let nobody in, answer everybody, then stop; after `within` seconds stop anyway."""
        here = self._process == os.getpid()
        try:
            if here and self.state == "running" and self._engine.failure is None:
                self.state = "closing"
                self._engine.call(self._engine.shell.close)
                deadline = time.monotonic() + within
                while self._engine.replies.open and time.monotonic() < deadline:
                    time.sleep(0.005)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop at once: open replies fail with `engine_stopped`, processes and threads end.

        Harmless when it has stopped already.
        """
        global _running
        with _one_at_a_time:
            if self.state in ("new", "stopped"):
                return
            self.state = "stopped"
            if self._process != os.getpid():
                return
            try:
                self._engine.stop()
            finally:
                if _running is self:
                    _running = None
                atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        """Started, if it was not."""
        return self if self.state == "running" else self.start()

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

        Returns at once, from any thread. Cancelling the reply cancels the request. Still queued
        `deadline_ms` from now, it expires. Raises `PromptError` for a prompt over the cap, and
        `ValueError` for a tier there is none of.
        """
        request = self._request(prompt, tier, tenant, model, deadline_ms)
        engine = self._engine
        reply = engine.replies.new(request.id)
        if self.state == "closing":
            reply.conclude(End(request.id, Outcome.REJECTED, "draining"))
        elif engine.replies.open > self.most_open:
            reply.conclude(End(request.id, Outcome.REJECTED, "too_many_open"))
        else:
            engine.post((request, reply))
        return reply

    def _request(
        self, prompt: str, tier: int, tenant: str, model: str | None, deadline_ms: float | None
    ) -> Request:
        """One request that came now, to a running engine; refused here if it would break it."""
        check_prompt(prompt, self.prompt_cap)
        model = self.settings.models[0] if model is None else model
        check_request(tier, len(self.settings.tiers), tenant, model, deadline_ms)
        now = self._serving().shell.clock()
        deadline = NEVER if deadline_ms is None else now + round(deadline_ms * MS)
        return Request(next(self._ids), prompt, now, tier, tenant, model, deadline)

    def ask(
        self, prompts: Iterable[str], *, tier: int = Tier.PAID, tenant: str = "default"
    ) -> list[str]:
        """The answers of many prompts, in order; sends no more at once than may wait.

        Raises what the first prompt without an answer raises.
        """
        share = min(rule.share for rule in self.settings.tiers)
        limit = (self.settings.depth_limit or 1_000) * share // 100
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

        Raises `ValueError` for a tier, a model or a GPU that this engine does not have: of a list
        of arrivals before anything runs, of an iterator when it comes to that one.
        """
        engine = self._serving()
        every = faults_of(kills, faults)
        for fault in every:
            if fault.gpu is not None:
                self._gpu(fault.gpu)
        checked = checked_arrivals(arrivals, self.settings)
        load = OpenLoop(
            engine.shell,
            list(checked) if isinstance(arrivals, Sequence) else checked,
            self._ids,
            every,
            patience,
            lambda: engine.gateway.late,
        )
        engine.call(load.start)
        try:
            while not load.finished.wait(0.1):
                self._serving()
                if progress is not None:
                    progress(load.settled())
        except BaseException:
            if self.state == "running":
                engine.call(load.abort)
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
        check_amount("hang for", seconds, "0 or more seconds")
        self._call(self.fleet.inject, self._gpu(gpu), "hang", seconds)

    def straggle(self, gpu: int, factor: float) -> None:
        """Make this GPU's batches take `factor` times as long, until it is restarted."""
        check_amount("straggle by", factor, "a factor above 0", above=True)
        self._call(self.fleet.inject, self._gpu(gpu), "straggle", factor)

    def poison(self, gpu: int) -> None:
        """Break this GPU's context: its next batch fails, and so would every later one."""
        self._call(self.fleet.inject, self._gpu(gpu), "poison")

    def drain(self, gpu: int) -> None:
        """Take this GPU out of service between two batches and bring it back fresh."""
        self._call(self._serving().shell.drain, self._gpu(gpu))

    def snapshot(self) -> dict[str, Any]:
        """What is where, now; from any thread."""
        engine = self._begun()
        on_gpu = [engine.shell.on_gpu.get(gpu) for gpu in range(self.gpus)]
        return {
            "depth": engine.gateway.depth(),
            "in_flight": sum(len(depart.rows) for depart in on_gpu if depart is not None),
            "open": engine.replies.open,
            "late_dropped": engine.gateway.late,
            "contract_violations": engine.shell.violations,
            "gpus": [self._show(gpu, depart) for gpu, depart in enumerate(on_gpu)],
        }

    @property
    def trace(self) -> Trace | None:
        """The ring of the last verb calls, if one was asked for."""
        return self._begun().trace

    def _show(self, gpu: int, depart: Depart | None) -> dict[str, Any]:
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

    def _begun(self) -> Engine:
        """The engine, running or stopped; there is nothing to see before `start`."""
        if self.state == "new":
            raise LiveError("the engine is new; use `with Live() as live:` or start()")
        return self._engine

    def _serving(self) -> Engine:
        """The engine, if requests may be sent to it or waited for."""
        if self._process != os.getpid():
            raise LiveError(
                "this engine was started in another process, from which this one was forked; "
                "send from that one, or start an engine here"
            )
        if self.state not in ("running", "closing"):
            raise LiveError(f"the engine is {self.state}; use `with Live() as live:` or start()")
        self._engine.check()
        return self._engine

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._serving().call(function, *arguments)

    def _gpu(self, gpu: int) -> int:
        if not isinstance(gpu, int) or not 0 <= gpu < self.gpus:
            raise ValueError(f"GPU {gpu}: this engine has GPUs 0 to {self.gpus - 1}")
        return gpu


def current() -> Live | None:
    """The engine that runs in this process, if any."""
    return _running


def _after_fork() -> None:
    """A forked child has none of the engine's threads, and its parent still needs the rest."""
    global _running, _one_at_a_time
    _running, _one_at_a_time = None, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _refuse_inside_a_worker() -> None:
    """Where workers are spawned, each imports the caller's script again: it needs a guard."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise LiveError(
            "an engine was started by a worker that imports this script; put the script's code "
            'under `if __name__ == "__main__":`'
        )
