"""Our live dispatch against async-batcher, with the same arrivals, in processes of their own.

Every contestant gets fake GPUs (timers of 100 ms on its own event loop, as many as hold 65 % of the
offered rate, the same for all), batches of up to 100, a window of 50 ms, one process, asyncio's own
loop, and the collector tuned alike. Latency counts from the instant a request was scheduled.

- `labkit`: the engine as it runs, one callback a request, with admission, tiers, mapping table,
  receipts, expiry, overdue work, books and tags on.
- `labkit_tasks`: the same gateway behind one coroutine a request, which is the only way into
  async-batcher.
- `async_batcher`: async-batcher 0.2.2 from PyPI, in a virtual environment of its own under build/.

A rate is sustained when every request of a trial is answered and P95 stays under `LIMIT_MS`; the
ideal is near 110 when batches fill. Rounds are interleaved, each starts from the rate the round
before found, and the median counts. Run as a script with `--trial` it is one trial, in JSON.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from math import ceil
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = "async-batcher==0.2.2"
PEER_HOME = ROOT / "build" / "peers" / "async-batcher"
CONTESTANTS = ("labkit", "labkit_tasks", "async_batcher")
LIMIT_MS = 150.0
STEP = 1.15
START_RATE = 8_000.0
CEILING = 400_000.0
CALM_RATE = 10_000.0
"""The rate at which all are compared for latency and processor time."""

HEAD_START_S = 0.05
GPU_RATE = 1_000
UTILIZATION = 0.65


class PeerMissing(ValueError):
    """The peer's environment cannot be made: says what failed and how to make it."""


# -- one trial --------------------------------------------------------------------------------


def gpus_for(rate: float) -> int:
    """As many GPUs as hold `UTILIZATION` of the rate."""
    return max(ceil(rate / (GPU_RATE * UTILIZATION)), 2)


def instants_for(rate: float, seconds: float, seed: int) -> list[int]:
    """The arrivals of a trial in microseconds, made before it starts."""
    from labkit.workload import poisson, stream

    return poisson(rate, seconds, stream(seed, "arrivals"))


