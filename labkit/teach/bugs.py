"""Gateways that are wrong in one way each: the classes behind the zoo."""

from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.batching import Bank, FerryRule
from labkit.core.dispatch import Pool, Rng, Slot
from labkit.core.gateway import Gateway
from labkit.core.mapping import Batch
from labkit.core.messages import (
    Answer,
    BatchError,
    Command,
    Depart,
    End,
    Outcome,
    Request,
    Result,
    RowError,
)
from labkit.core.queues import FairQueue
from labkit.core.settings import Settings
from labkit.core.units import NEVER

# -- when a batch leaves --------------------------------------------------------------------------


class _StaleRule(FerryRule):
    timer: int | None = None

    def due_at(self, bank: Bank) -> int:
        if not bank.depth or bank.depth >= self.max_batch:
            return bank.oldest_at
        if self.timer is None:
            self.timer = bank.oldest_at + self.max_wait
        return self.timer


class _RuleGateway(Gateway):
    """A gateway whose rule, one a model, is told what it should not need to know."""

    make_rule: Callable[[int, int], FerryRule] = FerryRule

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        for replicas in self._serving.values():
            replicas.rule = type(self).make_rule(settings.max_batch, settings.max_wait)
            replicas.eager_at = 0


class StaleTimer(_RuleGateway):
    """A size flush leaves the timer running, and it cuts the next batch short."""

    make_rule = _StaleRule

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """See `Gateway.arrive`."""
        self._ring(now - 1)
        return super().arrive(request, now)

    def advance(self, now: int) -> Sequence[Command]:
        """See `Gateway.advance`."""
        commands = super().advance(now)
        self._ring(now)
        self._arm()
        return commands

    def _ring(self, now: int) -> None:
        for replicas in self._serving.values():
            rule = replicas.rule
            if isinstance(rule, _StaleRule) and rule.timer is not None and rule.timer <= now:
                rule.timer = None


class _SinceRule(FerryRule):
    """The window is counted from `since`, an instant somebody else sets."""

    since = 0

    def due_at(self, bank: Bank) -> int:
        if not bank.depth or bank.depth >= self.max_batch:
            return bank.oldest_at
        return self.since + self.max_wait


class RestartingTimer(_RuleGateway):
    """Every arrival starts the window again."""

    make_rule = _SinceRule

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """See `Gateway.arrive`."""
        rule = self._serving[request.model].rule
        if isinstance(rule, _SinceRule):
            rule.since = now
        commands = super().arrive(request, now)
        self._arm()
        return commands


class WindowAfterBatch(_RuleGateway):
    """The window is counted from the end of the batch before."""

    make_rule = _SinceRule

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """See `Gateway.finish`."""
        batch = self.mapping.batches.get(batch_id)
        if batch is not None and batch.gpu in self._model_of:
            rule = self._serving[self._model_of[batch.gpu]].rule
            if isinstance(rule, _SinceRule):
                rule.since = now
        return super().finish(batch_id, result, now)


class _LookRule(FerryRule):
    looked_at = 0

    def due_at(self, bank: Bank) -> int:
        if not bank.depth or bank.depth >= self.max_batch:
            return bank.oldest_at
        return max(bank.oldest_at, self.looked_at) + self.max_wait


class WindowAtLook(_RuleGateway):
    """The window opens when the loop comes round to look, not when the request came."""

    make_rule = _LookRule

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """See `Gateway.finish`."""
        for replicas in self._serving.values():
            if isinstance(replicas.rule, _LookRule):
                replicas.rule.looked_at = now
        return super().finish(batch_id, result, now)


class _TimerOnly(FerryRule):
    def due_at(self, bank: Bank) -> int:
        return bank.oldest_at + self.max_wait if bank.depth else NEVER


class FullWaits(_RuleGateway):
    """A full batch stays until the timer looks."""

    make_rule = _TimerOnly


