"""The laws of the gateway, checked at every step against what was told and what came back."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.core.mapping import MAX_LOSSES, PIECES
from labkit.core.messages import (
    Answer,
    BatchError,
    Command,
    Depart,
    End,
    Outcome,
    Reason,
    Request,
    RowError,
    Stop,
)
from labkit.core.settings import Settings
from labkit.core.units import NEVER, show_ms


class LawBroken(AssertionError):
    """One law, broken at one instant: `law` names it, the message says what happened."""

    def __init__(self, law: str, now: int, what: str) -> None:
        when = "for ever after" if now >= NEVER else f"at {show_ms(now)}"
        super().__init__(f"{law}, {when}: {what}")
        self.law, self.now, self.what = law, now, what


@dataclass(slots=True)
class _Life:
    """What the laws know of one request."""

    request: Request
    number: int
    riding: int | None = None
    ended: Outcome | None = None
    losses: int = 0
    rode: bool = False
    seat: int = 0


class Laws:
    """An independent book-keeper that knows the laws and none of the gateway's code.

    Call `told` after every verb with what it returned, and `over` once nothing is left to happen.
    Laws about order and idle GPUs hold for pull (`backlog` 0), where binding a batch and starting
    it are one act; `max_wait` is the ferry rule's, None for a rule that promises none.
    """

    def __init__(
        self, settings: Settings, answer: Callable[[str], str], max_wait: int | None = None
    ) -> None:
        self.settings = settings
        self.answer = answer
        self.max_wait = max_wait
        self.sizes = {model: settings.of(model) for model in settings.models}
        self.pull = settings.backlog == 0
        self.now = 0
        self.closing = False
        self.lives: dict[int, _Life] = {}
        self.batches: dict[int, tuple[int, list[int], list[Request]]] = {}
        self.model_of: dict[int, str] = {}
        self.running: dict[int, int] = {}
        self.departed_at: dict[int, int] = {}
        self.draining: set[int] = set()
        self._order: dict[tuple[str, int, str], int] = {}

    # -- one step ---------------------------------------------------------------------------------

    def told(
        self, verb: str, args: tuple[Any, ...], now: int, commands: Sequence[Command], due_at: int
    ) -> None:
        """Check one verb call and what it returned."""
        self.passes(now)
        known = self.lives.get(args[0]) if verb == "cancel" else None
        leaves = known is not None and known.ended is None
        ended = self._before(verb, args, now, commands)
        for command in commands:
            if isinstance(command, Answer):
                self._answered(command, now, ended)
            elif isinstance(command, End):
                self._ended(command, now)
            elif isinstance(command, Stop):
                self._gone(command.gpu)
            elif isinstance(command, Depart):
                self._departed(command, now)
        if ended is not None:
            self._not_answered(*ended)
        self._failures(commands, ended, now)
        self._drained(now)
        if leaves:
            left = known is not None and known.ended is Outcome.CANCELLED
            self._require(left, "a cancelled request ends at once", now, f"request {args[0]}")
        if verb == "advance":
            self._nothing_left_due(now, due_at)

    def passes(self, now: int) -> None:
        """Time may pass only up to the instant at which something is due.

        What became due and was not done by then is late, whether or not anybody looked.
        """
        self._require(now >= self.now, "time never decreases", now, f"{now} after {self.now}")
        if now > self.now:
            for model in self.settings.models:
                self._nobody_late(model, now)
            if self.settings.overdue_after is not None:
                for batch_id, departed_at in self.departed_at.items():
                    what = f"batch {batch_id} left at {show_ms(departed_at)} and is still out"
                    in_time = departed_at + self.settings.overdue_after >= now
                    self._require(in_time, "a batch out for too long is given up", now, what)
        self.now = now

    def _nobody_late(self, model: str, now: int) -> None:
        waiting = list(self._waiting(model))
        for life in waiting:
            what = f"request {life.request.id} still waits"
            patient = self._expires_at(life) >= now
            self._require(patient, "whoever waited too long has expired", now, what)
        due_at = self._work_due_at(model, waiting)
        what = f"a batch was due at {show_ms(due_at)}; {len(waiting)} wait beside an idle GPU"
        law = "with a GPU free nobody waits past max_wait"
        self._require(due_at >= now, law, now, what)

    def _work_due_at(self, model: str, waiting: Sequence[_Life]) -> int:
        """When a free GPU must have left, by the rules alone; `NEVER` if it may wait for ever.

        With a backlog a GPU may idle while another holds its work, so there it is asked only of
        a model whose GPUs are all idle.
        """
        up = [g for g, serves in self.model_of.items() if serves == model]
        up = [gpu for gpu in up if gpu not in self.draining]
        idle = [gpu for gpu in up if gpu not in self.running]
        if not waiting or not idle or not (self.pull or len(idle) == len(up)):
            return NEVER
        full = len(waiting) >= self.sizes[model].max_batch
        if full or self.closing or any(life.rode for life in waiting):
            return self.now
        window = self._window(model)
        if window is None:
            return NEVER if self.settings.rule == "full" else self.now
        return max(min(life.request.arrived_at for life in waiting) + window, self.now)

    def _window(self, model: str) -> int | None:
        """How long the oldest may wait for company; None when the rule promises nothing."""
        own = self.sizes[model].max_wait
        if self.max_wait is None or own == self.settings.max_wait:
            return self.max_wait
        return own

    def _failures(
        self, commands: Sequence[Command], ended: tuple[int, Any] | None, now: int
    ) -> None:
        """A request fails by its own fault, or after its last try; never for its company's."""
        law = "a request fails only alone"
        for command in commands:
            if isinstance(command, End) and command.outcome is Outcome.FAILED:
                life = self.lives[command.request_id]
                own = ended is not None and life.riding == ended[0] and self._own_fault(ended[1])
                last = life.losses > MAX_LOSSES
                what = f"request {command.request_id} failed after {life.losses} losses"
                self._require(own or last, law, now, what)

    @staticmethod
    def _own_fault(result: Any) -> bool:
        """What came back blames single rows: which ones is checked where the batch ends."""
        return isinstance(result, BatchError) or any(isinstance(x, RowError) for x in result)

    def _drained(self, now: int) -> None:
        idle = [gpu for gpu in self.draining if gpu not in self.running]
        law = "a draining GPU is stopped once it is empty"
        self._require(not idle, law, now, f"GPU {idle} is empty and was not stopped")

    def _before(
        self, verb: str, args: tuple[Any, ...], now: int, commands: Sequence[Command]
    ) -> tuple[int, Any] | None:
        """Enter what was told; returns the batch that came back and its result, if one did."""
        if verb == "arrive":
            self._arrived(args[0], now, commands)
        elif verb == "close":
            self.closing = True
        elif verb == "join":
            self._gone(args[0])
            if args[1] is not None:
                self.model_of[args[0]] = args[1]
        elif verb == "lose":
            self._gone(args[0])
        elif verb == "drain" and args[0] in self.model_of:
            self.draining.add(args[0])
        elif verb == "finish":
            batch_id, result = args
            if batch_id not in self.batches:
                self._require(not commands, "a late result changes nothing", now, f"{commands}")
                return None
            del self.running[self.batches[batch_id][0]]
            del self.departed_at[batch_id]
            self._miscount(batch_id, result, commands, now)
            return batch_id, result
        return None

    def _miscount(self, batch_id: int, result: Any, commands: Sequence[Command], now: int) -> None:
        """Outputs that match no requests answer nobody, and cost the GPU its place."""
        gpu, ids, _ = self.batches[batch_id]
        if isinstance(result, BatchError) or len(result) == len(ids):
            return
        law = "a GPU that miscounts answers nobody and is stopped"
        answers = any(isinstance(command, Answer) for command in commands)
        stopped = any(isinstance(command, Stop) and command.gpu == gpu for command in commands)
        what = f"{len(result)} outputs for {len(ids)} requests from GPU {gpu}"
        self._require(stopped and not answers, law, now, what)

    def _arrived(self, request: Request, now: int, commands: Sequence[Command]) -> None:
        self._require(request.id not in self.lives, "an id is used once", now, f"{request.id}")
        waiting = sum(1 for _ in self._waiting(request.model))
        self.lives[request.id] = _Life(request, len(self.lives))
        limits = self._limits(request.model)
        full = waiting >= limits[request.tier]
        known = request.model in self.settings.models
        ends = [c for c in commands if isinstance(c, End) and c.outcome is Outcome.REJECTED]
        self._require(
            bool(ends) == (full or self.closing or not known),
            "the door rejects exactly when the limit is reached",
            now,
            f"request {request.id} of tier {request.tier} with {waiting} waiting of {limits} was "
            f"{'rejected' if ends else 'queued'}",
        )
        if known and not self.closing and ends:
            why = "queue_full" if waiting >= max(limits) else "tier_quota"
            law = "a refusal says whose part of the queue is full"
            what = f"request {request.id}: {ends[0].detail} with {waiting} waiting of {limits}"
            self._require(ends[0].detail == why, law, now, what)

    def _limits(self, model: str) -> list[int]:
        """How many may wait when one of each tier is to be let in."""
        limit = self.sizes.get(model, self.settings).depth_limit
        shares = [tier.share for tier in self.settings.tiers]
        return [NEVER if limit is None else limit * share // 100 for share in shares]

    # -- commands ---------------------------------------------------------------------------------

    def _answered(self, answer: Answer, now: int, back: tuple[int, Any] | None) -> None:
        law = "an answer goes to the request it was computed for"
        self._require(back is not None and back[0] == answer.batch_id, law, now, f"{answer}")
        self._require(len(answer.rows) == len(answer.outputs), law, now, f"{answer}")
        for row, output in zip(answer.rows, answer.outputs, strict=True):
            life = self._one_outcome(row.id, Outcome.ANSWERED, now)
            self._require(life.riding == answer.batch_id, law, now, f"request {row.id} not aboard")
            want = self.answer(life.request.prompt)
            self._require(
                output == want, law, now, f"request {row.id} got {output!r}, not {want!r}"
            )

    def _ended(self, end: End, now: int) -> None:
        life = self._one_outcome(end.request_id, end.outcome, now)
        if end.outcome is Outcome.EXPIRED:
            waits = life.riding is None
            law = "only a waiting request expires, and not before its time"
            self._require(waits and self._expires_at(life) <= now, law, now, f"{end.request_id}")

    def _one_outcome(self, request_id: int, outcome: Outcome, now: int) -> _Life:
        law = "every request has exactly one outcome"
        life = self.lives.get(request_id)
        if life is None:
            raise LawBroken(law, now, f"{outcome} for request {request_id}, which never came")
        if life.ended is not None:
            what = f"request {request_id} is {outcome} after it was {life.ended}"
            raise LawBroken(law, now, what)
        life.ended = outcome
        return life

    def _departed(self, depart: Depart, now: int) -> None:
        gpu, rows = depart.gpus[0], depart.rows
        name = f"batch {depart.batch_id}"
        self._require(depart.batch_id not in self.batches, "a batch id is used once", now, name)
        self._require(gpu in self.model_of, "batches go to GPUs that are up", now, f"GPU {gpu}")
        self._require(gpu not in self.draining, "a draining GPU gets no work", now, f"GPU {gpu}")
        busy = gpu in self.running
        self._require(not busy, "a GPU runs at most one batch", now, f"GPU {gpu} got {name}")
        size = 1 <= len(rows) <= self.sizes[self.model_of[gpu]].max_batch
        self._require(size, "a batch has 1 to max_batch rows", now, f"{len(rows)} rows")
        lives = [self._boards(row, gpu, now) for row in rows]
        self._blame(lives, now)
        self._keeps_order(lives, now)
        if self.pull:
            self._in_order(lives, now)
            self._not_early(lives, now)
            self._receipt(depart, lives, now)
        for life in lives:
            life.riding, life.rode = depart.batch_id, True
        self.batches[depart.batch_id] = (gpu, [row.id for row in rows], list(rows))
        self.running[gpu] = depart.batch_id
        self.departed_at[depart.batch_id] = now

    def _boards(self, row: Request, gpu: int, now: int) -> _Life:
        life = self.lives.get(row.id)
        waits = life is not None and life.ended is None and life.riding is None
        self._require(waits, "only those who wait board", now, f"request {row.id}")
        assert life is not None
        same = life.request.model == self.model_of[gpu]
        self._require(same, "a batch holds one model", now, f"request {row.id} on GPU {gpu}")
        late = self._expires_at(life) <= now
        self._require(not late, "an expired request never boards", now, f"request {row.id}")
        return life

    def _blame(self, lives: Sequence[_Life], now: int) -> None:
        """Whole, in tens, alone: the more often a request sank, the smaller its company."""
        losses = max(life.losses for life in lives)
        law = "after losses a batch travels whole, then in tens, then alone"
        fits = losses <= MAX_LOSSES and (not losses or len(lives) <= PIECES[losses])
        self._require(fits, law, now, f"{len(lives)} rows after {losses} losses")
        mixed = len({life.losses for life in lives}) > 1
        self._require(not mixed, "returned groups are not mixed", now, f"{losses} losses")

    def _keeps_order(self, lives: Sequence[_Life], now: int) -> None:
        """Whoever came back travels in the order in which they stood aboard."""
        if any(life.rode for life in lives):
            seats = [life.seat for life in lives]
            what = f"{[life.request.id for life in lives]}"
            self._require(seats == sorted(seats), "returned requests keep their order", now, what)
        for seat, life in enumerate(lives):
            life.seat = seat

    def _not_early(self, lives: Sequence[_Life], now: int) -> None:
        """Not full and nobody old enough: somebody else could still have come along."""
        if self.closing or any(life.rode for life in lives):
            return
        model = lives[0].request.model
        small, window = len(lives) < self.sizes[model].max_batch, self._window(model)
        if small and window is not None:
            age = now - min(life.request.arrived_at for life in lives)
            what = f"{len(lives)} left when the oldest had waited {show_ms(age)}"
            law = "a batch leaves when full or when its oldest has waited max_wait"
            self._require(age >= window, law, now, what)
        partial = small and self.settings.rule == "full"
        self._require(not partial, "wait until full means full", now, f"{len(lives)} left")

    def _in_order(self, lives: Sequence[_Life], now: int) -> None:
        model = lives[0].request.model
        waiting = [life for life in self._waiting(model) if life not in lives]
        if any(life.rode for life in lives):
            return
        back = [life.request.id for life in waiting if life.rode]
        self._require(not back, "whoever came back boards first", now, f"{back} stayed behind")
        aboard: Counter[tuple[int, str]] = Counter()
        for life in lives:
            line = (life.request.tier, life.request.tenant)
            before = self._order.get((model, *line), -1)
            what = f"request {life.request.id} out of turn"
            self._require(life.number > before, "first come, first served in a line", now, what)
            self._order[(model, *line)] = life.number
            aboard[line] += 1
        self._fair(aboard, Counter((x.request.tier, x.request.tenant) for x in waiting), now)

    def _fair(
        self, aboard: Counter[tuple[int, str]], stayed: Counter[tuple[int, str]], now: int
    ) -> None:
        for tier, tenant in stayed:
            lower = [line for line in aboard if line[0] > tier]
            what = f"tier {tier} stayed while {lower} boarded"
            self._require(not lower, "paid boards before free", now, what)
            most = max((n for line, n in aboard.items() if line[0] == tier), default=0)
            fair = aboard[(tier, tenant)] >= most - 1
            what = f"{tenant} has {aboard[(tier, tenant)]} aboard, another {most}"
            self._require(fair, "tenants of a tier board in turn", now, what)

    def _receipt(self, depart: Depart, lives: Sequence[_Life], now: int) -> None:
        receipt, settings = depart.receipt, self.sizes[lives[0].request.model]
        law = "the receipt says what is true"
        age = now - min(life.request.arrived_at for life in lives)
        self._require(receipt.oldest_age == age, law, now, f"age {receipt.oldest_age}, not {age}")
        if settings.budget is not None:
            slack = settings.budget - age - settings.batch_time
            self._require(receipt.slack == slack, law, now, f"slack {receipt.slack}, not {slack}")
        returned = receipt.reason is Reason.RETURNED
        if any(life.rode for life in lives):
            self._require(returned, law, now, f"{receipt.reason} for returned requests")
        full = receipt.reason is Reason.FULL
        if not returned:
            what = f"{receipt.reason} with {len(lives)} aboard"
            self._require(full == (len(lives) == settings.max_batch), law, now, what)
        stayed = Counter(
            life.request.tier
            for life in self._waiting(lives[0].request.model)
            if life not in lives and not life.rode
        )
        tiers = range(len(settings.tiers))
        want = tuple(stayed[tier] for tier in tiers)
        self._require(receipt.stayed == want, law, now, f"stayed {receipt.stayed}, not {want}")
        first = tuple(self._first_stayed(lives, tier) for tier in tiers)
        what = f"first of those who stayed {receipt.first_stayed}, not {first}"
        self._require(receipt.first_stayed == first, law, now, what)

    def _first_stayed(self, aboard: Sequence[_Life], tier: int) -> int | None:
        waiting = self._waiting(aboard[0].request.model)
        stayed = (x for x in waiting if x not in aboard and not x.rode and x.request.tier == tier)
        return next((life.request.id for life in stayed), None)

    # -- what came back ---------------------------------------------------------------------------

    def _not_answered(self, batch_id: int, result: Any) -> None:
        """A batch is over; who is still without an outcome waits again."""
        ids = self.batches[batch_id][1]
        wrong = not isinstance(result, BatchError) and len(result) != len(ids)
        for i, request_id in enumerate(ids):
            life = self.lives[request_id]
            life.losses += wrong and life.riding == batch_id
            if life.riding == batch_id and life.ended is None:
                life.riding = None
                retried = wrong or isinstance(result, BatchError)
                what = f"request {request_id} of batch {batch_id}"
                self._require(retried, "whoever was computed is answered", self.now, what)
            elif life.ended is Outcome.FAILED and not wrong:
                own = not isinstance(result, BatchError) and isinstance(result[i], RowError)
                alone = own or len(ids) == 1
                what = f"request {request_id} failed in company"
                self._require(alone, "batch-mates of a bad input are answered", self.now, what)
        self.batches.pop(batch_id)

    def _gone(self, gpu: int) -> None:
        """A GPU's epoch is over: what it ran is lost, and whoever rode it waits again."""
        self.model_of.pop(gpu, None)
        self.draining.discard(gpu)
        batch_id = self.running.pop(gpu, None)
        if batch_id is None:
            return
        del self.departed_at[batch_id]
        for request_id in self.batches.pop(batch_id)[1]:
            life = self.lives[request_id]
            if life.riding == batch_id:
                life.riding = None
                life.losses += 1

    # -- what must not be left --------------------------------------------------------------------

    def _nothing_left_due(self, now: int, due_at: int) -> None:
        law = "after advance nothing is due"
        self._require(due_at > now, law, now, f"due_at {due_at}")
        if not self.pull:
            return
        for model in self.settings.models:
            waiting = list(self._waiting(model))
            late = [x.request.id for x in waiting if self._expires_at(x) <= now]
            self._require(not late, "whoever waited too long has expired", now, f"{late}")
            idle = [
                gpu
                for gpu, serves in self.model_of.items()
                if serves == model and gpu not in self.running and gpu not in self.draining
            ]
            if idle and waiting:
                self._nobody_overdue(waiting, idle, now)

    def _nobody_overdue(self, waiting: Sequence[_Life], idle: Sequence[int], now: int) -> None:
        law = "no GPU idles while work is due"
        back = [life.request.id for life in waiting if life.rode]
        self._require(not back, law, now, f"GPU {idle[0]} idles, {back} came back and wait")
        self._require(not self.closing, law, now, f"GPU {idle[0]} idles while the gateway drains")
        model = waiting[0].request.model
        full = len(waiting) >= self.sizes[model].max_batch
        self._require(not full, law, now, f"GPU {idle[0]} idles, {len(waiting)} wait")
        window = self._window(model)
        if window is not None:
            oldest = min(life.request.arrived_at for life in waiting)
            what = f"the oldest has waited {show_ms(now - oldest)}, GPU {idle[0]} idles"
            in_time = now - oldest < window
            self._require(in_time, "with a GPU free nobody waits past max_wait", now, what)

    def over(self) -> None:
        """Nothing is left to happen: everyone must have an outcome."""
        left = [life.request.id for life in self.lives.values() if life.ended is None]
        self._require(
            not left, "every request has exactly one outcome", self.now, f"{left} have none"
        )

    # -- questions --------------------------------------------------------------------------------

    def _waiting(self, model: str) -> list[_Life]:
        return [
            life
            for life in self.lives.values()
            if life.ended is None and life.riding is None and life.request.model == model
        ]

    def _expires_at(self, life: _Life) -> int:
        """Its own deadline or its tier's timeout, whichever is sooner."""
        timeout = self.settings.tiers[life.request.tier].timeout
        patience = life.request.arrived_at + timeout if timeout < NEVER else NEVER
        return min(patience, life.request.deadline)

    @staticmethod
    def _require(holds: bool, law: str, now: int, what: str) -> None:
        if not holds:
            raise LawBroken(law, now, what)
