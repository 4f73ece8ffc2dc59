"""What a shell needs of a pool of GPUs, whoever plays them: processes, or timers in one process."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from labkit.core.messages import Result
from labkit.core.units import MS, S
from labkit.live.kinds import echo


class State(StrEnum):
    """What a GPU's process is doing, as far as its parent knows."""

    STARTING = "starting"
    READY = "ready"
    LOST = "lost"
    BROKEN = "broken"


class Listener(Protocol):
    """Hears from the fleet, on the loop's thread; of an incarnation that is over only `done`."""

    def joined(self, gpu: int) -> None:
        """The GPU is up and has answered its self-test."""

    def lost(self, gpu: int, why: str) -> None:
        """The GPU died by itself; it is on its way back."""

    def pieces(self, batch_id: int, pieces: Sequence[str | None]) -> None:
        """The next piece of each row of a batch that goes on; only some kinds of worker tell."""

    def done(self, batch_id: int, result: Result, raw_us: int) -> None:
        """A batch came back, perhaps of an incarnation that was fenced; `raw_us` of computing."""

    def broken(self, gpu: int, why: str) -> None:
        """The GPU cannot be brought up, and nobody tries any more."""


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU for a snapshot: `pid` is None for a GPU that is no process."""

    state: State
    pid: int | None
    restarts: int
    facts: dict[str, Any]


class Fleet(Protocol):
    """GPUs by number from 0; every method but `view` and `close` is called on the loop's thread."""

    gpus: int

    def open(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        """Bring every GPU up; `joined` follows for each."""

    def depart(self, gpu: int, batch_id: int, prompts: list[str]) -> None:
        """Start a batch; never blocks."""

    def restart(self, gpu: int) -> None:
        """Fence this incarnation, end it, bring up the next; `joined` follows, `lost` does not."""

    def kill(self, gpu: int) -> None:
        """End it from outside, as an accident would; `lost` follows when that is noticed."""

    def inject(self, gpu: int, verb: str, *arguments: float) -> None:
        """`hang` for some seconds, `straggle` by a factor, or `poison` its context."""

    def hear(self) -> None:
        """Pass on what the GPUs have said by now, which the loop has not come to yet."""

    def view(self, gpu: int) -> GpuView:
        """What to show; from any thread."""

    def close(self) -> None:
        """Leave no process and no thread; called from outside the loop's thread, blocks."""


def dealt(batch_time: int | Sequence[int], gpus: int) -> list[int]:
    """The batch time of each GPU, microseconds: one for all, or dealt in turn as models are."""
    times = [batch_time] if isinstance(batch_time, int) else batch_time
    return [times[gpu % len(times)] for gpu in range(gpus)]


class FakeFleet:
    """GPUs that are timers on the loop: for rates that no two cores could push through pipes.

    `batch_time` (see `dealt`), `restart_time` and `death_notice` in microseconds. A fenced fake GPU
    still finishes what it has, like a real one that could not be ended: its answer comes late.
    """

    def __init__(
        self,
        gpus: int,
        batch_time: int | Sequence[int] = 100 * MS,
        function: Callable[[list[str]], Sequence[Any]] = echo,
        restart_time: int = 30 * MS,
        death_notice: int = 10 * MS,
    ) -> None:
        self.gpus = gpus
        self.batch_times = dealt(batch_time, gpus)
        self.function = function
        self.restart_time = restart_time / S
        self.death_notice = death_notice / S
        self._incarnations = [0] * gpus
        self._states = [State.STARTING] * gpus
        self._factors = [1.0] * gpus
        self._hangs = [0.0] * gpus
        self._alive = [True] * gpus

    def open(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        """Every GPU joins at once."""
        self._loop = loop
        self._listener = listener
        for gpu in range(self.gpus):
            self._join(gpu, 0)

    def depart(self, gpu: int, batch_id: int, prompts: list[str]) -> None:
        """One timer a batch."""
        if not self._alive[gpu]:
            return
        delay = self.batch_times[gpu] / S * self._factors[gpu] + self._hangs[gpu]
        self._hangs[gpu] = 0.0
        self._loop.call_later(delay, self._done, gpu, self._incarnations[gpu], batch_id, prompts)

    def restart(self, gpu: int) -> None:
        """The next incarnation joins after `restart_time`; the old one still finishes."""
        self._states[gpu] = State.LOST
        self._incarnations[gpu] += 1
        self._loop.call_later(self.restart_time, self._join, gpu, self._incarnations[gpu])

    def kill(self, gpu: int) -> None:
        """Dead at once, noticed after `death_notice`."""
        if self._alive[gpu] and self._states[gpu] is State.READY:
            self._alive[gpu] = False
            self._loop.call_later(self.death_notice, self._lost, gpu, self._incarnations[gpu])

    def inject(self, gpu: int, verb: str, *arguments: float) -> None:
        """As the worker processes do; a poisoned fake GPU dies."""
        if verb == "hang":
            self._hangs[gpu] = arguments[0]
        elif verb == "straggle":
            self._factors[gpu] = arguments[0]
        else:
            self.kill(gpu)

    def hear(self) -> None:
        """A fake GPU speaks on the loop alone."""

    def view(self, gpu: int) -> GpuView:
        """A fake GPU has no process."""
        return GpuView(self._states[gpu], None, self._incarnations[gpu], {"device": "fake"})

    def close(self) -> None:
        """Nothing to end."""

    def _join(self, gpu: int, incarnation: int) -> None:
        if incarnation == self._incarnations[gpu]:
            self._states[gpu] = State.READY
            self._alive[gpu] = True
            self._factors[gpu], self._hangs[gpu] = 1.0, 0.0
            self._listener.joined(gpu)

    def _lost(self, gpu: int, incarnation: int) -> None:
        if incarnation == self._incarnations[gpu]:
            self._listener.lost(gpu, "killed")
            self.restart(gpu)

    def _done(self, gpu: int, incarnation: int, batch_id: int, prompts: list[str]) -> None:
        if self._alive[gpu] or incarnation != self._incarnations[gpu]:
            self._listener.done(batch_id, self.function(prompts), self.batch_times[gpu])
