"""The smallest shell: it moves when it is told the time, and a batch takes `batch_time`."""

import heapq
from collections.abc import Callable, Sequence
from itertools import groupby

from labkit.core.contract import Scheduler
from labkit.core.gateway import Gateway
from labkit.core.messages import Command, Depart, Request
from labkit.core.settings import Settings
from labkit.core.trace import Recorder, Trace
from labkit.core.units import NEVER

MakeGateway = Callable[[Settings], Scheduler]


class HandShell:
    """Drives a gateway by instants that somebody else measures, in microseconds.

    Its GPUs echo each prompt. An instant earlier than one already told counts as the latest, so
    that a clock that steps back does no harm.
    """

    def __init__(self, settings: Settings, gpus: int = 1, gateway: MakeGateway = Gateway) -> None:
        if gpus < 1:
            raise ValueError(f"gpus {gpus}: a dock needs at least 1")
        self.scheduler = Recorder(gateway(settings), settings)
        self.settings = settings
        self.now = 0
        self._returns: list[tuple[int, int, int]] = []
        self._aboard: dict[int, tuple[Request, ...]] = {}
        for gpu in range(gpus):
            self._obey(self.scheduler.join(gpu, settings.models[0], 0))

    @property
    def trace(self) -> Trace:
        """Everything told so far."""
        return self.scheduler.trace

    @property
    def due_at(self) -> int:
        """When something happens next without anybody's doing; `NEVER` if nothing does."""
        back = self._returns[0][0] if self._returns else NEVER
        return max(min(back, self.scheduler.due_at), self.now)

    def board(self, requests: list[Request], at: int) -> None:
        """These arrive at one instant, before the timer of that instant is looked at."""
        self.until(at - 1)
        self.now = max(at, self.now)
        self._finish()
        for request in requests:
            self._obey(self.scheduler.arrive(request, self.now))
        self._advance()

    def lose(self, gpu: int, at: int) -> None:
        """This GPU dies with what it holds."""
        self.until(at - 1)
        self.now = max(at, self.now)
        self._finish()
        self._returns = [back for back in self._returns if back[2] != gpu]
        heapq.heapify(self._returns)
        self._obey(self.scheduler.lose(gpu, self.now))
        self._advance()

    def until(self, at: int) -> None:
        """Let everything happen that is due up to and including this instant."""
        while self.due_at <= at:
            self.now = self.due_at
            self._finish()
            self._advance()
        self.now = max(at, self.now)

    def _finish(self) -> None:
        while self._returns and self._returns[0][0] <= self.now:
            _, batch_id, _ = heapq.heappop(self._returns)
            rows = self._aboard.pop(batch_id)
            self._obey(self.scheduler.finish(batch_id, [row.prompt for row in rows], self.now))

    def _advance(self) -> None:
        if self.scheduler.due_at <= self.now:
            self._obey(self.scheduler.advance(self.now))

    def _obey(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Depart):
                back_at = self.now + self.settings.batch_time
                heapq.heappush(self._returns, (back_at, command.batch_id, command.gpus[0]))
                self._aboard[command.batch_id] = command.rows


def run_by_hand(
    arrivals: list[int],
    settings: Settings,
    gpus: int = 1,
    gateway: MakeGateway = Gateway,
) -> Trace:
    """The trace of requests that arrive at these instants (microseconds), until all is quiet."""
    shell = HandShell(settings, gpus, gateway)
    for at, ids in groupby(range(len(arrivals)), key=lambda i: arrivals[i]):
        shell.board([Request(i, f"passenger {i}", at) for i in ids], at)
    while shell.due_at < NEVER:
        shell.until(shell.due_at)
    return shell.trace
