"""How long requests took: the shape of one run, its percentiles, and the parts of its wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labkit.core.units import MS

Array = NDArray[np.int64]


class Batches(Protocol):
    """What a simulation hands back: `batches[i]` with `first`, `count`, `departed_at`, and when
    each returned (microseconds), in the order of the requests aboard."""

    batches: Sequence[Any]
    returned_at: Sequence[int]


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the four sliders stand: requests a second, GPUs, milliseconds, requests a batch."""

    rate: float
    gpus: int
    max_wait_ms: float
    max_batch: int

    def words(self) -> str:
        """The choice as a sentence's part."""
        boats = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return (
            f"{self.rate:,g} requests a second on {boats}, window {self.max_wait_ms:g} ms, "
            f"up to {self.max_batch} a batch"
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """One run under one choice: every latency sorted, and the parts of its P95 (microseconds)."""

    choice: Choice
    took: Array
    p50: int
    p95: int
    p99: int
    dock_p95: int
    batch_time: int
    mean_batch: float

    @property
    def carried(self) -> float:
        """The requests a second that so many GPUs can carry with full batches."""
        return self.choice.gpus * self.choice.max_batch * 1e6 / self.batch_time

    @property
    def grows(self) -> bool:
        """Whether more come than can ever be carried, so that the queue never ends."""
        return self.choice.rate >= self.carried


def shape_of(choice: Choice, instants: Sequence[int] | Array, run: Batches) -> Shape:
    """Every latency of a run, exact percentiles, and the part of the wait that is the rule's.

    A request waits at the dock until its batch is due: full, or the first aboard has waited
    `max_wait_ms`. What it waits after that, it waits for a GPU.
    """
    arrived = np.asarray(instants, dtype=np.int64)
    first, count, departed = (
        np.fromiter((getattr(batch, name) for batch in run.batches), np.int64, len(run.batches))
        for name in ("first", "count", "departed_at")
    )
    back = np.asarray(run.returned_at, dtype=np.int64)
    if len(back) != len(first) or int(count.sum()) != len(arrived):
        raise ValueError(
            f"the simulation moved {int(count.sum())} of {len(arrived)} requests in {len(first)} "
            f"batches with {len(back)} returns; hand back every batch once, in order"
        )
    full = arrived[np.minimum(first + count - 1, len(arrived) - 1)]
    due = arrived[first] + round(choice.max_wait_ms * MS)
    due = np.minimum(np.where(count == choice.max_batch, np.minimum(full, due), due), departed)
    took = np.sort(np.repeat(back, count) - arrived)
    docked = np.maximum(np.repeat(due, count) - arrived, 0)
    p50, p95, p99 = (int(took[_rank(percent, len(took))]) for percent in (50, 95, 99))
    at_dock = np.partition(docked, _rank(95, len(docked)))
    return Shape(
        choice=choice,
        took=took,
        p50=p50,
        p95=p95,
        p99=p99,
        dock_p95=int(at_dock[_rank(95, len(docked))]),
        batch_time=round(float((back - departed).mean())),
        mean_batch=len(arrived) / len(first),
    )


def _rank(percent: int, count: int) -> int:
    """The place of a percentile among so many sorted values, as the books rank it."""
    return max(ceil(percent * count / 100), 1) - 1
