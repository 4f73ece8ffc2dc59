"""Keeping the hundred milliseconds: wait out the rest of a batch, and count those that were late.

Clock and sleep are handed in; standard library only, so that workers without torch pace
themselves with the same code.
"""

from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
Sleep = Callable[[float], None]

SPIN_S = 0.001
"""The last stretch is spun: a sleeping thread is woken late, by up to a millisecond."""


def wait_until(instant: float, clock: Clock, sleep: Sleep) -> None:
    """Sleep until a millisecond before the instant, then spin; both in seconds of `clock`."""
    rest = instant - clock()
    if rest > SPIN_S:
        sleep(rest - SPIN_S)
    while clock() < instant:
        pass


@dataclass(slots=True)
class Timings:
    """What the batches of one worker took, in milliseconds.

    `raw_ms` is the computation alone, `padded_ms` what the caller waited; `violations` counts
    batches whose raw time was over the contract: they are answered late, never cut short.
    """

    contract_ms: float = 100.0
    batches: int = 0
    violations: int = 0
    raw_ms: float = 0.0
    padded_ms: float = 0.0

    def note(self, raw_ms: float, padded_ms: float) -> None:
        """Enter one batch."""
        self.batches += 1
        self.violations += raw_ms > self.contract_ms
        self.raw_ms, self.padded_ms = raw_ms, padded_ms
