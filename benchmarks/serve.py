"""The front door under load: the rates it holds, memory, what its parts cost, deaths, and streams.

`labkit serve` is a process of its own in every part but the last, and `labkit loadtest` another,
so what is measured is what a user gets from the commands; both share the machine. Nothing here is
tuned for it: the options of each server stand beside its figures.

- `rates`: Poisson arrivals, keys of two tiers, one request in ten with an idempotency key.
- `memory`: the same load again and again on one server; its resident memory after each round.
- `collector`, `log`, `carrier`: two servers that differ in one option, rounds interleaved; what
  counts is the processor time of a request, and the ratio.
- `torch`: what this machine has for workers, one killed in the middle of each rate; the rates go
  up until one is not held. A request must be answered once by the client's books and the server's.
- `streams`: a thousand at 20 pieces a second. The least there can be is what the simulator says
  of the very same arrivals: the wait for a batch and the batch, to the microsecond.
- `lost`: a GPU is killed in the middle of its streams; from the instant at which the dispatcher
  knows until the client has seen the connection's end. Server and client are one process here,
  so that both instants are read from one clock, and share its one interpreter.
"""

import json
import os
import platform
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from labkit.core.units import MS
from labkit.teach.served import Served, served

PARTS = ("rates", "memory", "collector", "log", "carrier", "torch", "streams", "lost")
RATES = {8_000.0: 18, 10_000.0: 18, 15_000.0: 18, 20_000.0: 24}
"""Requests a second, and the GPUs for them: at most five sixths of what they could do."""

TIMERS = ("--workers", "timer")
GPUS = 18
"""Of timers, each a process; fewer where the rates are scaled down."""

KEYED = 0.1
VERSUS: dict[str, tuple[float, dict[str, tuple[str, ...]]]] = {
    "collector": (8_000, {"tuned": (), "python": ("--collector", "python")}),
    "log": (5_000, {"without": (), "with": ("--access-log", os.devnull)}),
    "carrier": (3_000, {"own": (), "uvicorn": ("--server", "uvicorn")}),
}
"""Part -> the rate, and the options in which its two servers differ."""

MEMORY_RATE, MEMORY_ROUNDS = 5_000.0, 6
TORCH_RATES = (1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000)
HELD_MS = 500.0
STREAMS: dict[str, tuple[float, float, int, int]] = {
    "begun_within_50_ms": (20_000, 0.05, 1_000, 12),
    "begun_within_1_s": (1_000, 1.0, 2_500, 24),
}
"""Name -> requests a second, for how many seconds, milliseconds of a stream, GPUs."""

KILLS, CROWD, CROWD_KILLS = 50, 100, 10
PROMISE_MS = 50.0
Tell = Callable[[str], None]


def measure(
    parts: Sequence[str] = PARTS,
    seconds: float = 30.0,
    rounds: int = 3,
    seed: int = 1,
    scale: float = 1.0,
    tell: Tell = lambda line: None,
) -> dict[str, Any]:
    """The parts asked for, in their order; `scale` multiplies every rate and every count of kills.

    `seconds` is the length of a trial in `rates` and `torch`; in the other parts it is a third.
    """
    report: dict[str, Any] = {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_average_before": round(os.getloadavg()[0], 2),
        },
        "seconds": seconds,
        "rounds": rounds,
    }
    short = seconds / 3
    measures: dict[str, Callable[[], Any]] = {
        "rates": lambda: _rates(seconds, seed, scale, tell),
        "memory": lambda: _memory(short, seed, scale, tell),
        **{name: partial(_versus, name, short, rounds, seed, scale, tell) for name in VERSUS},
        "torch": lambda: _torch(seconds, seed, scale, tell),
        "streams": lambda: _streams(rounds, seed, scale, tell),
        "lost": lambda: _lost(scale, tell),
    }
    for name in PARTS:
        if name in parts:
            report[name] = measures[name]()
    return report


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()


# -- one trial --------------------------------------------------------------------------------


def trial(
    server: Served,
    rate: float,
    seconds: float,
    seed: int,
    keyed: float = KEYED,
    words: Sequence[str] = (),
    tiers: Sequence[str] = ("paid", "free"),
) -> dict[str, Any]:
    """One load on one server, and what both say of it.

    `answered_once`: every request had one right answer by the client's books, and the server
    counted as many. `cpu_us`: processor time of the server's own process a request, in
    microseconds.
    """
    keys = [word for tier in tiers for word in ("--key", server.keys[tier])]
    load = ["--rate", f"{rate:g}", "--seconds", f"{seconds:g}", "--seed", f"{seed}"]
    command = [sys.executable, "-m", "labkit", "loadtest", "--url", server.url, *keys, *load]
    before, busy = server.counters(), os.getloadavg()[0]
    made = subprocess.run(
        [*command, "--keyed", f"{keyed:g}", *words, "--json"],
        stdout=subprocess.PIPE,
        check=False,
    )
    after, told = server.counters(), json.loads(made.stdout)
    good = 'http_responses_total{route="completions",status="200"}'
    counted = after.get(good, 0) - before.get(good, 0)
    cpu = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    flaws = told["lost"] + told["wrong_tag"] + told["broken_streams"]
    return {
        "rate": rate,
        "offered": told["offered"],
        "answered": told["answered"],
        "answered_once": told["offered"] == told["answered"] == counted and not flaws,
        "statuses": told["statuses"],
        **{name: round(told["latency_ms"][name] or 0.0, 1) for name in ("p50", "p95", "p99")},
        "tpot_p95": told["tpot_ms"]["p95"],
        "lag_p95": round(told["generator_lag_ms"]["p95"] or 0.0, 1),
        "cpu_us": round(cpu / max(told["offered"], 1) * 1e6, 1),
        "rss_mb": round(after["process_resident_memory_bytes"] / 1e6, 1),
        "keys_kept": round(after["idempotency_keys"]),
        "load_average_before": round(busy, 2),
    }


