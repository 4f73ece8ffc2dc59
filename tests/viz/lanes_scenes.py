"""Runs to draw as lanes: a hand-made one with a batch on eight GPUs, and simulated ones."""

from collections import deque
from typing import Any

from labkit.core.messages import Answer, Depart, Reason, Receipt, Request
from labkit.core.settings import Settings
from labkit.core.trace import Step, Trace
from labkit.core.units import MS
from labkit.sim.driver import simulate
from labkit.sim.faults import Death, Fault, Straggler
from labkit.workload.arrivals import poisson
from labkit.workload.streams import stream

RECEIPT = Receipt(Reason.TIMER, 0, None, (0,), (None,))
GANG = Receipt(Reason.GANG, 0, None, (0,), (None,))

Batch = tuple[int, int, int]
"""Start and end in milliseconds, and how many are aboard."""

BEFORE: dict[int, list[Batch]] = {
    0: [(0, 100, 84), (102, 198, 91)],
    1: [(0, 68, 77), (70, 168, 100)],
    2: [(18, 116, 100), (118, 216, 97)],
    3: [(0, 36, 50), (38, 132, 88), (135, 238, 100)],
    4: [(8, 108, 64)],
    5: [(0, 88, 100), (90, 188, 72)],
    6: [(44, 142, 100)],
    7: [(22, 120, 100), (122, 222, 100)],
}
AFTER: dict[int, Batch] = {
    gpu: (338, 438, size) for gpu, size in enumerate((100, 62, 41, 90, 55, 80, 33, 100))
}


class Script:
    """A trace written down by hand; instants in milliseconds."""

    def __init__(self, gpus: int) -> None:
        self._steps: list[tuple[int, int, Step]] = []
        self._ids = self._batches = 0
        for gpu in range(gpus):
            self.verb(0, "join", gpu, "v1")

    def verb(self, at: int, verb: str, *args: Any, order: int = 0) -> None:
        """One call that makes the scheduler do nothing."""
        self._steps.append((at, order, Step(at * MS, verb, args)))

    def batch(self, gpus: tuple[int, ...], batch: Batch, asked: int, model: str = "ferry") -> None:
        """So many requests ask at one instant, and cross together."""
        start, end, size = batch
        self._batches += 1
        ids = range(self._ids, self._ids + size)
        rows = tuple(Request(i, arrived_at=asked * MS, model=model) for i in ids)
        self._ids += size
        for row in rows:
            self.verb(asked, "arrive", row, order=2)
        depart = Depart(self._batches, gpus, rows, RECEIPT if len(gpus) == 1 else GANG)
        outputs = ("",) * size
        answer = Answer(self._batches, rows, outputs)
        self._steps.append((start, 3, Step(start * MS, "advance", (), (depart,))))
        finish = Step(end * MS, "finish", (self._batches, outputs), (answer,))
        self._steps.append((end, 1, finish))

    def trace(self) -> Trace:
        """Everything in the order of time; at one instant a finish comes before a departure."""
        ordered = sorted(self._steps, key=lambda row: row[:2])
        return Trace(Settings(), steps=deque(step for _, _, step in ordered))


def eight_at_once() -> Trace:
    """Small batches on eight GPUs; a large one asks at 110 ms and has all of them at 238 ms."""
    script = Script(8)
    for gpu, batches in BEFORE.items():
        for batch in batches:
            script.batch((gpu,), batch, asked=max(batch[0] - 40, 0))
    script.batch(tuple(range(8)), (238, 338, 12), asked=110, model="large")
    for gpu, batch in AFTER.items():
        script.batch((gpu,), batch, asked=batch[0] - 30)
    return script.trace()


def simulated(
    rate: float = 2_500, seconds: float = 0.6, gpus: int = 8, faults: tuple[Fault, ...] = ()
) -> Trace:
    """A short run of the gateway under the virtual clock."""
    instants = poisson(rate, seconds, stream(1, "arrivals"))
    requests = [Request(i, arrived_at=at) for i, at in enumerate(instants)]
    run = simulate(Settings(), requests, gpus=gpus, faults=faults, trace=True)
    assert run.trace is not None
    return run.trace


def with_faults() -> Trace:
    """GPU 3 dies with its batch, and GPU 5 is slow."""
    death = Death(3, at=160 * MS, detected_after=20 * MS, back_after=200 * MS)
    return simulated(faults=(death, Straggler(5, 1.6)))
