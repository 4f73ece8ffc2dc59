"""Small worlds in which a learner's part works inside the real gateway."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.core.batching import FerryRule
from labkit.core.gateway import Gateway
from labkit.core.messages import (
    Answer,
    BatchError,
    Command,
    Depart,
    Request,
    Result,
    RowError,
)
from labkit.core.queues import FairQueue
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import NEVER, show_ms
from labkit.teach.exercises.answers import attempted, several, shown, whole
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.verdict import Refuted
from labkit.teach.laws import LawBroken, Laws
from labkit.teach.rig import Fate, Plan, Rig, stamp

MOST_INSTANTS = 12
"""More than these are a wall."""


class _NoLaws(Laws):
    def told(self, *_: object) -> None:
        """Compared with the rule afterwards; no law is asked."""

    def passes(self, now: int) -> None:
        """Nor here."""


@dataclass
class World(Rig):
    """A rig without laws, so that an answer which is wrong lives on and shows what comes of it.

    `surplus`: outputs that a batch of fate `short` has more, or fewer, than requests.
    """

    surplus: int = field(default=-1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.laws = _NoLaws(self.plan.settings, stamp)

    def _ledger_adds_up(self) -> None:
        pass

    def _result(self, fate: Fate, rows: tuple[Request, ...], bad: bool) -> Result:  # type: ignore[override]
        if fate.kind != "short" or bad:
            return super()._result(fate, rows, bad)
        outputs: list[str | RowError] = [stamp(row.prompt) for row in rows]
        outputs += ["<nobody>"] * max(self.surplus, 0)
        return outputs[: len(rows) + self.surplus]


def run(plan: Plan, gateway: Gateway, surplus: int = -1) -> Trace:
    """Live a plan through; a gateway that spins is stopped where it began to."""
    world = World(plan, gateway, most_steps=2_000, surplus=surplus)
    try:
        return world.run()
    except LawBroken:
        return world.trace


def departures(trace: Trace) -> list[tuple[int, tuple[int, ...]]]:
    """When each batch left, and with whom."""
    return [
        (now, tuple(r.id for r in c.rows)) for now, c in trace.commands() if isinstance(c, Depart)
    ]


def answers(trace: Trace) -> list[tuple[int, dict[int, str]]]:
    """When each batch was answered, and who got what."""
    return [
        (now, {row.id: output for row, output in zip(c.rows, c.outputs, strict=True)})
        for now, c in trace.commands()
        if isinstance(c, Answer)
    ]


def instants(times: Sequence[int]) -> str:
    """Instants as a person says them: `0, 10 and 50 ms`; of a crowd, the first of them."""
    words = [show_ms(time).removesuffix(" ms") for time in times]
    if len(words) > MOST_INSTANTS:
        return f"{', '.join(words[: MOST_INSTANTS - 1])}, ... and {words[-1]} ms"
    return (" and ".join([", ".join(words[:-1]), words[-1]]) if words[1:] else words[0]) + " ms"


# -- the learner's parts --------------------------------------------------------------------------


@dataclass
class LearnersRule:
    """A rule whose `due_at` is the learner's function of who waits, oldest first."""

    function: Guarded
    max_batch: int
    max_wait: int

    def due_at(self, bank: FairQueue) -> int:
        """Ask the learner; whatever is not a whole number is refuted with what was given."""
        waiting = tuple(request.arrived_at for request in bank.waiting.values())
        if not waiting:
            return NEVER
        answer = self.function(waiting, self.max_batch, self.max_wait)
        given = f"waiting since {instants(waiting)}"
        return whole(answer, "an instant in microseconds", given)


class LearnersQueue(FairQueue):
    """A bank that asks the learner who boards."""

    def __init__(self, timeouts: Sequence[int], function: Guarded) -> None:
        super().__init__(timeouts)
        self.function = function

    def take(self, seats: int) -> list[Request]:
        """Ask the learner; refuted when that cannot be a boat's passengers."""
        waiting = list(self.waiting.values())
        given = f"waiting {shown(waiting)}, {seats} {'seat' if seats == 1 else 'seats'}"
        answer = self.function(list(waiting), seats)
        rows = several(answer, "those who board are a list of passengers", given)
        for row in rows:
            if not isinstance(row, Request):
                raise Refuted(f"{given}: {shown(row)} is not a passenger; return those you got")
            if row not in waiting:
                raise Refuted(f"{given}: {shown(row)} does not wait here")
        ids = [row.id for row in rows]
        if twice := next((row for row in rows if ids.count(row.id) > 1), None):
            raise Refuted(f"{given}: {shown(twice)} boarded twice")
        if len(rows) > seats:
            raise Refuted(f"{given}: {len(rows)} boarded")
        if not rows:
            raise Refuted(f"{given}: nobody boarded")
        for request_id in ids:
            self.remove(request_id)
        return list(rows)


class LearnersGateway(Gateway):
    """A gateway that asks the learner who gets which output."""

    function: Guarded

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """All as it is, but for the answers."""
        batch = self.mapping.batches.get(batch_id)
        commands = super().finish(batch_id, result, now)
        if batch is None or isinstance(result, BatchError):
            return commands
        answer = self._asked(batch.rows, list(result), frozenset(batch.gone))
        rows = tuple(row for row in batch.rows if row.id in answer)
        told = [Answer(batch_id, rows, tuple(answer[row.id] for row in rows))] if rows else []
        return [*told, *(c for c in commands if not isinstance(c, Answer))]

    def _asked(
        self, rows: tuple[Request, ...], outputs: list[Any], gone: frozenset[int]
    ) -> dict[int, str]:
        ids = [row.id for row in rows]
        given = f"rows {ids}, outputs {shown(outputs)}, gone {shown(gone)}"
        answer = attempted(self.function(list(ids), list(outputs), gone))
        if not isinstance(answer, dict):
            raise Refuted(f"{given}: got {shown(answer)}, but who gets what is a dictionary")
        for key, output in answer.items():
            if key not in ids:
                raise Refuted(f"{given}: {shown(key)} got an answer and was not aboard")
            if not isinstance(output, str):
                raise Refuted(f"{given}: request {key} got {shown(output)}, which is no output")
        return answer


def with_rule(plan: Plan, function: Guarded) -> Gateway:
    """The gateway of a plan, leaving when the learner says."""
    chosen: Settings = plan.settings
    return Gateway(chosen, rule=LearnersRule(function, chosen.max_batch, chosen.max_wait))  # type: ignore[arg-type]


def with_queue(plan: Plan, function: Guarded) -> Gateway:
    """The gateway of a plan, boarding whom the learner says."""
    gateway = Gateway(plan.settings)
    for replicas in gateway._serving.values():
        replicas.queue = LearnersQueue(replicas.queue.timeouts, function)
    return gateway


def with_answers(plan: Plan, function: Guarded) -> Gateway:
    """The gateway of a plan, answering whom the learner says."""
    gateway = LearnersGateway(plan.settings)
    gateway.function = function
    return gateway


def with_ferry(plan: Plan) -> Gateway:
    """The gateway of a plan as it is."""
    chosen = plan.settings
    return Gateway(chosen, rule=FerryRule(chosen.max_batch, chosen.max_wait))