def _said(name: str, found: dict[str, Any], tell: Tell) -> dict[str, Any]:
    tell(
        f"{name}: {found['answered']:,} of {found['offered']:,}, P50/P95/P99 {found['p50']:g}/"
        f"{found['p95']:g}/{found['p99']:g} ms, {found['cpu_us']:g} us, {found['rss_mb']:g} MB"
    )
    return found


def _gpus(scale: float, gpus: int = GPUS) -> int:
    return max(round(gpus * min(scale, 1.0)), 2)


# -- the parts --------------------------------------------------------------------------------


def _rates(seconds: float, seed: int, scale: float, tell: Tell) -> list[dict[str, Any]]:
    rows = []
    for rate, gpus in RATES.items():
        with served(_gpus(scale, gpus), *TIMERS) as server:
            at_rest = server.counters()["process_resident_memory_bytes"] / 1e6
            found = trial(server, rate * scale, seconds, seed)
            rows.append({"gpus": _gpus(scale, gpus), "rss_at_rest_mb": round(at_rest, 1), **found})
            _said(f"{rate * scale:g} a second", found, tell)
    return rows


def _memory(seconds: float, seed: int, scale: float, tell: Tell) -> dict[str, Any]:
    """Without keys: outcomes under keys are kept for a day, and are meant to grow."""
    rounds = []
    with served(_gpus(scale), *TIMERS) as server:
        for number in range(MEMORY_ROUNDS):
            found = trial(server, MEMORY_RATE * scale, seconds, seed + number, keyed=0.0)
            rounds.append(_said(f"memory, round {number + 1}", found, tell))
    sizes = [found["rss_mb"] for found in rounds]
    later = sum(found["offered"] for found in rounds[2:])
    return {
        "rate": MEMORY_RATE * scale,
        "requests": sum(found["offered"] for found in rounds),
        "rss_mb": sizes,
        # The first two rounds fill what is bounded: connections, receipts, the allocator's arenas.
        "grown_mb": round(sizes[-1] - sizes[1], 1),
        "bytes_a_request": round((sizes[-1] - sizes[1]) * 1e6 / max(later, 1), 1),
    }


def _versus(
    part: str, seconds: float, rounds: int, seed: int, scale: float, tell: Tell
) -> dict[str, Any]:
    rate, contestants = VERSUS[part]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, words in contestants.items():
            with served(_gpus(scale), *TIMERS, *words) as server:
                trial(server, rate * scale / 4, 1.0, seed)
                row = trial(server, rate * scale, seconds, seed + number)
                found[name].append(_said(f"{part} {name}", row, tell))
    first, second = contestants
    medians = {
        name: {key: median(row[key] for row in rows) for key in ("p50", "p95", "p99", "cpu_us")}
        for name, rows in found.items()
    }
    return {
        "rate": rate * scale,
        "medians": medians,
        "cpu_ratio": round(medians[second]["cpu_us"] / medians[first]["cpu_us"], 2),
        "rounds": found,
    }


def _torch(seconds: float, seed: int, scale: float, tell: Tell) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with served(8, "--workers", "auto") as server:
        for rate in TORCH_RATES:
            restarts = _restarts(server)
            killer = threading.Timer(0.5 + seconds / 2, server.kill, (0,))
            killer.start()
            found = trial(server, rate * scale, seconds, seed, keyed=KEYED)
            killer.join()
            found["restarts"] = _restarts(server) - restarts
            found["held"] = found["answered_once"] and found["p95"] <= HELD_MS
            rows.append(_said(f"torch, {rate * scale:g} a second, a kill", found, tell))
            if not found["held"]:
                break
            _until(lambda: all(gpu["state"] == "ready" for gpu in server.gpus()))
    held = [row["rate"] for row in rows if row["held"]]
    return {"gpus": 8, "workers": "auto", "highest_held": max(held, default=None), "rates": rows}


def _restarts(server: Served) -> int:
    return sum(gpu["restarts"] for gpu in server.gpus())


