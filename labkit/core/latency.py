"""The latency ledger: where each request's time went, adding up to the microsecond."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from labkit.core.messages import Answer, Depart, End, Outcome, Stop
from labkit.core.trace import Step

WAITING, GPU, LOST = "waiting", "gpu", "lost"
"""Queued or bound to a busy GPU; on a GPU that answered; on a GPU that did not."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch of a request's life, in microseconds."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Account:
    """One request's stages, each starting where the one before ended; `outcome` once it has one."""

    request_id: int
    arrived_at: int
    stages: list[Stage] = field(default_factory=list)
    outcome: Outcome | None = None
    ended_at: int | None = None

    def spent(self, name: str) -> int:
        """Microseconds spent in one kind of stage."""
        return sum(stage.end - stage.start for stage in self.stages if stage.name == name)

    def close_stage(self, name: str, now: int) -> None:
        """What lies between the last stage and now was of this kind."""
        start = self.stages[-1].end if self.stages else self.arrived_at
        self.stages.append(Stage(name, start, now))


class Ledger:
    """Reads a trace's steps and keeps an account of every request."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.accounts: dict[int, Account] = {}
        self._riding: dict[int, dict[int, None]] = {}
        self._batch_on: dict[int, int] = {}
        for step in steps:
            self.enter(step)

    def enter(self, step: Step) -> None:
        """Enter one step; what rode on a batch that ended without its answer has lost that time."""
        if step.verb == "arrive":
            request = step.args[0]
            self.accounts[request.id] = Account(request.id, request.arrived_at)
        for command in step.commands:
            if isinstance(command, Answer):
                for row in command.rows:
                    self._end(row.id, GPU, Outcome.ANSWERED, step.now)
            elif isinstance(command, End):
                riding = any(command.request_id in rows for rows in self._riding.values())
                self._end(
                    command.request_id, LOST if riding else WAITING, command.outcome, step.now
                )
            elif isinstance(command, Stop):
                self._lost_on(command.gpu, step.now)
        if step.verb == "finish":
            self._lost(step.args[0], step.now)
        elif step.verb in ("lose", "join"):
            self._lost_on(step.args[0], step.now)
        for command in step.commands:
            if isinstance(command, Depart):
                self._depart(command, step.now)

    def _depart(self, command: Depart, now: int) -> None:
        self._riding[command.batch_id] = {row.id: None for row in command.rows}
        for gpu in command.gpus:
            self._batch_on[gpu] = command.batch_id
        for row in command.rows:
            self.accounts[row.id].close_stage(WAITING, now)

    def _end(self, request_id: int, stage: str, outcome: Outcome, now: int) -> None:
        account = self.accounts.get(request_id)
        if account is None:
            return
        account.close_stage(stage, now)
        account.outcome, account.ended_at = outcome, now
        for rows in self._riding.values():
            rows.pop(request_id, None)

    def _lost_on(self, gpu: int, now: int) -> None:
        if gpu in self._batch_on:
            self._lost(self._batch_on.pop(gpu), now)

    def _lost(self, batch_id: int, now: int) -> None:
        for request_id in self._riding.pop(batch_id, ()):
            self.accounts[request_id].close_stage(LOST, now)
