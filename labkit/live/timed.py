"""Worker processes with a stopwatch: what a batch took to compute, beside what it took in all."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.core.books import summary
from labkit.core.messages import Result
from labkit.core.units import S
from labkit.live.fleet import Listener
from labkit.live.workers import ProcessFleet

KEPT = 10_000


class TimedFleet(ProcessFleet):
    """A `ProcessFleet` that keeps (raw, padded) of its last batches, in microseconds.

    Raw is computing alone, by the worker's own clock; padded is from departure until the result
    is back, which the contract wants to be constant.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        batch_time: int | Sequence[int],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(kinds, batch_time, options)
        self._timings: deque[tuple[int, int]] = deque(maxlen=KEPT)
        self._departed: dict[int, tuple[int, float]] = {}

    def open(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        """As any fleet; what is heard of a batch is noted before it is passed on."""
        super().open(loop, _Noting(listener, self._note))

    def depart(self, gpu: int, batch_id: int, prompts: list[str]) -> None:
        """As any fleet, by the clock."""
        self._departed[gpu] = batch_id, time.monotonic()
        super().depart(gpu, batch_id, prompts)

    def timings(self) -> dict[str, dict[str, float | None]]:
        """`raw_ms` and `padded_ms`: mean, percentiles and maximum over the last batches."""
        kept = list(self._timings)
        return {
            "raw_ms": summary(raw for raw, _ in kept),
            "padded_ms": summary(padded for _, padded in kept),
        }

    def _note(self, batch_id: int, raw_us: int) -> None:
        for departed, at in self._departed.values():
            if departed == batch_id:
                self._timings.append((raw_us, round(S * (time.monotonic() - at))))


class _Noting:
    """A listener that notes finished batches and passes everything on."""

    def __init__(self, listener: Listener, note: Callable[[int, int], None]) -> None:
        self.joined, self.lost, self.broken = listener.joined, listener.lost, listener.broken
        self.pieces = listener.pieces
        self._listener, self._note = listener, note

    def done(self, batch_id: int, result: Result, raw_us: int) -> None:
        self._note(batch_id, raw_us)
        self._listener.done(batch_id, result, raw_us)
