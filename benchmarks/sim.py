"""Our simulator against two that a good engineer would write or reach for first.

All get the same arrival instants, made beforehand and not timed, and the garbage collector as
Python ships it, with what exists before a run frozen out of its sight. (Our driver switches the
collector off while it runs; it gains 0 to 3 % by that.)

- `gateway`: the real gateway under SimPy, with 2 tiers of 50 tenants, mapping table, departure
  receipts and expiry switched on.
- `fast`: one step a batch, the same batches.
- `naive_simpy`: one SimPy process a request, one a batch, a `Resource` of GPUs, one tier.
- `ciw`: ciw has no bulk service, so it gets an easier model without the ferry rule: every request
  takes a seat for one batch time, and there are always enough seats. It runs the first
  `CIW_REQUESTS` arrivals only; rates are a request.

Time is processor time, since each contestant is one thread that never waits. Rounds are
interleaved and the median of each contestant is taken, so that a noisy neighbour on the machine
falls on all of them alike.
"""

import gc
import json
import platform
import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any

import simpy

from labkit.core.books import summary
from labkit.core.settings import SERVED, Settings
from labkit.core.units import MS, S
from labkit.sim import fast
from labkit.sim.driver import simulate
from labkit.workload import crowd, poisson, requests, stream

CIW_REQUESTS = 5_000
TENANTS = 50


class NaiveFerry:
    """Size-or-time batching as a SimPy tutorial would do it: a process for everything."""

    def __init__(self, env: simpy.Environment, gpus: int, max_batch: int, max_wait: int) -> None:
        self.env = env
        self.gpus = simpy.Resource(env, gpus)
        self.max_batch = max_batch
        self.max_wait = max_wait
        self.pending: list[simpy.Event] = []
        self.latencies: list[int] = []
        self.batches = 0

    def source(self, instants: Sequence[int]) -> Any:
        """Lets one request process start at each instant."""
        for at in instants:
            yield self.env.timeout(at - self.env.now)
            self.env.process(self.request())

    def request(self) -> Any:
        """Waits for its batch, and notes how long it took."""
        arrived_at = self.env.now
        done = self.env.event()
        self.pending.append(done)
        if len(self.pending) == self.max_batch:
            self.flush()
        elif len(self.pending) == 1:
            self.env.process(self.timer(done))
        yield done
        self.latencies.append(int(self.env.now - arrived_at))

    def timer(self, oldest: simpy.Event) -> Any:
        """Flushes after the window, if the request that opened it still waits."""
        yield self.env.timeout(self.max_wait)
        if self.pending and self.pending[0] is oldest:
            self.flush()

    def flush(self) -> None:
        """Hands the pending requests to the GPUs."""
        batch, self.pending = self.pending, []
        self.batches += 1
        self.env.process(self.crossing(batch))

    def crossing(self, batch: list[simpy.Event]) -> Any:
        """Takes a GPU for one batch time and wakes everybody aboard."""
        with self.gpus.request() as gpu:
            yield gpu
            yield self.env.timeout(100 * MS)
        for done in batch:
            done.succeed()


def naive_simpy(instants: Sequence[int], gpus: int) -> dict[str, Any]:
    """One run of the naive model."""
    env = simpy.Environment()
    ferry = NaiveFerry(env, gpus, 100, 50 * MS)
    env.process(ferry.source(instants))
    env.run()
    return {"latency_ms": summary(ferry.latencies), "batches": ferry.batches}


def ciw_seats(instants: Sequence[int], gpus: int) -> dict[str, Any]:
    """One run of ciw on seats instead of boats; `gpus` is not a limit here."""
    import ciw

    gaps = [(b - a) / S for a, b in zip((0, *instants), instants, strict=False)]
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps, float("inf")])],
        service_distributions=[ciw.dists.Deterministic(0.1)],
        number_of_servers=[float("inf")],
    )
    run = ciw.Simulation(network)
    run.simulate_until_max_customers(len(instants), method="Finish")
    times = [round((r.exit_date - r.arrival_date) * S) for r in run.get_all_records()]
    return {"latency_ms": summary(times), "requests": len(times)}


def timed(contestant: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of one run, and what it returned."""
    gc.collect()
    gc.freeze()
    try:
        started = process_time()
        result = contestant()
        return process_time() - started, result
    finally:
        gc.unfreeze()


def measure(
    rate: float = 10_000, gpus: int = 18, seconds: float = 20, seed: int = 1, rounds: int = 5
) -> dict[str, Any]:
    """Requests a processor second for every contestant, medians of `rounds`, and ratios."""
    instants = poisson(rate, seconds, stream(seed, "arrivals"))
    mixed = requests(instants, crowd(TENANTS), stream(seed, "mix"))
    settings = Settings(tiers=SERVED)
    few = instants[:CIW_REQUESTS]
    contestants: dict[str, tuple[int, Callable[[], Any]]] = {
        "gateway": (len(instants), lambda: simulate(settings, mixed, gpus=gpus).report()),
        "fast": (len(instants), lambda: fast.run(instants, gpus=gpus)),
        "naive_simpy": (len(instants), lambda: naive_simpy(instants, gpus)),
        "ciw": (len(few), lambda: ciw_seats(few, gpus)),
    }
    missing = _missing("ciw")
    if missing:
        del contestants["ciw"]
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, (count, contestant) in contestants.items():
            took, results[name] = timed(contestant)
            rates[name].append(count / took)
    return _report(rates, results, missing, {"rate": rate, "gpus": gpus, "seconds": seconds})


def _report(
    rates: dict[str, list[float]],
    results: dict[str, Any],
    missing: str | None,
    load: dict[str, Any],
) -> dict[str, Any]:
    speed = {name: median(values) for name, values in rates.items()}
    peers = [name for name in ("naive_simpy", "ciw") if name in speed]
    return {
        "load": load,
        "requests_per_s": {name: round(value) for name, value in speed.items()},
        "ratios": {
            f"{ours}/{peer}": round(speed[ours] / speed[peer], 1)
            for peer in peers
            for ours in ("gateway", "fast")
        },
        "p95_ms": {name: result["latency_ms"]["p95"] for name, result in results.items()},
        "rounds": {name: [round(value) for value in values] for name, values in rates.items()},
        "skipped": {"ciw": missing} if missing else {},
        "python": platform.python_version(),
    }


def _missing(module: str) -> str | None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        return f"{module} is not installed: pip install 'labkit[peers]'"
    return None


if __name__ == "__main__":
    json.dump(measure(), sys.stdout, indent=2)
    print()
