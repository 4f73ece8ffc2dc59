"""The engine behind the front door: lists of prompts, streamed pieces, a count of what departs."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Protocol

from labkit.core.door import Render
from labkit.core.idempotency import Key, KeyLedger
from labkit.core.messages import BatchError, Depart, Request, Result
from labkit.core.settings import Settings
from labkit.live.fleet import Fleet
from labkit.live.keyed import KeyedEngine, KeyedShell, KeyedSink
from labkit.live.ledger import Journal, MemoryJournal

RECEIPTS = 200


class Stream(Protocol):
    """Hears of one request while it is on its GPU; must not raise."""

    def piece(self, request_id: int, text: str) -> None:
        """The next words."""

    def lost(self, code: str) -> None:
        """What computed it failed: one that has begun ends here, withdrawn; another goes on."""


class DeskShell(KeyedShell):
    """A keyed shell that also hears pieces (`streams[id]`) and counts what departs.

    `receipts` are those of the last batches; `departed` counts all by model, `reasons` by model
    and reason; `aboard` counts requests that went to a GPU, and `returned` by model those that
    came back from one. `boarded`, unless None, is told when each request last went; whoever asks
    for it takes them out again.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.streams: dict[int, Stream] = {}
        self.aboard = 0
        self.returned: Counter[str] = Counter()
        self._ending = False
        self.receipts: deque[tuple[int, Depart]] = deque(maxlen=RECEIPTS)
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.departed: Counter[str] = Counter()
        self.boarded: dict[int, int] | None = None

    @property
    def batches(self) -> int:
        """How many departed, of all models."""
        return self.departed.total()

    def submit(
        self, requests: Sequence[Request], key: Key | None, fingerprint: bytes, hear: KeyedSink
    ) -> None:
        """A call of one or more requests, all let in or none.

        Without a key `hear` is told of each; with one it is told once, under the first one's id.
        """
        sink: Any = hear
        if key is None:
            self.open.update((request.id, sink) for request in requests)
        try:
            self.call(requests, key, fingerprint, hear)
        except BaseException:
            for request in requests:
                self.open.pop(request.id, None)
            raise

    def end_streams(self, gpu: int, code: str) -> None:
        """End those that have begun on this GPU, before the scheduler hears of their batch.

        A second try may say other words, so these are withdrawn and it computes them for nobody.
        """
        depart = self.on_gpu.get(gpu)
        if depart is None or not self.streams:
            return
        # A withdrawal lets nothing fall due, or each of a hundred would end within the one before.
        self._ending = True
        try:
            for row in depart.rows:
                stream = self.streams.get(row.id)
                if stream is not None:
                    stream.lost(code)
        finally:
            self._ending = False

    def pieces(self, batch_id: int, pieces: Sequence[str | None]) -> None:
        """The next piece of each row of a batch that is still on its GPU; None for no piece."""
        gpu = self._gpu_of.get(batch_id)
        if gpu is None or not self.streams:
            return
        for row, piece in zip(self.on_gpu[gpu].rows, pieces, strict=True):
            stream = self.streams.get(row.id)
            if stream is not None and piece:
                stream.piece(row.id, piece)

    def done(self, batch_id: int, result: Result, raw_us: int) -> None:
        """See `Listener`; counts what comes back from a GPU that is not fenced."""
        gpu = self._gpu_of.get(batch_id)
        if gpu is not None:
            rows = self.on_gpu[gpu].rows
            aboard = len(rows)
            if isinstance(result, BatchError):
                # One that raises alone has failed, and the scheduler says so.
                if aboard > 1:
                    self.end_streams(gpu, "batch_failed")
            else:
                self.returned[rows[0].model] += aboard
                if len(result) != aboard:
                    self.end_streams(gpu, "gpu_lost")
        super().done(batch_id, result, raw_us)

    def _before_due(self, now: int) -> int:
        """A batch that is overdue is about to be given to another GPU, without these streams."""
        ended: set[int] = set()
        while self.streams and (overdue := self._overdue(now) - ended):
            for gpu in overdue:
                self.end_streams(gpu, "gpu_lost")
            ended |= overdue
            # The scheduler's time never goes back, and it was told of withdrawals meanwhile.
            now = self.time()
        return now

    def _held_up(self, now: int) -> bool:
        return self._ending or super()._held_up(now)

    def _depart(self, depart: Depart, now: int) -> None:
        self.aboard += len(depart.rows)
        model = depart.rows[0].model
        self.departed[model] += 1
        self.reasons[model, depart.receipt.reason] += 1
        if self.boarded is not None:
            self.boarded.update((row.id, now) for row in depart.rows)
        self.receipts.append((now, depart))
        super()._depart(depart, now)


class DeskEngine(KeyedEngine):
    """A keyed engine whose shell is a `DeskShell`; what breaks on one connection stays there."""

    shell: DeskShell
    shell_type = DeskShell

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        *,
        render: Render,
        loop: asyncio.AbstractEventLoop,
        journal: Journal | None = None,
        seed: int = 0,
        ring: int | None = None,
    ) -> None:
        super().__init__(
            settings,
            fleet,
            seed=seed,
            ring=ring,
            loop=loop,
            journal=journal or MemoryJournal(),
            keys=KeyLedger(),
            render=render,
        )

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.keys() & {"transport", "protocol", "socket"}:
            loop.default_exception_handler(context)
            return
        super()._failed(loop, context)