class UnitSlip(_RuleGateway):
    """A window in milliseconds is handed to somebody who counts microseconds."""

    @staticmethod
    def make_rule(max_batch: int, max_wait: int) -> FerryRule:
        """The rule, with its window a thousand times too short."""
        return FerryRule(max_batch, max_wait // 1_000)


# -- who boards -----------------------------------------------------------------------------------


class _QueueGateway(Gateway):
    """A gateway whose bank is replaced."""

    make_queue: type[FairQueue] = FairQueue

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        for replicas in self._serving.values():
            replicas.queue = self.make_queue(replicas.queue.timeouts)


class _SeatsForFree(FairQueue):
    def take(self, seats: int) -> list[Request]:
        self._tiers = self._tiers[::-1]
        free = super().take((seats + 1) // 2)
        self._tiers = self._tiers[::-1]
        return free + super().take(seats - len(free))


class FreeBySlots(_QueueGateway):
    """Half the seats are filled from the free tier, whoever pays and waits."""

    make_queue = _SeatsForFree


class _OneLine(FairQueue):
    def push(self, request: Request) -> bool:
        own, request.tenant = request.tenant, ""
        matters = super().push(request)
        request.tenant = own
        return matters


class GlobalFifo(_QueueGateway):
    """One line for everybody: the tenant who sends most, gets most."""

    make_queue = _OneLine


class _Stack(FairQueue):
    def take(self, seats: int) -> list[Request]:
        self._turn_over()
        taken = super().take(seats)
        self._turn_over()
        return taken

    def _turn_over(self) -> None:
        for tier in self._tiers:
            for line in tier.lines.values():
                line.reverse()


class NewestFirst(_QueueGateway):
    """Of equals the one who came last boards first."""

    make_queue = _Stack


class _ToTheTail(FairQueue):
    def push_front(self, groups: Sequence[tuple[Sequence[Request], int]]) -> None:
        for rows, _ in groups:
            for row in rows:
                self.push(row)


class RequeueAtTail(_QueueGateway):
    """What was lost with a GPU goes to the end of the line."""

    make_queue = _ToTheTail


class SharedBank(Gateway):
    """Two models wait on one bank."""

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        shared = next(iter(self._serving.values())).queue
        for replicas in self._serving.values():
            replicas.queue = shared


# -- the door -------------------------------------------------------------------------------------


class OneTooMany(Gateway):
    """The limit is checked with "more than" where "as many as" was meant."""

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        for replicas in self._serving.values():
            replicas.limit.limits = tuple(limit + 1 for limit in replicas.limit.limits)


class ShedsTheFirst(Gateway):
    """Without a history the wait is estimated as endless, and the first request is refused."""

    history = 0

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """See `Gateway.arrive`."""
        self.history += 1
        if self.history == 1:
            return (End(request.id, Outcome.REJECTED, "queue_full"),)
        return super().arrive(request, now)


# -- leaving early --------------------------------------------------------------------------------


class CancelledComputed(Gateway):
    """A client that left is told so, and computed all the same."""

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        self.left: set[int] = set()

    def cancel(self, request_id: int, now: int) -> Sequence[Command]:
        """See `Gateway.cancel`."""
        if not self._waits(request_id) or request_id in self.left:
            return super().cancel(request_id, now) if request_id not in self.left else ()
        self.left.add(request_id)
        return (End(request_id, Outcome.CANCELLED, "client_left"),)


class CancelHangs(Gateway):
    """One client leaves mid-batch, and nobody of that batch ever hears anything."""

    def _fan_out(
        self, batch: Batch, result: Sequence[str | RowError], commands: list[Command]
    ) -> None:
        if not batch.gone:
            super()._fan_out(batch, result, commands)


class ExpiredOnGpu(Gateway):
    """A deadline also ends what a GPU is already computing."""

    def _expire(self, now: int, commands: list[Command]) -> None:
        super()._expire(now, commands)
        for batch in self.mapping.batches.values():
            queue = self._place(batch.gpu)[0].queue
            for row in batch.alive():
                if queue.expires_at(row) <= now:
                    self._withdraw(row.id)
                    commands.append(End(row.id, Outcome.EXPIRED, "deadline_exceeded"))


# -- what comes back ------------------------------------------------------------------------------


class CompletionOrder(Gateway):
    """Whatever comes back first answers whoever left first."""

    def _fan_out(
        self, batch: Batch, result: Sequence[str | RowError], commands: list[Command]
    ) -> None:
        for other in self.mapping.batches.values():
            earlier = other.departed_at < NEVER and other.id < batch.id
            if earlier and len(other.rows) == len(batch.rows):
                other.rows, batch.rows = batch.rows, other.rows
                break
        super()._fan_out(batch, result, commands)


class ZipShort(Gateway):
    """99 outputs for 100 requests: the first 99 are paired off and nobody asks which is missing."""

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """See `Gateway.finish`."""
        batch = self.mapping.batches.get(batch_id)
        if batch is not None and not isinstance(result, BatchError):
            missing = len(batch.rows) - len(result)
            result = [*result, *[RowError("no output")] * missing][: len(batch.rows)]
        return super().finish(batch_id, result, now)


class AllFail(Gateway):
    """One input raises, and the whole batch is refused."""

    def _bisect(
        self, replicas: Any, batch: Batch, error: BatchError, commands: list[Command]
    ) -> None:
        commands.extend(End(row.id, Outcome.FAILED, error.detail) for row in batch.alive())


class LateAccepted(Gateway):
    """A GPU given up for dead answers after all, and is believed."""

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        self.departed: dict[int, tuple[Request, ...]] = {}

    def advance(self, now: int) -> Sequence[Command]:
        """See `Gateway.advance`."""
        commands = super().advance(now)
        for command in commands:
            if isinstance(command, Depart):
                self.departed[command.batch_id] = command.rows
        return commands

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """See `Gateway.finish`."""
        rows = self.departed.pop(batch_id, ())
        if batch_id not in self.mapping.batches and not isinstance(result, BatchError) and rows:
            good = [(row, out) for row, out in zip(rows, result, strict=False) if type(out) is str]
            return (Answer(batch_id, tuple(r for r, _ in good), tuple(o for _, o in good)),)
        return super().finish(batch_id, result, now)


# -- a GPU is lost --------------------------------------------------------------------------------


class RetryTheDead(Gateway):
    """A lost GPU stays on the list, and looks idle."""

    def lose(self, gpu: int, now: int) -> Sequence[Command]:
        """See `Gateway.lose`."""
        model = self._model_of.get(gpu)
        commands = super().lose(gpu, now)
        if model is not None:
            self._model_of[gpu] = model
            self._serving[model].pool.add(Slot(gpu, now))
            self._arm()
        return commands


class PoisonStays(Gateway):
    """A lost batch is retried as it was, again and again."""

    def _retry(self, replicas: Any, batch: Batch, commands: list[Command]) -> None:
        if rows := batch.alive():
            self._push_front(replicas, [(rows, 0)])


class OneForgotten(Gateway):
    """Of a lost batch everyone is retried but the last."""

    def _retry(self, replicas: Any, batch: Batch, commands: list[Command]) -> None:
        batch.rows = batch.rows[:-1]
        super()._retry(replicas, batch, commands)


class DrainAccepts(Gateway):
    """A draining GPU is noted, and given the next batch all the same."""

    def drain(self, gpu: int, now: int) -> Sequence[Command]:
        """See `Gateway.drain`."""
        return ()


# -- where it goes --------------------------------------------------------------------------------


class _TurnPool(Pool):
    last = -1

    def _next(self) -> Slot | None:
        slots = [slot for slot in self.slots.values() if not slot.draining]
        return next((s for s in slots if s.gpu > self.last), slots[0] if slots else None)

    def look(self) -> None:
        slot = self._next()
        self.open = slot is not None and slot.has_room(self.backlog)

    def pick(self) -> Slot:
        slot = self._next()
        assert slot is not None
        self.last = slot.gpu
        return slot


class StuckTurn(Gateway):
    """The next batch waits for the GPU whose turn it is, though another is idle."""

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings, rng)
        for replicas in self._serving.values():
            replicas.pool = _TurnPool(replicas.pool.chooser, settings.backlog)


class FormedEarly(Gateway):
    """The next batch is formed and bound while every GPU is still busy."""

    def __init__(self, settings: Settings, rng: Rng | None = None) -> None:
        super().__init__(settings.with_(backlog=1), rng)
