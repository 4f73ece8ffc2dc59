"""A storm on real processes: kills and hangs under load, clients with keys, every one accounted."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from labkit.core.books import percentile, summary
from labkit.core.door import Send
from labkit.core.idempotency import Key
from labkit.core.messages import End, Outcome, Output, Request
from labkit.core.settings import Settings
from labkit.core.units import MS, to_ms
from labkit.live.census import Census
from labkit.live.configure import live_settings
from labkit.live.keyed import KeyedLive, KeyedShell, fingerprint, outputs_of
from labkit.live.ledger import MemoryJournal, SqliteJournal
from labkit.live.openloop import Fault, Injury, OpenLoop
from labkit.workload import ferry_prompts, poisson, stream

GPUS = 8
MOST_TRIES = 8
RETRY_S = 0.1
"""A client that was refused asks again after this, and twice, three times, ... as long."""

IMPATIENT, HASTY, FORGETFUL = 7, 11, 13
"""Every so many clients: asks again while it waits; hangs up first; asks again when answered."""

IMPATIENCE_S, FORGETS_S = 0.06, 0.4
FIRST_FAULT_S, CALM_END_S = 0.5, 1.5
HANGS_PER_KILL = 0.25
HANG_S = 20.0
PROMPTS = 1_000


@dataclass(slots=True)
class Client:
    """One caller: its key, when it was to come, its tickets, and what it was told first."""

    number: int
    prompt: str
    at: int
    key: Key
    tickets: list[int] = field(default_factory=list)
    tries: int = 0
    body: bytes | None = None

    @property
    def id(self) -> int:
        """Under which it is open until its first answer; below every ticket."""
        return -2 * self.number - 1

    @property
    def again(self) -> int:
        """Under which it is open while it asks for what it has heard already."""
        return -2 * self.number - 2


@dataclass(slots=True)
class Tally:
    """What the clients of a storm were told; latencies in microseconds from their instants.

    `conflicting`: answers under one key that differ by a byte. `given_up`: refused too often.
    """

    answered: int = 0
    failed: int = 0
    given_up: int = 0
    conflicting: int = 0
    wrong_tag: int = 0
    retries: int = 0
    replayed: int = 0
    latencies: list[int] = field(default_factory=list)


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[tuple[int, str]]:
    """Poisson instants in microseconds, each with a prompt of its own."""
    said = ferry_prompts(PROMPTS, stream(seed, "prompts"))
    for number, at in enumerate(poisson(rate, seconds, stream(seed, "arrivals"))):
        yield at, f"{said[number % PROMPTS]} ({number})"


class StormLoad(OpenLoop):
    """Clients with keys on a schedule: they retry, hang up, ask twice, and compare the bytes."""

    def __init__(self, shell: KeyedShell, requests: Any, ids: Any, faults: Any, late: Any) -> None:
        super().__init__(shell, requests, ids, faults, 30.0, late)
        self.shell = shell
        self.tally = Tally()
        self._number = count()
        self._run_id = uuid.uuid4().hex[:8]

    def _offer(self, request: Request, at: int) -> None:
        number = next(self._number)
        # Not the keys of an earlier storm, whose ledger this may be.
        key = Key("storm", "POST", f"{self._run_id}-{number}")
        client = Client(number, request.prompt, at, key)
        self.run.offered += 1
        self._open[client.id] = client.prompt
        self._ask(client)
        if number % IMPATIENT == 0 or number % HASTY == 0:
            self._later(IMPATIENCE_S, self._lose_patience, client)

    def _break(self, fault: Fault) -> None:
        """Never a GPU that suffers already: what is measured is one fault at a time."""
        shell = self.shell
        hurt = {injury.gpu for injury in self.run.injuries if not injury.healed}
        well = [gpu for gpu in shell.on_gpu if gpu not in hurt]
        if well:
            last = max(well, key=lambda gpu: shell.departed_at[gpu])
            super()._break(replace(fault, gpu=last))
        else:
            self._later(0.005, self._break, fault)

    def _ask(self, client: Client, afterwards: bool = False) -> None:
        now = self.shell.clock()
        ticket = next(self._ids)
        client.tickets.append(ticket)
        request = Request(ticket, client.prompt, now, model=self.shell.version_of(0))

        def sink(_: int, told: Output | End | Send) -> None:
            self._heard(client, told, afterwards)

        self.shell.call([request], client.key, fingerprint(client.prompt), sink)

    def _lose_patience(self, client: Client) -> None:
        """Ask again beside the first try; the hasty hang up the first one then."""
        if client.body is None:
            self.tally.retries += 1
            first = client.tickets[0]
            self._ask(client)
            if client.number % HASTY == 0:
                self.shell.cancel(first)

    def _heard(self, client: Client, told: Output | End | Send, afterwards: bool) -> None:
        tally = self.tally
        if not isinstance(told, Send):
            if not (isinstance(told, End) and told.detail == "client_left"):
                self._refused(client)
        elif told.status not in (200, 422):
            self._refused(client)
        elif client.body is None:
            client.body = told.body
            self._first_answer(client, told)
        else:
            tally.conflicting += told.body != client.body
        if afterwards and isinstance(told, Send):
            tally.replayed += told.replayed
            self._open.pop(client.again, None)
            self._end_if_all_heard()

    def _first_answer(self, client: Client, told: Send) -> None:
        tally = self.tally
        tally.latencies.append(self.shell.time() - client.at)
        outcome: Output | End = End(client.id, Outcome.FAILED, "recorded as 422")
        if told.status == 200:
            tally.answered += 1
            outcome = outputs_of(told.body)[0]
        else:
            tally.failed += 1
        if client.number % FORGETFUL == 0:
            # Asks once more although it was answered; open until it has heard that too.
            self._open[client.again] = client.prompt
            tally.retries += 1
            self._later(FORGETS_S, self._ask, client, True)
        self._settled(client.id, outcome)

    def _refused(self, client: Client) -> None:
        client.tries += 1
        if client.id not in self._open:
            return
        if client.tries < MOST_TRIES:
            self.tally.retries += 1
            self._later(RETRY_S * client.tries, self._ask, client)
        else:
            self.tally.given_up += 1
            self._open.pop(client.id)
            self._end_if_all_heard()

    def _end_if_all_heard(self) -> None:
        if self._exhausted and not self._open:
            self._end_if_over()


def faults(seconds: float, kills_per_s: float) -> list[Fault]:
    """Kills at an even pace, and a hang for every few of them, in between."""
    last = seconds - CALM_END_S
    kills = _evenly(FIRST_FAULT_S, last, kills_per_s)
    hangs = _evenly(
        FIRST_FAULT_S + 0.5 / max(kills_per_s, 1e-9), last, kills_per_s * HANGS_PER_KILL
    )
    every = [Fault(at) for at in kills] + [Fault(at, "hang", amount=HANG_S) for at in hangs]
    return sorted(every, key=lambda fault: fault.at)


def _evenly(first: float, last: float, per_s: float) -> list[float]:
    if per_s <= 0 or first > last:
        return []
    return [first + number / per_s for number in range(int((last - first) * per_s) + 1)]


def storm(
    rate: float,
    seconds: float,
    kills_per_s: float,
    *,
    seed: int = 1,
    gpus: int = GPUS,
    workers: str = "timer",
    ledger: Path | None = None,
    settings: Settings | None = None,
    progress: Callable[[int], None] = lambda settled: None,
) -> dict[str, Any]:
    """Let it blow, wait until all have heard and every GPU is back; the report of `labkit storm`.

    `ledger`: the file of the journal; in memory when None.
    """
    journal = MemoryJournal() if ledger is None else SqliteJournal(ledger)
    chosen = settings or live_settings(gpus)
    with Census() as census:
        with KeyedLive(chosen, gpus=gpus, workers=workers, seed=seed, journal=journal) as live:
            requests = (Request(0, prompt, at) for at, prompt in arrivals(rate, seconds, seed))
            shell, gateway = live.shell, live._serving().gateway
            load = StormLoad(
                shell, requests, count(1), faults(seconds, kills_per_s), lambda: gateway.late
            )
            live.call_on_loop(load.start)
            while not load.finished.wait(0.1):
                live.shell  # noqa: B018 - raises when the engine broke
                progress(load.settled())
            if load.error is not None:
                raise load.error
            recorded, waiting = shell.recorded, len(shell.open)
        left = {"processes_left": census.processes(), "handles_left": census.handles()}
    load.run.lost += waiting
    report = _report(load, recorded, chosen)
    return {**report, **left, "rate": rate, "seconds": seconds, "gpus": gpus, "seed": seed}


def _report(load: StormLoad, recorded: int, settings: Settings) -> dict[str, Any]:
    run, tally = load.run, load.tally
    whole = run.report()
    latency = summary(tally.latencies)
    return {
        "offered": run.offered,
        "answered": tally.answered,
        "failed": tally.failed,
        "given_up": tally.given_up,
        "duplicated": run.duplicated + tally.conflicting,
        "lost": run.lost,
        "wrong_tag": run.wrong_tag,
        "retries": tally.retries,
        "replayed": tally.replayed,
        "recorded": recorded,
        "kills": whole["kills"],
        "hangs": sum(injury.how == "hang" for injury in run.injuries),
        "detection_ms": _noticed(run.injuries, "kill"),
        "hang_detection_ms": _noticed(run.injuries, "hang"),
        "back_ms": whole["back_ms"],
        "not_back": whole["not_back"],
        "latency_ms": latency,
        "late_dropped": run.late,
        "contract_violations": run.violations,
        "generator_lag_ms": whole["generator_lag_ms"],
        "wall_s": round(run.wall_s, 3),
        "verdict": {
            "exactly_once": not (run.lost or run.duplicated or tally.conflicting or run.wrong_tag)
            and recorded == tally.answered + tally.failed,
            "within_budget": within(latency["p95"], settings.budget),
            "all_back": whole["not_back"] == 0,
        },
    }


def within(p95_ms: float | None, budget: int | None) -> bool | None:
    """Whether a P95 is inside the budget; None when there is nothing to compare."""
    return None if p95_ms is None or budget is None else p95_ms * MS < budget


def spread(durations: list[int]) -> dict[str, float | None]:
    """The middle and the largest of durations in microseconds, in milliseconds."""
    ordered = sorted(durations)
    middle = percentile(ordered, 50)
    return {
        "p50": None if middle is None else to_ms(middle),
        "max": to_ms(ordered[-1]) if ordered else None,
    }


def _noticed(injuries: list[Injury], how: str) -> dict[str, float | None]:
    return spread(
        [i.noticed_after for i in injuries if i.how == how and i.noticed_after is not None]
    )
