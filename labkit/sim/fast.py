"""The ferry rule at one step a batch, for sliders and sweeps.

Homogeneous traffic only (one model, one tier, one tenant, no faults) under pull: then a batch is
settled by two numbers, the instant the rule is satisfied and the instant a GPU is free, and nobody
needs to be told about single arrivals. It forms the very batches that the gateway forms.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heapreplace
from operator import sub
from time import perf_counter
from typing import Any, NamedTuple

from labkit.core.messages import Outcome
from labkit.core.settings import CONTRACT_MAX_BATCH
from labkit.core.units import MS, NEVER, S
from labkit.sim.durations import Group, durations
from labkit.sim.service import Fixed, ServiceTime, service_stream


class Batch(NamedTuple):
    """`count` requests from index `first` on left at `departed_at` (microseconds) on `gpu`."""

    first: int
    count: int  # type: ignore[assignment]  # a tuple has a method of that name
    departed_at: int
    gpu: int


class Crossings(NamedTuple):
    """All batches of one run, and the instants (microseconds) at which they came back."""

    batches: list[Batch]
    returned_at: list[int]


def batches(
    instants: Sequence[int],
    *,
    gpus: int,
    max_batch: int = CONTRACT_MAX_BATCH,
    max_wait: int = 50 * MS,
    service_time: int | ServiceTime = 100 * MS,
    seed: int = 0,
) -> list[Batch]:
    """The batches that arrivals at these ascending `instants` (microseconds) form."""
    return crossings(
        instants,
        gpus=gpus,
        max_batch=max_batch,
        max_wait=max_wait,
        service_time=service_time,
        seed=seed,
    ).batches


def crossings(
    instants: Sequence[int],
    *,
    gpus: int,
    max_batch: int = CONTRACT_MAX_BATCH,
    max_wait: int = 50 * MS,
    service_time: int | ServiceTime = 100 * MS,
    seed: int = 0,
) -> Crossings:
    """The same with the instant at which each batch came back.

    A batch is due when full or when its oldest request has waited `max_wait`, and leaves when a
    GPU is free as well; whoever has arrived by then, at that very instant included, boards.
    """
    _check(gpus, max_batch, max_wait)
    service = Fixed(service_time) if isinstance(service_time, int) else service_time
    constant = service.time if isinstance(service, Fixed) else None
    rng = service_stream(seed)
    # (idle since, number): the longest idle GPU is the first of the heap, of equals the lowest.
    idle = [(0, gpu) for gpu in range(gpus)]
    formed: list[Batch] = []
    returned: list[int] = []
    first, total = 0, len(instants)
    while first < total:
        free_at, gpu = idle[0]
        last = first + max_batch - 1
        full_at = instants[last] if last < total else NEVER
        departed_at = min(full_at, instants[first] + max_wait)
        if free_at > departed_at:
            departed_at = free_at
        if full_at <= departed_at:
            count = max_batch
        else:
            count = bisect_right(instants, departed_at, first, min(last, total)) - first
        took = constant or service(count, gpu, rng)
        formed.append(Batch(first, count, departed_at, gpu))
        returned.append(departed_at + took)
        heapreplace(idle, (departed_at + took, gpu))
        first += count
    return Crossings(formed, returned)


def run(
    instants: Sequence[int],
    *,
    gpus: int,
    max_batch: int = CONTRACT_MAX_BATCH,
    max_wait: int = 50 * MS,
    service_time: int | ServiceTime = 100 * MS,
    seed: int = 0,
    warm_up: int = 0,
    horizon: int = 0,
) -> dict[str, Any]:
    """The report of a whole run, with the keys of `Books.report`.

    Requests that arrived before `warm_up` count for batches and utilization, not for latency;
    GPU time is counted up to `horizon` or the last answer, whichever is later (microseconds).
    """
    started = perf_counter()
    formed, returned = crossings(
        instants,
        gpus=gpus,
        max_batch=max_batch,
        max_wait=max_wait,
        service_time=service_time,
        seed=seed,
    )
    waited, took = _summaries(instants, formed, returned, warm_up, service_time)
    end = max(horizon, max(returned, default=0))
    busy = sum(map(sub, returned, (batch.departed_at for batch in formed)))
    return {
        "requests": len(instants),
        **{outcome.value: 0 for outcome in Outcome},
        Outcome.ANSWERED.value: len(instants),
        "rejected_by": {},
        "latency_ms": took,
        "wait_ms": waited,
        "mean_batch": round(len(instants) / len(formed), 4) if formed else None,
        "batches": len(formed),
        "utilization": round(busy / (gpus * end), 6) if end else None,
        "horizon_s": end / S,
        "wall_s": round(perf_counter() - started, 3),
    }


Summary = dict[str, float | None]


def _summaries(
    instants: Sequence[int],
    formed: list[Batch],
    returned: list[int],
    warm_up: int,
    service_time: int | ServiceTime,
) -> tuple[Summary, Summary]:
    """The summaries of wait and of latency, of requests that arrived at `warm_up` or later."""
    begin = bisect_left(instants, warm_up) if warm_up else 0
    departures = [
        Group(departed_at, max(first, begin), first + count)
        for first, count, departed_at, _ in formed
        if first + count > begin
    ]
    waits = durations(instants, departures)
    if isinstance(service_time, int):
        return waits.shown(), waits.shown(longer=service_time)
    backs = returned[len(formed) - len(departures) :]
    landings = [
        Group(back, first, last) for back, (_, first, last) in zip(backs, departures, strict=True)
    ]
    return waits.shown(), durations(instants, landings).shown()


def _check(gpus: int, max_batch: int, max_wait: int) -> None:
    if gpus < 1:
        raise ValueError(f"gpus {gpus}: nothing moves without at least 1")
    if max_batch < 1:
        raise ValueError(f"max_batch {max_batch}: must be 1 or more")
    if max_wait < 0:
        raise ValueError(f"max_wait {max_wait} microseconds: must be 0 or more")
