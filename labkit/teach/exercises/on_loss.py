"""06.on_loss: in which groups the requests of a lost batch go out again."""

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from labkit.core.settings import Settings
from labkit.core.units import MS
from labkit.teach.exercises.answers import shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.sinking import (
    LearnersLoss,
    Sank,
    all_at_once,
    groups_of,
    live,
    out_of_turn,
    scattered,
    span,
)
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.teach.exercises.world import with_ferry
from labkit.teach.rig import Fate, Plan

Sinking = tuple[int, int, int | None]
"""Requests aboard, how many boats sink in turn, and the request that sinks every boat, if any."""


def small_sinkings() -> Iterator[Sinking]:
    """One boat that sinks, then two, then three; then a request that sinks every boat."""
    for sinks in (1, 2, 3):
        yield from ((count, sinks, None) for count in (1, 2, 3, 11, 12, 25))
    yield from ((count, 0, count - 1) for count in (1, 2, 12, 25))
    yield 100, 0, 37


@st.composite
def sinkings(draw: st.DrawFn) -> Sinking:
    """Any boat; either some sink in turn, or one request sinks them all."""
    count = draw(st.integers(1, 40))
    if draw(st.booleans()):
        return count, 0, draw(st.integers(0, count - 1))
    return count, draw(st.integers(1, 4)), None


def plan_of(sinking: Sinking, ids: Sequence[int] | None = None) -> Plan:
    """A boat with a seat for everybody, four GPUs, and a dead one back at once.

    The ids are 0, 1, 2 and so on, unless they are given.
    """
    count, sinks, poison = sinking
    arrivals = all_at_once(count, ids)
    return Plan(
        Settings(max_batch=count),
        4,
        arrivals,
        fates=(Fate("die", 60 * MS),) * sinks,
        poison=frozenset() if poison is None else frozenset({arrivals[poison].id}),
        back_after=1 * MS,
    )


def judge_on_loss(function: Guarded) -> None:
    """Loss by loss the learner's groups are the gateway's."""

    def fails(case: tuple[Sinking, bool]) -> Refuted | None:
        sinking, places = case
        plan = plan_of(sinking, None if places else scattered(sinking[0]))
        gateway = LearnersLoss(plan.settings)
        gateway.function = function
        yours = live(plan, gateway)
        if gateway.first is None:
            return None
        first, rule = gateway.first, live(plan, with_ferry(plan))
        sides = [[span(group) for group in side] or ["nobody"] for side in _both(first)]
        rows = [
            (i + 1, *(side[i] if i < len(side) else "" for side in sides))
            for i in range(max(map(len, sides)))
        ]
        head = ("boat", "yours", "the rule")
        return Refuted(Case.tabled(_why(first), head, rows, yours, rule))

    small = [(sinking, True) for sinking in small_sinkings()]
    few = [((count, sinks, None), False) for count, sinks in ((2, 1), (12, 2), (3, 3))]
    smallest(function, [*small, *few], st.tuples(sinkings(), st.just(False)), fails)
    _given_up(function)


def _given_up(function: Guarded) -> None:
    """Whoever obeys is alone by the fourth loss; the question says what becomes of more."""
    function.fresh()
    rows = scattered(3)
    given = f"rows {shown(rows, 40)}, losses 4"
    if groups_of(function(list(rows), 4), rows, given):
        raise Refuted(f"{given}: groups go out again, and all of them have failed by now")


def _both(first: Sank) -> tuple[list[list[int]], list[list[int]]]:
    return first.yours, first.rule


def _why(first: Sank) -> str:
    rows, losses = first.rows, first.losses
    one = "1 request" if len(rows) == 1 else f"{len(rows)} requests"
    lost = "1 loss" if losses == 1 else f"{losses} losses"
    said = f"{one} after {lost}: "
    yours = [row for group in first.yours for row in group]
    if not first.rule:
        return said + f"it sank {losses} boats, the last one alone, and you send it out again"
    if not yours:
        return said + "you give up, and somebody there may be blameless"
    if missing := sorted(set(rows) - set(yours)):
        return said + f"you put request {missing[0]} nowhere, and its client waits for ever"
    if yours != rows:
        return said + out_of_turn(yours, rows)
    most, right = (max(map(len, side)) for side in _both(first))
    if most > right:
        return said + f"{most} travel together, and one of them may be what sinks boats"
    if losses == 1:
        return said + f"you send {len(first.yours)} boats for one, and nobody is suspected yet"
    sizes = [[len(group) for group in side] for side in _both(first)]
    return said + f"you send boats of {sizes[0]}, the rule of {sizes[1]}"[:100]


