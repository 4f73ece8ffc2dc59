"""The gateway: one request's whole way, from its arrival to its one outcome."""

from collections import Counter
from collections.abc import Sequence

from labkit.core.admission import DepthLimit
from labkit.core.batching import Rule, rule_from
from labkit.core.dispatch import Chooser, Pool, Rng, Slot, chooser_from
from labkit.core.expiry import Deadlines, Overdue
from labkit.core.mapping import MAX_LOSSES, Batch, MappingTable, after_loss, after_raise
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
    Stop,
)
from labkit.core.queues import FairQueue
from labkit.core.replicas import Replicas
from labkit.core.settings import CONTRACT_MAX_BATCH, ConfigError, Settings
from labkit.core.units import NEVER, NOW, show_ms


class Gateway:
    """Decides everything between the door and the GPUs, and is told the time.

    Implements `labkit.core.contract.Scheduler`; instants and durations are microseconds. No batch
    is formed while no GPU has room for it, so nobody is ever stuck behind a batch already formed.
    A custom `rule` or `chooser` replaces the one the settings name. `refused` counts requests that
    were not let in, by the code of their `End`; `late` results (of an epoch that is over) are
    dropped and counted.
    """

    def __init__(
        self,
        settings: Settings,
        rng: Rng | None = None,
        *,
        rule: Rule | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self.due_at = NEVER
        self.closing = False
        self.mapping = MappingTable()
        if rule is not None and not 1 <= rule.max_batch <= CONTRACT_MAX_BATCH:
            raise ConfigError(
                f"max_batch {rule.max_batch} of the rule: the contract takes 1 to "
                f"{CONTRACT_MAX_BATCH} strings a batch"
            )
        self.refused: Counter[str] = Counter()
        self._tiers = len(settings.tiers)
        shares = [tier.share for tier in settings.tiers]
        timeouts = [tier.timeout for tier in settings.tiers]
        self._serving = {
            model: Replicas(
                own := settings.of(model),
                DepthLimit.shared(own.depth_limit, shares),
                FairQueue(timeouts),
                rule or rule_from(own),
                Pool(chooser or chooser_from(own, rng), own.backlog),
            )
            for model in settings.models
        }
        self._model_of: dict[int, str] = {}
        self._deadlines = Deadlines(self._waits)
        self._overdue = Overdue(settings.overdue_after, self.mapping.batches.__contains__)

    # -- arrive -> admit -> queue ------------------------------------------------------------

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """Queue a request, or refuse it; `End` lists the gateway's codes.

        Raises IndexError for a tier there is none of; nothing has changed then.
        """
        replicas = self._serving.get(request.model)
        if replicas is None:
            return self._refuse(request, "unknown_model")
        queue, tier = replicas.queue, request.tier
        if tier < 0 or tier >= self._tiers:
            raise IndexError(
                f"request {request.id}: tier {tier}; this gateway has tiers 0 to "
                f"{self._tiers - 1}: add one to Settings.tiers, or correct the request"
            )
        if queue.depth + replicas.bound >= replicas.limit.limits[tier] or self.closing:
            why = "draining" if self.closing else replicas.limit.why(replicas.depth)
            return self._refuse(request, why)
        if queue.push(request) or queue.depth >= replicas.eager_at:
            if replicas.pool.open:
                self.due_at = min(self.due_at, replicas.rule.due_at(queue))
            self.due_at = min(self.due_at, request.arrived_at + queue.timeouts[tier])
        if request.deadline < NEVER:
            self._deadlines.watch(request.id, request.deadline)
            self.due_at = min(self.due_at, request.deadline)
        return ()

    def _refuse(self, request: Request, why: str) -> Sequence[Command]:
        self.refused[why] += 1
        return (End(request.id, Outcome.REJECTED, why),)

    # -- due? -> choose a GPU with room -> take the batch -> depart ---------------------------

    def advance(self, now: int) -> Sequence[Command]:
        """Stop what is overdue, end what has expired, and let every due batch depart."""
        commands: list[Command] = []
        self._stop_overdue(now, commands)
        self._expire(now, commands)
        for replicas in self._serving.values():
            while (slot := replicas.pool.startable()) is not None:
                self._start(replicas, slot, now, commands)
            while replicas.due_at() <= now:
                self._board(replicas, now, commands)
        self._arm()
        return commands

    def _board(self, replicas: Replicas, now: int, commands: list[Command]) -> None:
        """Choose a GPU first, then form the batch for it; start it if the GPU is idle."""
        slot = replicas.pool.pick()
        rows, losses, reason = replicas.take()
        batch = self.mapping.bind(tuple(rows), slot.gpu, reason, losses)
        slot.backlog.append(batch.id)
        replicas.bound += len(rows)
        if slot.running is None:
            self._start(replicas, slot, now, commands)
        else:
            self.mapping.hold(batch)
            self._watch(replicas.queue, rows)
            replicas.pool.look()

    def _start(self, replicas: Replicas, slot: Slot, now: int, commands: list[Command]) -> None:
        """Start the first batch that an idle GPU holds, without the rows that left meanwhile."""
        batch = self.mapping.batches[slot.backlog.popleft()]
        self.mapping.release(batch)
        rows = batch.alive()
        replicas.bound -= len(rows)
        batch.rows, batch.gone = rows, set()
        batch.departed_at = slot.since = now
        slot.running = batch.id
        self._overdue.departed(batch.id, now)
        commands.append(Depart(batch.id, (slot.gpu,), rows, replicas.receipt(batch)))
        replicas.pool.look()

    # -- finish -> fan out --------------------------------------------------------------------

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """Answer every row somebody waits for; a wrong result answers nobody and is retried."""
        batch = self.mapping.returns(batch_id)
        if batch is None:
            return ()
        replicas, slot = self._place(batch.gpu)
        slot.running, slot.since = None, now
        commands: list[Command] = []
        if isinstance(result, BatchError):
            self._bisect(replicas, batch, result, commands)
        elif len(result) != len(batch.rows):
            self._return_backlog(replicas, slot)
            self._retry(replicas, batch, commands)
            self._release(batch.gpu)
            why = (
                f"batch {batch_id}: {len(result)} outputs for {len(batch.rows)} requests; "
                "a worker must return one output per request, in order"
            )
            commands.append(Stop(batch.gpu, why))
        else:
            self._fan_out(batch, result, commands)
        if slot.draining:
            self._leave_if_empty(slot, commands)
        replicas.pool.look()
        self._arm()
        return commands

    def _fan_out(
        self, batch: Batch, result: Sequence[str | RowError], commands: list[Command]
    ) -> None:
        """One `Answer` for the whole batch; an `End` only for a row that failed alone."""
        if not batch.gone and RowError not in set(map(type, result)):
            # All are text, then, which the type checker cannot follow.
            commands.append(Answer(batch.id, batch.rows, tuple(result)))  # type: ignore[arg-type]
            return
        rows, outputs = [], []
        for row, output in zip(batch.rows, result, strict=True):
            if row.id in batch.gone:
                continue
            if isinstance(output, RowError):
                commands.append(End(row.id, Outcome.FAILED, output.detail))
            else:
                rows.append(row)
                outputs.append(output)
        if rows:
            commands.insert(0, Answer(batch.id, tuple(rows), tuple(outputs)))

    def _bisect(
        self, replicas: Replicas, batch: Batch, error: BatchError, commands: list[Command]
    ) -> None:
        """The function raised: try the halves apart; a request that raises alone has failed."""
        rows = batch.alive()
        if len(batch.rows) == 1:
            commands.extend(End(row.id, Outcome.FAILED, error.detail) for row in rows)
        else:
            self._push_front(replicas, [(half, batch.losses) for half in after_raise(rows)])

    # -- the fleet ----------------------------------------------------------------------------

    def join(self, gpu: int, version: str | None, now: int) -> Sequence[Command]:
        """A GPU starts a new epoch; what an earlier epoch still held is requeued first."""
        if version is not None and version not in self._serving:
            raise ValueError(
                f"GPU {gpu} joined with model {version!r}; this gateway serves "
                f"{', '.join(self._serving)}: name it in Settings.models"
            )
        commands = list(self.lose(gpu, now))
        if version is None:
            return commands
        self._model_of[gpu] = version
        self._serving[version].pool.add(Slot(gpu, now))
        self._arm()
        return commands

    def lose(self, gpu: int, now: int) -> Sequence[Command]:
        """End a GPU's epoch and requeue what it held, ahead of everybody; twice is once."""
        if gpu not in self._model_of:
            return ()
        replicas, slot = self._place(gpu)
        commands: list[Command] = []
        self._return_backlog(replicas, slot)
        if slot.running is not None:
            self._retry(replicas, self.mapping.close(slot.running), commands)
        self._release(gpu)
        self._arm()
        return commands

    def drain(self, gpu: int, now: int) -> Sequence[Command]:
        """No new batch for this GPU; what it has not started goes back to the bank."""
        if gpu not in self._model_of:
            return ()
        replicas, slot = self._place(gpu)
        commands: list[Command] = []
        slot.draining = True
        self._return_backlog(replicas, slot)
        self._leave_if_empty(slot, commands)
        replicas.pool.look()
        self._arm()
        return commands

    def close(self, now: int) -> Sequence[Command]:
        """Admit nobody any more; everyone who waits is due as soon as a GPU has room."""
        self.closing = True
        for replicas in self._serving.values():
            replicas.closing = True
        self._arm()
        return ()

    def _place(self, gpu: int) -> tuple[Replicas, Slot]:
        replicas = self._serving[self._model_of[gpu]]
        return replicas, replicas.pool.slots[gpu]

    def _release(self, gpu: int) -> None:
        self._serving[self._model_of.pop(gpu)].pool.remove(gpu)

    def _leave_if_empty(self, slot: Slot, commands: list[Command]) -> None:
        if slot.running is None and slot.gpu in self._model_of:
            self._release(slot.gpu)
            commands.append(Stop(slot.gpu, "drained"))

    def _return_backlog(self, replicas: Replicas, slot: Slot) -> None:
        """Batches never started are blameless: they return with the losses they had."""
        groups = []
        while slot.backlog:
            batch = self.mapping.close(slot.backlog.popleft())
            rows = batch.alive()
            replicas.bound -= len(rows)
            groups.append((rows, batch.losses))
        self._push_front(replicas, groups)

    def _retry(self, replicas: Replicas, batch: Batch, commands: list[Command]) -> None:
        """Send a lost batch's requests back to the head: whole, in tens, alone, then no more."""
        rows, losses = batch.alive(), batch.losses + 1
        if losses > MAX_LOSSES:
            why = f"{losses} GPUs were lost with this request aboard, the last time alone"
            commands.extend(End(row.id, Outcome.FAILED, why) for row in rows)
        else:
            self._push_front(replicas, [(piece, losses) for piece in after_loss(rows, losses)])

    def _push_front(
        self, replicas: Replicas, groups: Sequence[tuple[Sequence[Request], int]]
    ) -> None:
        replicas.queue.push_front(groups)
        for rows, _ in groups:
            self._watch(replicas.queue, rows)

    def _watch(self, queue: FairQueue, rows: Sequence[Request]) -> None:
        """Remember when these expire, since they no longer stand in order of arrival."""
        for row in rows:
            self._deadlines.watch(row.id, queue.expires_at(row))

    def _stop_overdue(self, now: int, commands: list[Command]) -> None:
        """A batch out for too long has lost its GPU: fence it, requeue, and have it ended."""
        for batch_id in self._overdue.expired(now):
            batch = self.mapping.batches[batch_id]
            late = show_ms(now - batch.departed_at)
            commands.extend(self.lose(batch.gpu, now))
            commands.append(Stop(batch.gpu, f"batch {batch_id} is overdue after {late}"))

    # -- leaving early ------------------------------------------------------------------------

    def cancel(self, request_id: int, now: int) -> Sequence[Command]:
        """End a request nobody waits for; on a GPU it keeps its seat and its answer is dropped."""
        if not self._withdraw(request_id):
            return ()
        self._arm()
        return (End(request_id, Outcome.CANCELLED, "client_left"),)

    def _waits(self, request_id: int) -> bool:
        """Whether this request waits: in a queue, or bound to a GPU that has not started it."""
        if any(request_id in replicas.queue for replicas in self._serving.values()):
            return True
        return self.mapping.holds(request_id)

    def _expire(self, now: int, commands: list[Command]) -> None:
        """End whoever waited too long; what is on a GPU is never ended by time."""
        overstayed = self._deadlines.expired(now)
        for replicas in self._serving.values():
            if replicas.queue.next_expiry() <= now:
                overstayed += replicas.queue.expired(now)
        for request_id in overstayed:
            if self._withdraw(request_id):
                commands.append(End(request_id, Outcome.EXPIRED, "deadline_exceeded"))

    def _withdraw(self, request_id: int) -> bool:
        """Take a request out of wherever it is; False when it is nowhere."""
        if any(replicas.queue.remove(request_id) for replicas in self._serving.values()):
            return True
        batch = self.mapping.drop(request_id)
        if batch is not None and batch.departed_at == NEVER:
            replicas, slot = self._place(batch.gpu)
            replicas.bound -= 1
            if len(batch.gone) == len(batch.rows):
                self.mapping.close(batch.id)
                slot.backlog.remove(batch.id)
                replicas.pool.look()
        return batch is not None

    # -- when next? ---------------------------------------------------------------------------

    def _arm(self) -> None:
        """Bring `due_at` up to date."""
        due_at = min(self._deadlines.next(), self._overdue.next())
        for replicas in self._serving.values():
            due_at = min(due_at, replicas.due_at(), replicas.queue.next_expiry())
            if replicas.bound and replicas.pool.startable() is not None:
                due_at = NOW
        self.due_at = due_at

    # -- questions ----------------------------------------------------------------------------

    @property
    def late(self) -> int:
        """Results dropped because their GPU's epoch was over."""
        return self.mapping.late

    def depth(self, model: str | None = None) -> int:
        """How many requests wait and are not on a GPU, for one model or all."""
        serving = self._serving.values() if model is None else [self._serving[model]]
        return sum(replicas.depth for replicas in serving)

    def in_flight(self) -> int:
        """How many requests are on a GPU."""
        batches = self.mapping.batches.values()
        return sum(len(batch.alive()) for batch in batches if batch.departed_at != NEVER)

    def gpus(self, model: str | None = None) -> tuple[int, ...]:
        """The GPUs in service, for one model or all."""
        serving = self._serving.values() if model is None else [self._serving[model]]
        return tuple(gpu for replicas in serving for gpu in replicas.pool.slots)