def tuned_collector() -> None:
    """The same for all, so that no contestant wins by it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


def labkit_trial(instants: list[int], gpus: int) -> dict[str, Any]:
    """The engine as its users start it."""
    from labkit.core.messages import Request
    from labkit.live import FakeFleet, Live, live_settings

    load = [Request(i, f"request {i}", at) for i, at in enumerate(instants)]
    with Live(live_settings(gpus, depth_limit=None), workers=FakeFleet(gpus)) as live:
        used = process_time()
        report = live.run(load, patience=5.0).report()
        used = process_time() - used
    wrong = report["lost"] + report["duplicated"] + report["wrong_tag"]
    return {
        "answered": report["answered"] - wrong,
        "p50_ms": report["latency_ms"]["p50"],
        "p95_ms": report["latency_ms"]["p95"],
        "cores": used / report["wall_s"],
    }


def labkit_tasks_trial(instants: list[int], gpus: int) -> dict[str, Any]:
    """The same gateway and shell, entered by one coroutine a request."""
    from itertools import count

    from labkit.core.gateway import Gateway
    from labkit.core.messages import Request
    from labkit.live import FakeFleet, live_settings
    from labkit.live.shell import Shell

    async def trial() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        fleet = FakeFleet(gpus)
        shell = Shell(
            loop, Gateway(live_settings(gpus, depth_limit=None)), fleet, lambda gpu: "ferry"
        )
        fleet.open(loop, shell)
        ids = count()
        waiting: dict[int, asyncio.Future[Any]] = {}

        def sink(request_id: int, outcome: Any) -> None:
            waiting.pop(request_id).set_result(outcome)

        async def process(prompt: str) -> Any:
            future = loop.create_future()
            request = Request(next(ids), prompt, shell.clock())
            waiting[request.id] = future
            shell.offer(request, sink)
            return await future

        tuned_collector()
        return await open_loop(process, instants)

    return asyncio.run(trial())


def async_batcher_trial(instants: list[int], gpus: int) -> dict[str, Any]:
    """The peer as its documentation uses it."""
    from async_batcher.batcher import AsyncBatcher

    from labkit.gpu.tag import stamp

    class Batcher(AsyncBatcher):  # type: ignore[misc]
        async def process_batch(self, batch: list[str]) -> list[str]:
            await asyncio.sleep(0.1)
            return [stamp(prompt, prompt) for prompt in batch]

    async def trial() -> dict[str, Any]:
        batcher = Batcher(max_batch_size=100, max_queue_time=0.05, concurrency=gpus)
        tuned_collector()
        found = await open_loop(batcher.process, instants)
        await batcher.stop(force=True)
        return found

    return asyncio.run(trial())


async def open_loop(
    process: Callable[[str], Awaitable[Any]], instants: list[int]
) -> dict[str, Any]:
    """Start one task at each instant, answers or not; latency from the instant."""
    from labkit.gpu.tag import carries

    latencies: list[float] = []
    tasks: set[asyncio.Task[None]] = set()
    used, origin = process_time(), monotonic() + HEAD_START_S

    async def one(prompt: str, at: float) -> None:
        answer = await process(prompt)
        if carries(answer, prompt):
            latencies.append(monotonic() - at)

    for number, instant in enumerate(instants):
        at = origin + instant / 1e6
        if (rest := at - monotonic()) > 0:
            await asyncio.sleep(max(rest, 0.0002))
        task = asyncio.create_task(one(f"request {number}", at))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(list(tasks), timeout=5.0)
    wall = monotonic() - origin
    latencies.sort()
    return {
        "answered": len(latencies),
        "p50_ms": 1e3 * latencies[len(latencies) // 2] if latencies else None,
        "p95_ms": 1e3 * latencies[ceil(0.95 * len(latencies)) - 1] if latencies else None,
        "cores": (process_time() - used) / wall,
    }


TRIALS: dict[str, Callable[[list[int], int], dict[str, Any]]] = {
    "labkit": labkit_trial,
    "labkit_tasks": labkit_tasks_trial,
    "async_batcher": async_batcher_trial,
}


def run_trial(name: str, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """One contestant at one rate, in this process."""
    instants = instants_for(rate, seconds, seed)
    found = TRIALS[name](instants, gpus_for(rate))
    return {"rate": rate, "offered": len(instants), **found}


# -- many trials ------------------------------------------------------------------------------


def peer_python() -> Path:
    """The interpreter of the peer's environment, made on the first call."""
    python = PEER_HOME / ("Scripts" if os.name == "nt" else "bin") / "python"
    if _works(python):
        return python
    steps = (
        [sys.executable, "-m", "venv", str(PEER_HOME)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            told = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise PeerMissing(
                f"{PEER} could not be installed under {PEER_HOME.relative_to(ROOT)}: {told[-1]}; "
                f"with a package index at hand, run: {' '.join(step)}"
            )
    return python


def _works(python: Path) -> bool:
    if not python.exists():
        return False
    probe = [str(python), "-c", "import async_batcher.batcher"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def trial(name: str, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """One contestant at one rate, in a process of its own."""
    python = str(peer_python()) if name == "async_batcher" else sys.executable
    asked = ["--trial", name, "--rate", str(rate), "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(
        [python, __file__, *asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise RuntimeError(f"{name} at {rate:g} failed:\n{done.stderr[-2_000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sustained(found: dict[str, Any]) -> bool:
    """Everybody answered, and the tail as it should be."""
    return found["answered"] == found["offered"] and found["p95_ms"] <= LIMIT_MS


def climb(holds: Callable[[float], bool], start: float) -> float:
    """The highest rate that holds, found in steps of `STEP` from `start`; 0 if none does."""
    rate, best = start, 0.0
    while rate <= CEILING and holds(rate):
        best, rate = rate, rate * STEP
    while not best and rate > 500:
        rate /= STEP
        if holds(rate):
            best = rate
    return best


def first_guess(holds: Callable[[float], bool]) -> float:
    """Double from `START_RATE` while it holds; where to begin to climb."""
    rate = START_RATE
    while rate * 2 <= CEILING and holds(rate * 2):
        rate *= 2
    return rate


def measure(
    seconds: float = 2.0, seed: int = 1, rounds: int = 5, contestants: Iterable[str] = CONTESTANTS
) -> dict[str, Any]:
    """The highest sustained rate of every contestant, medians of `rounds`, and ratios."""
    names = list(contestants)
    if "async_batcher" in names:
        peer_python()
    best: dict[str, list[float]] = {name: [] for name in names}
    calm: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for round_number in range(rounds):
        for name in names:

            def holds(rate: float, name: str = name, salt: int = round_number) -> bool:
                return sustained(trial(name, rate, seconds, seed + salt))

            # Two steps down, so that a lucky round does not carry the next ones with it.
            begin = best[name][-1] / STEP**2 if best[name] else first_guess(holds)
            best[name].append(climb(holds, begin or START_RATE))
            calm[name].append(trial(name, CALM_RATE, seconds, seed + round_number))
    return _report(best, calm, seconds)


def _report(
    best: dict[str, list[float]], calm: dict[str, list[dict[str, Any]]], seconds: float
) -> dict[str, Any]:
    rate = {name: median(values) for name, values in best.items()}
    peer = rate.get("async_batcher", 0.0)
    return {
        "load": {"seconds": seconds, "p95_limit_ms": LIMIT_MS, "gpu_utilization": UTILIZATION},
        "sustained_per_s": {name: round(value) for name, value in rate.items()},
        "ratios": {
            f"{name}/async_batcher": round(value / peer, 1)
            for name, value in rate.items()
            if peer and name != "async_batcher"
        },
        f"at_{CALM_RATE:.0f}_per_s": {
            name: {
                "p95_ms": round(median(found["p95_ms"] for found in trials), 1),
                "cores": round(median(found["cores"] for found in trials), 2),
            }
            for name, trials in calm.items()
        },
        "rounds": {name: [round(value) for value in values] for name, values in best.items()},
        "python": platform.python_version(),
    }


def main() -> None:
    """One trial with `--trial`, else the whole contest; prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trial", choices=CONTESTANTS)
    parser.add_argument("--rate", type=float, default=CALM_RATE)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.trial:
        found = run_trial(asked.trial, asked.rate, asked.seconds, asked.seed)
    else:
        found = measure(asked.seconds, asked.seed)
    json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
