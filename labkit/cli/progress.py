"""One line on a terminal about work that takes long."""

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO


class Progress:
    """A line on a terminal about work that has taken over two seconds: share, rate, time left.

    `with Progress(total, "requests") as progress: progress.at(done)`. `clock` tells seconds.
    """

    def __init__(
        self,
        total: float,
        unit: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float = 2.0,
    ) -> None:
        self.total = total
        self.unit = unit
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self.started_at = clock()
        self.due_at = self.started_at + patience if self.stream.isatty() else float("inf")
        self.shown = False

    def __enter__(self) -> Self:
        """Nothing is shown yet."""
        return self

    def at(self, done: float) -> None:
        """Say how much is done, in `unit`; cheap when no line is due."""
        now = self.clock()
        if now < self.due_at or not done:
            return
        self.due_at = now + 0.25
        rate = done / (now - self.started_at)
        left = max(self.total - done, 0) / rate
        share = min(done / self.total, 1) if self.total else 1
        line = f"{share:4.0%}  {done:,.0f} {self.unit}  {rate:,.0f}/s  {left:.0f} s left"
        self.stream.write(f"\r{line[:78]:<78}")
        self.stream.flush()
        self.shown = True

    def __exit__(self, *_: object) -> None:
        """Wipe the line, so that what follows starts on a clean one."""
        if self.shown:
            self.stream.write(f"\r{'':<78}\r")
            self.stream.flush()