_ON_LOSS = "def on_loss(rows, losses):\n"

ON_LOSS = Exercise(
    id="06.on_loss",
    title="Who goes out again, and with whom?",
    minutes=8,
    difficulty=2,
    question=(
        "`rows` are the ids aboard a boat that sank, in order; `losses` says how many boats have "
        "now gone down with them, this one included. Return the groups in which they go out again, "
        "a list of lists in order: after one loss all together, after two in tens, after three "
        "each alone. After four nobody goes out again: an empty list, and the request has failed."
    ),
    stub=_ON_LOSS + '    """The groups in which those of a lost boat go out."""\n    return ...\n',
    solution=_ON_LOSS
    + '''\
    """The groups in which those of a lost boat go out."""
    size = {1: 100, 2: 10, 3: 1}.get(losses)
    if size is None:
        return []
    return [rows[i : i + size] for i in range(0, len(rows), size)]
''',
    why=(
        "GPUs die of themselves far more often than of a request, so the first loss proves "
        "nothing, and one boat for all is the cheapest retry. A second loss of the same rows makes "
        "them suspects, and suspects travel in smaller company. With a hundred aboard, a request "
        "that sinks every boat costs four boats and 22 calls; then it stands alone, and the "
        "other 99 are answered. Halving would cost up to eight boats."
    ),
    hints=(
        "Who is to blame after the first loss? And when the same people have gone down twice?",
        "A size for each number of losses: everybody, ten, one. Then cut the rows into pieces of "
        "that size, in order; the last piece may be shorter.",
        "`size = {1: 100, 2: 10, 3: 1}.get(losses)`; without a size an empty list, else "
        "`[rows[i : i + size] for i in range(0, len(rows), size)]`.",
    ),
    judge=judge_on_loss,
    mutants=(
        # The whole company, again and again.
        _ON_LOSS + "    return [rows]\n",
        # Nobody travels together any more.
        _ON_LOSS + "    return [[row] for row in rows] if losses <= 3 else []\n",
        # Halves, as after a call that raised.
        _ON_LOSS + "    middle = (len(rows) + 1) // 2\n"
        "    return [rows[:middle], rows[middle:]] if len(rows) > 1 else []\n",
        # Tens at once.
        _ON_LOSS + "    size = {1: 10, 2: 1}.get(losses)\n"
        "    return [rows[i:i + size] for i in range(0, len(rows), size)] if size else []\n",
        # The last piece is forgotten.
        _ON_LOSS + "    size = {1: len(rows), 2: 10, 3: 1}.get(losses)\n"
        "    return [rows[i * size:(i + 1) * size] for i in range(len(rows) // size)] "
        "if size else []\n",
        # Three strikes.
        _ON_LOSS + "    size = {1: 100, 2: 10}.get(losses)\n"
        "    return [rows[i:i + size] for i in range(0, len(rows), size)] if size else []\n",
        # It is never given up.
        _ON_LOSS + "    size = {1: 100, 2: 10}.get(losses, 1)\n"
        "    return [rows[i:i + size] for i in range(0, len(rows), size)]\n",
        # Pushed to the front one by one, so that the last is first.
        _ON_LOSS + "    size = {1: 100, 2: 10, 3: 1}.get(losses)\n"
        "    pieces = [rows[i:i + size] for i in range(0, len(rows), size)] if size else []\n"
        "    return pieces[::-1]\n",
        # A flat list.
        _ON_LOSS + "    return rows if losses <= 3 else []\n",
    ),
    alternatives=(
        _ON_LOSS + "    if losses > 3:\n        return []\n    size = 10 ** (3 - losses)\n"
        "    return [rows[i:i + size] for i in range(0, len(rows), size)]\n",
        _ON_LOSS + "    if losses == 1:\n        return [rows]\n    if losses == 2:\n"
        "        tens = []\n        while rows:\n            tens.append(rows[:10])\n"
        "            rows = rows[10:]\n        return tens\n"
        "    return [[row] for row in rows] if losses == 3 else []\n",
    ),
    right="loss by loss they travel as the gateway sends them: whole, in tens, alone, no more",
)