def _streams(rounds: int, seed: int, scale: float, tell: Tell) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name, (rate, seconds, batch_ms, gpus) in STREAMS.items():
        words = ("--batch-ms", f"{batch_ms}", "--budget-ms", "none", "--overdue-ms", "none")
        found, over = [], []
        with served(gpus, "--workers", "paced", *words, "--depth-limit", "none") as server:
            for number in range(rounds):
                least = least_ms(rate * scale, seconds, seed + number, batch_ms, gpus)
                row = trial(
                    server, rate * scale, seconds, seed + number, 0.0, ("--stream",), ("paid",)
                )
                row["least"] = {key: round(least[key], 1) for key in ("p50", "p95")}
                row["over_p95"] = round(row["p95"] / least["p95"] - 1, 4)
                over.append(row["over_p95"])
                found.append(_said(f"streams {name}, {row['over_p95']:+.1%}", row, tell))
        report[name] = {"over_p95": median(over), "stream_ms": batch_ms, "rounds": found}
    return report


def least_ms(rate: float, seconds: float, seed: int, batch_ms: int, gpus: int) -> dict[str, Any]:
    """What the same arrivals take where nothing costs anything: the gateway in virtual time."""
    from labkit.cli.arrivals import arrivals_of
    from labkit.cli.common import Load
    from labkit.core.settings import Settings
    from labkit.sim.driver import simulate

    settings = Settings(batch_time=batch_ms * MS, budget=None)
    run = simulate(settings, arrivals_of(Load(rate, seconds, seed, None, 1.0)), gpus=gpus)
    latency: dict[str, Any] = run.report()["latency_ms"]
    return latency


# -- a GPU lost in the middle of its streams ----------------------------------------------------


def _lost(scale: float, tell: Tell) -> dict[str, Any]:
    from labkit.core.settings import Settings
    from labkit.live.http.server import Server
    from labkit.live.keys import Keyring, demo

    keys, accounts = demo()
    # The window is long enough for a crowd to fill one batch.
    settings = Settings(max_wait=200 * MS, batch_time=1_000 * MS, budget=None)
    server = Server(settings, gpus=2, workers="paced", keyring=Keyring(accounts))
    server.start()
    try:
        report = {}
        for name, crowd, kills in (("one", 1, KILLS), ("hundred", CROWD, CROWD_KILLS)):
            found = [
                took
                for _ in range(max(round(kills * scale), 1))
                for took in lose(server, keys["paid"], crowd)
            ]
            found.sort()
            report[name] = {
                "streams": len(found),
                "p50_ms": round(median(found), 2),
                "max_ms": round(found[-1], 2),
                "within_promise": found[-1] <= PROMISE_MS,
            }
            tell(f"lost, {name} aboard: P50 {median(found):.2f}, max {found[-1]:.2f} ms")
        broken, started_again = server.front.counters.streams_broken, _returned(server)
    finally:
        server.close(2.0)
    return {"promise_ms": PROMISE_MS, **report, "broken": broken, "started_again": started_again}


def _returned(server: Any) -> int:
    reasons = server.engine.shell.reasons
    return sum(number for (_, reason), number in reasons.items() if reason == "returned")


def lose(server: Any, key: str, count: int) -> list[float]:
    """Milliseconds from the dispatcher's news of a loss until each stream's end was seen.

    Raises `AssertionError` when a stream ends in any way but the one that is promised.
    """
    engine = server.engine
    _until(lambda: len(engine.gateway.gpus()) == engine.fleet.gpus)
    news: list[float] = []

    def watch(what: str, gpu: int, now: int, why: str) -> None:
        if what == "lost":
            news.append(time.monotonic())

    lines = [_asked(server, key) for _ in range(count)]
    heard = {line: line.recv(65_536) for line in lines}
    engine.shell.watchers.insert(0, watch)
    for gpu in list(engine.shell.on_gpu):
        engine.call(engine.fleet.kill, gpu)
    ended = _ends(lines, heard)
    engine.shell.watchers.remove(watch)
    return [(at - news[0]) * 1_000 for at in ended]


def _asked(server: Any, key: str) -> socket.socket:
    line = socket.create_connection((server.host, server.port), 10)
    body = b'{"model": "ferry", "prompt": "a b c", "stream": true}'
    line.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: here\r\nauthorization: Bearer %b\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (key.encode(), len(body), body)
    )
    return line


def _ends(lines: Sequence[socket.socket], heard: dict[socket.socket, bytes]) -> list[float]:
    """When each line was seen to end; checks how."""
    ended = []
    with selectors.DefaultSelector() as open_lines:
        for line in lines:
            open_lines.register(line, selectors.EVENT_READ)
        while open_lines.get_map():
            for ready, _ in open_lines.select(10):
                line: Any = ready.fileobj
                piece = line.recv(65_536)
                if not piece:
                    ended.append(time.monotonic())
                    open_lines.unregister(line)
                    line.close()
                heard[line] += piece
    for said in heard.values():
        assert b'"code":"gpu_lost"' in said, said[-500:]
        assert b"[DONE]" not in said, said[-500:]
        assert not said.endswith(b"0\r\n\r\n"), said[-500:]
    return ended


def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.002)
