"""SIGTERM and SIGINT as values in a queue, so that a command ends in order at whatever it is."""

import signal
from queue import Empty, SimpleQueue
from typing import Any, Self


class Signals:
    """Catches both inside its `with` block; the second that comes ends the process at once.

    A handler runs between any two lines of the main thread, so it may take no lock that this
    thread might hold: `SimpleQueue.put` is the one way of telling that is made for it.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[int] = SimpleQueue()
        self._came = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *why: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: Any) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True
        self._told.put(number)

    def wake(self) -> None:
        """Let `wait` return 0; from any thread."""
        self._told.put(0)

    def wait(self) -> int:
        """The signal that came, or 0 for a `wake`; each is told once."""
        while True:
            # Not every platform lets a signal interrupt a wait without an end.
            try:
                return self._told.get(timeout=1.0)
            except Empty:
                continue
