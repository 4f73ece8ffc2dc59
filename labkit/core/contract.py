"""The scheduler contract: the verbs by which a shell tells the core what happened."""

from collections.abc import Sequence
from typing import Protocol

from labkit.core.messages import Command, Request, Result


class Scheduler(Protocol):
    """Anything a shell can drive.

    A shell has three duties: tell (call the verb for what happened), obey (carry out every
    command), and arm one timer at `due_at`. Instants are integer microseconds; `now` never
    decreases. Of what happens at one instant the shell tells finish, join, lose, cancel and
    arrive first, in that order, and calls `advance` last.
    """

    due_at: int
    """When `advance` has work next, already past if it has work now; `NEVER` if it has none."""

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """A request came; () when it is queued. May only lower `due_at`."""

    def cancel(self, request_id: int, now: int) -> Sequence[Command]:
        """Nobody waits for this request any more."""

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """A batch came back; an unknown or fenced batch is dropped and counted."""

    def join(self, gpu: int, version: str | None, now: int) -> Sequence[Command]:
        """A GPU is up: loaded with `version` and self-tested, or empty hardware when None."""

    def lose(self, gpu: int, now: int) -> Sequence[Command]:
        """A GPU is gone; what it held is requeued."""

    def drain(self, gpu: int, now: int) -> Sequence[Command]:
        """No new work for this GPU; `Stop` follows when it is empty."""

    def advance(self, now: int) -> Sequence[Command]:
        """Do all that is due at `now`; afterwards `due_at` is later than `now`."""
