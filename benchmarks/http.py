"""Our HTTP server beside other people's batching servers, in one run, under one load generator.

Each contestant gets the same batch function (100 ms by the clock, up to 100 prompts, a tag on each
answer), as many workers, and a window of 50 ms where it has one. A round of a contestant is: start
it, a closed loop, the highest rate of an open loop that it holds, one trial at a rate that all
hold, end it. Rounds are interleaved, and medians count.

A rate is held when 99.9 % of the requests have a right answer and P95 from the scheduled instant is
within `LIMIT_MS`. `constant` is our own server with all but queue, batches and GPUs, answered at
once, `late` the same when a batch would be over; `bare` its HTTP protocol alone.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.http_contestants import CONTESTANTS, ROOT, PeerMissing, peer_python
from benchmarks.http_report import Plan, Round, best_of, held, load_average, report_of
from benchmarks.http_servers import NotStarted, Running, serving

OURS = ("labkit", "constant")
LIMIT_MS = 300.0
COMMON_RATE = 100.0
"""The rate at which all are compared for latency: one that the slowest holds."""

MANY, FAST = 400, 2_000.0
"""More clients than that are for whoever answers more requests a second than this."""

STEP, NEXT_STEP = 1.5, 1.15
"""Of the search in a first round, and in a later one, which begins where the last one ended."""

FINE = 1.06
"""A gap between a rate that holds and one that does not that is not worth another trial."""

LEAST_RATE = 10.0
SETTLED_MS = 400.0
SETTLE_WITHIN_S = 15.0
DEFAULT_SIZE = 300
"""Of a constant answer when ours was not asked before."""


@dataclass(slots=True)
class Contest:
    """The rounds so far, and who could not take part, with the reason."""

    plan: Plan
    tell: Callable[[str], None]
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, names: Iterable[str]) -> None:
        """Every round, interleaved; who cannot start once is not tried again."""
        names = list(names)
        for number in range(self.plan.rounds):
            for name in names:
                if name in self.skipped:
                    continue
                try:
                    found = self._round(name, number)
                except (NotStarted, PeerMissing) as reason:
                    self.skipped[name] = str(reason)
                    self.tell(f"{name}: {reason}")
                    continue
                self.rounds.setdefault(name, []).append(found)
                self.tell(
                    f"round {number + 1}, {name}: {found.sustained:,.0f} a second held, "
                    f"{best_of(found.closed)['per_s']:,.0f} in a closed loop"
                )

    def _round(self, name: str, number: int) -> Round:
        plan = self.plan
        seed = plan.seed + number
        # A short name: the path of a Unix socket has little room.
        with (
            tempfile.TemporaryDirectory(prefix="lk") as folder,
            serving(name, plan.workers, self._size(), Path(folder), plan.start_s) as server,
        ):
            closed = self._closed(name, server, seed)
            common = _load(server, seconds=plan.seconds, rate=plan.common_rate, seed=seed)
            trials: list[dict[str, Any]] = []

            def holds(rate: float) -> bool:
                found = _load(server, seconds=plan.seconds, rate=rate, seed=seed)
                found["held"] = held(found, plan.limit_ms)
                trials.append(found)
                settle(server)
                return bool(found["held"])

            before = self.rounds.get(name)
            if before and before[-1].sustained:
                best = search(holds, before[-1].sustained, NEXT_STEP, plan.tries)
            else:
                best = search(holds, self._guess(closed, common), STEP, plan.tries)
        return Round(
            best, closed, common, trials, server.started_s, server.answer_size, server.killed
        )

    def _closed(self, name: str, server: Running, seed: int) -> list[dict[str, Any]]:
        """The closed loops: in a first round with ever more clients, later with as many as paid.

        The most clients are only for whoever is fast enough to need them.
        """
        before = self.rounds.get(name)
        counts = [best_of(before[0].closed)["clients"]] if before else self.plan.clients
        loops: list[dict[str, Any]] = []
        for clients in counts:
            if clients <= MANY or not loops or best_of(loops)["per_s"] > FAST:
                loops.append(_load(server, seconds=self.plan.seconds, clients=clients, seed=seed))
                settle(server)
        return loops

    def _guess(self, closed: list[dict[str, Any]], common: dict[str, Any]) -> float:
        """Where a first search begins: a little below the closed loop, or at what is known."""
        known = common["rate"] if held(common, self.plan.limit_ms) else LEAST_RATE
        return max(0.8 * best_of(closed)["per_s"], known)

    def _size(self) -> int:
        """A constant answer is as long as ours was."""
        ours = self.rounds.get("labkit")
        return ours[-1].answer_size if ours else DEFAULT_SIZE


def _load(server: Running, **load: Any) -> dict[str, Any]:
    """One load, in a process of its own, as every other; `cpu_us` is the server's a response."""
    used = server.cpu_s()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_load"],
        input=json.dumps(server.load(**load)),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise RuntimeError(f"the load on {server.contestant.name} failed:\n{done.stderr[-2_000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    after, responses = server.cpu_s(), sum(found["statuses"].values())
    known = used is not None and after is not None and responses
    found["cpu_us"] = round((after - used) / responses * 1e6, 1) if known else None
    return found


def search(holds: Callable[[float], bool], start: float, step: float, tries: int) -> float:
    """The highest rate found to hold in at most so many trials; 0 if none did.

    Up or down by `step` until one rate holds and the next does not, then halving the gap.
    """
    low, high, rate = 0.0, float("inf"), start
    for _ in range(tries):
        if holds(rate):
            low = rate
        else:
            high = rate
        if low and high < float("inf"):
            if high / low <= FINE:
                break
            rate = (low * high) ** 0.5
        else:
            rate = rate * step if low else rate / step
            if rate < LEAST_RATE:
                break
    return low


def settle(server: Running) -> None:
    """Wait until one request alone is answered quickly: an overload has been worked off."""
    deadline = time.monotonic() + SETTLE_WITHIN_S
    while time.monotonic() < deadline:
        began = time.monotonic()
        try:
            status, _ = server.ask()
        except OSError:
            status = 0
        if status == 200 and (time.monotonic() - began) * 1e3 < SETTLED_MS:
            return
        time.sleep(0.1)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM, too, leaves no server behind: it unwinds as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# -- the whole contest ------------------------------------------------------------------------


def measure(
    *,
    workers: int = 28,
    rounds: int = 3,
    seconds: float = 3.0,
    limit_ms: float = LIMIT_MS,
    common_rate: float = COMMON_RATE,
    seed: int = 1,
    only: Iterable[str] = (),
    quick: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Every contestant's rounds, medians, and ratios; `quick`: ours alone, and hardly measured.

    `only`: these contestants; ours and the constant answer are what ratios refer to.
    """
    names = list(only) or list(OURS if quick else CONTESTANTS)
    plan = Plan(workers, rounds, seconds, limit_ms, common_rate, seed)
    if quick:
        plan = Plan(4, 1, 0.5, limit_ms, common_rate, seed, clients=(50,), tries=2, start_s=20.0)
    contest = Contest(plan, tell)
    for name in names:
        contestant = CONTESTANTS[name]
        if contestant.pins:
            try:
                tell(f"{name}: looking for {' '.join(contestant.pins)} under build/peers")
                peer_python(contestant, install=not quick)
            except PeerMissing as reason:
                contest.skipped[name] = str(reason)
    began, load_before = time.monotonic(), load_average()
    with ending_in_order():
        contest.run(names)
    return report_of(plan, contest.rounds, contest.skipped, time.monotonic() - began, load_before)
