"""Replies that callers wait for, handed over on a thread of their own.

A callback on a reply runs on that thread: however slow it is, it delays replies, never a ferry.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from labkit.core.messages import End, Outcome, Output
from labkit.live.errors import error_of

logger = logging.getLogger(__name__)

Concluded = tuple[int, Output | End]


class Reply(Future[str]):
    """The reply to one prompt: a future whose `cancel` also withdraws the request.

    In a coroutine: `await asyncio.wrap_future(reply)`.
    """

    def __init__(self, request_id: int, owner: "Replies") -> None:
        super().__init__()
        self.request_id = request_id
        self._owner = owner

    def _invoke_callbacks(self) -> None:
        """As `Future` does, but no callback can end the thread that hands replies over."""
        for callback in self._done_callbacks:  # type: ignore[attr-defined]
            try:
                callback(self)
            except BaseException:
                logger.exception("a callback of the reply to request %d raised", self.request_id)

    def cancel(self) -> bool:
        """Withdraw the request; False when it has its outcome already."""
        if not super().cancel():
            return False
        if self._owner.forget(self.request_id):
            self.set_running_or_notify_cancel()
            self._owner.withdraw(self.request_id)
        return True

    def conclude(self, outcome: Output | End) -> None:
        """Set the outcome, unless the caller has given the reply up."""
        if not (self._owner.forget(self.request_id) and self.set_running_or_notify_cancel()):
            return
        if isinstance(outcome, End):
            self.set_exception(error_of(outcome))
        else:
            self.set_result(outcome)


class Replies:
    """Every reply that has no outcome yet, and the thread that hands outcomes over.

    `withdraw(request_id)` is called when a caller cancels.
    """

    def __init__(self, withdraw: Callable[[int], None]) -> None:
        self.withdraw = withdraw
        self._open: dict[int, Reply] = {}
        self._noted: list[Concluded] = []
        self._over = False
        self._handed: SimpleQueue[list[Concluded] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._hand_over, name="labkit-replies", daemon=True)

    @property
    def open(self) -> int:
        """How many replies are out."""
        return len(self._open)

    def start(self) -> None:
        """Begin to hand over."""
        self._thread.start()

    def new(self, request_id: int) -> Reply:
        """A reply that will get exactly one outcome, at once when it comes too late for another."""
        reply = self._open[request_id] = Reply(request_id, self)
        if self._over:
            self._end(reply)
        return reply

    def note(self, request_id: int, outcome: Output | End) -> bool:
        """Keep an outcome for the next `flush`; True when it is the first since the last one."""
        self._noted.append((request_id, outcome))
        return len(self._noted) == 1

    def flush(self) -> None:
        """Hand over all that was noted, in one piece."""
        self._handed.put(self._noted)
        self._noted = []

    def forget(self, request_id: int) -> bool:
        """This reply has its outcome; True for the one caller who may set it."""
        return self._open.pop(request_id, None) is not None

    def stop(self) -> None:
        """Hand over what is left; whoever has no outcome then is told that the engine stopped."""
        if self._thread.is_alive():
            if self._noted:
                self.flush()
            self._handed.put(None)
            if threading.current_thread() is not self._thread:
                self._thread.join()
        # First this, so that no reply comes in unseen behind the last look.
        self._over = True
        for reply in list(self._open.values()):
            self._end(reply)

    @staticmethod
    def _end(reply: Reply) -> None:
        reply.conclude(End(reply.request_id, Outcome.FAILED, "engine_stopped"))

    def _hand_over(self) -> None:
        while (concluded := self._handed.get()) is not None:
            for request_id, outcome in concluded:
                reply = self._open.get(request_id)
                if reply is not None:
                    reply.conclude(outcome)
