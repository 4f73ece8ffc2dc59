"""Gateways that ask the learner what becomes of a boat that sank, or came back wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit.core.gateway import Gateway
from labkit.core.mapping import Batch, after_loss, after_raise
from labkit.core.messages import (
    Answer,
    BatchError,
    Command,
    End,
    Outcome,
    Request,
    Result,
    Stop,
)
from labkit.core.trace import Trace
from labkit.teach.exercises.answers import attempted, several, shown
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.verdict import Refuted
from labkit.teach.exercises.world import World
from labkit.teach.laws import LawBroken
from labkit.teach.rig import Plan

MOST_STEPS = 500
"""A boat that is sent out for ever is seen to be by then."""

Groups = list[list[int]]
"""Request ids that travel together, in the order in which they leave."""

Back = tuple[dict[int, str], Groups]
"""Who is answered with what, and who goes out again."""


@dataclass(frozen=True, slots=True)
class Sank:
    """The first time that the learner's groups and the rule's differ."""

    rows: list[int]
    losses: int
    yours: Groups
    rule: Groups


@dataclass(frozen=True, slots=True)
class CameBack:
    """The first time that a batch came back and the learner and the rule differ."""

    rows: list[int]
    outputs: list[str] | None
    yours: Back
    rule: Back


def span(ids: Sequence[int]) -> str:
    """Ids as a person says them: `0 to 9`, or one by one where they are few or not in a row."""
    if len(ids) > 2 and list(ids) == list(range(ids[0], ids[0] + len(ids))):
        return f"{ids[0]} to {ids[-1]}"
    return ", ".join(map(str, ids[:8])) + (", ..." if ids[8:] else "")


def out_of_turn(ids: Sequence[int], rows: Sequence[int]) -> str:
    """Who is put before whom that came earlier: the same ids in another order."""
    first, earlier = next(pair for pair in zip(ids, rows, strict=True) if pair[0] != pair[1])
    where = "at the head" if first == ids[0] else f"after {ids[ids.index(first) - 1]}"
    return f"request {first} is {where}, and request {earlier} came before it"


def groups_of(answer: Any, rows: Sequence[int], given: str) -> Groups:
    """Lists of ids that were aboard, each at most once; refuted when it cannot be that."""
    what = "the groups are a list of lists of ids"
    groups = [list(several(group, what, given)) for group in several(answer, what, given)]
    ids = [row for group in groups for row in group]
    for row in ids:
        if row not in rows:
            raise Refuted(f"{given}: {shown(row)} was not aboard")
    twice = next((row for row in ids if ids.count(row) > 1), None)
    if twice is not None:
        raise Refuted(f"{given}: request {twice} goes out twice")
    return [group for group in groups if group]


class LearnersLoss(Gateway):
    """A gateway that asks the learner in which groups those of a lost batch go back."""

    function: Guarded
    first: Sank | None = None

    def _retry(self, replicas: Any, batch: Batch, commands: list[Command]) -> None:
        rows, losses = {row.id: row for row in batch.alive()}, batch.losses + 1
        if not rows:
            return
        ids = list(rows)
        given = f"rows {shown(ids, 40)}, losses {losses}"
        groups = groups_of(self.function(list(ids), losses), ids, given)
        rule = [[row.id for row in piece] for piece in after_loss(batch.alive(), losses)]
        if self.first is None and groups != rule:
            self.first = Sank(ids, losses, groups, rule)
        self._push_front(replicas, [([rows[i] for i in group], losses) for group in groups])
        if not groups:
            commands.extend(End(i, Outcome.FAILED, "given up") for i in ids)


class LearnersReturn(Gateway):
    """A gateway that asks the learner who is answered, and who goes out again."""

    function: Guarded
    first: CameBack | None = None

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """As it is, but for the answers and the groups; a GPU that miscounts is stopped."""
        batch = self.mapping.returns(batch_id)
        if batch is None:
            return ()
        replicas, slot = self._place(batch.gpu)
        slot.running, slot.since = None, now
        outputs = None if isinstance(result, BatchError) else [str(one) for one in result]
        answers, groups = self._asked([row.id for row in batch.rows], outputs)
        commands = _told(batch, answers, groups)
        miscounted = outputs is not None and len(outputs) != len(batch.rows)
        rows = {row.id: row for row in batch.rows}
        losses = batch.losses + miscounted
        self._push_front(replicas, [([rows[i] for i in group], losses) for group in groups])
        if miscounted:
            self._release(batch.gpu)
            commands.append(Stop(batch.gpu, "the count is wrong"))
        replicas.pool.look()
        self._arm()
        return commands

    def _asked(self, ids: list[int], outputs: list[str] | None) -> Back:
        said = "None" if outputs is None else shown(outputs, 40)
        given = f"rows {shown(ids, 40)}, outputs {said}"
        out = None if outputs is None else list(outputs)
        answer = several(self.function(list(ids), out), "a pair (answers, again)", given, 2)
        answers = attempted(answer[0])
        if not isinstance(answers, dict):
            raise Refuted(f"{given}: got {shown(answers)}, but the answers are a dictionary")
        for row, output in answers.items():
            if row not in ids:
                raise Refuted(f"{given}: {shown(row)} got an answer and was not aboard")
            if not isinstance(output, str):
                raise Refuted(f"{given}: request {row} got {shown(output)}, which is no output")
        yours = (answers, groups_of(answer[1], ids, given))
        rule = came_back(ids, outputs)
        if self.first is None and not _same(yours, rule):
            self.first = CameBack(ids, outputs, yours, rule)
        return yours


def _told(batch: Batch, answers: dict[int, str], groups: Groups) -> list[Command]:
    """The answers, and an end for whoever is neither answered nor goes out again."""
    answered = tuple(row for row in batch.rows if row.id in answers)
    again = {row for group in groups for row in group}
    commands: list[Command] = []
    if answered:
        commands.append(Answer(batch.id, answered, tuple(answers[row.id] for row in answered)))
    for row in batch.rows:
        if row.id not in answers and row.id not in again:
            commands.append(End(row.id, Outcome.FAILED, "it raised alone"))
    return commands


def came_back(rows: Sequence[int], outputs: Sequence[str] | None) -> Back:
    """Who is answered, and in which groups the others go out again.

    `outputs` None: the call raised. Halves then; all together when the count is wrong.
    """
    if outputs is None:
        halves = after_raise([Request(row) for row in rows]) if len(rows) > 1 else []
        return {}, [[row.id for row in half] for half in halves]
    if len(outputs) != len(rows):
        return {}, [list(rows)]
    return dict(zip(rows, outputs, strict=True)), []


def _same(yours: Back, rule: Back) -> bool:
    """Halves may be cut on either side of the middle one."""
    if yours == rule:
        return True
    (answers, groups), (want, halves) = yours, rule
    if answers or want or len(groups) != 2 or len(halves) != 2:
        return False
    even = abs(len(groups[0]) - len(groups[1])) <= 1
    return even and groups[0] + groups[1] == halves[0] + halves[1]


def live(plan: Plan, gateway: Gateway, surplus: int = -1) -> Trace:
    """Live a plan through without laws; what never ends is cut off."""
    world = World(plan, gateway, most_steps=MOST_STEPS, surplus=surplus)
    try:
        return world.run()
    except LawBroken:
        return world.trace


def all_at_once(count: int, ids: Sequence[int] | None = None) -> tuple[Request, ...]:
    """So many requests at instant 0; where their ids are given, some of them ask the same."""
    if ids is None:
        return tuple(Request(i, f"p{i}", 0) for i in range(count))
    return tuple(Request(i, f"p{i % 10}", 0) for i in ids)


def scattered(count: int) -> list[int]:
    """Ids of at most a hundred that neither begin at 0 nor ascend: no place can stand for an id."""
    return [10 + (37 * i + 5) % 101 for i in range(count)]
