"""Python's garbage collector, tuned for thousands of requests in flight.

With its usual thresholds the collector walks every waiting request again and again, and that is
the bottleneck of a live layer. What exists at the start is set aside; the rest is walked rarely.
"""

import gc

THRESHOLDS = (200_000, 50, 100)


class TunedCollector:
    """Tunes the collector when made; `restore` puts it back as it was."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._froze = gc.get_freeze_count() == 0
        gc.collect()
        if self._froze:
            gc.freeze()
        gc.set_threshold(*THRESHOLDS)

    def restore(self) -> None:
        """As before; what others froze stays frozen."""
        gc.set_threshold(*self._before)
        if self._froze:
            gc.unfreeze()
