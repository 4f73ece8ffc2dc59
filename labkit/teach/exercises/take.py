"""01.take: who boards, paid before free, in order of arrival."""

from collections.abc import Iterable, Iterator
from itertools import product

from hypothesis import strategies as st

from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import MS
from labkit.teach.exercises.answers import shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.teach.exercises.world import (
    departures,
    run,
    with_ferry,
    with_queue,
)
from labkit.teach.rig import Plan

Bank = tuple[int, tuple[tuple[int, int], ...]]
"""Seats, and for each passenger the instant (microseconds) and the tier."""


def first_banks() -> Iterator[Bank]:
    """Up to four passengers who come together, the fewest first; then crowds."""
    for count in (1, 2, 3, 4):
        for tiers in product((0, 1), repeat=count):
            for seats in (1, 2, 3):
                yield seats, tuple((0, tier) for tier in tiers)
    for seats, count in ((3, 7), (5, 12), (30, 40), (100, 130)):
        yield seats, tuple((i * MS // 4, i * i % 3 % 2) for i in range(count))


def _numbers(count: int) -> list[int]:
    """An id a passenger: in a crowd they tell nothing of who came first."""
    return list(range(count)) if count <= 4 else [(7 * i + 3) % 211 for i in range(count)]


@st.composite
def banks(draw: st.DrawFn) -> Bank:
    """Up to nine passengers, some while the only boat is out."""
    visits = draw(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), min_size=1, max_size=9)
    )
    return draw(st.integers(1, 4)), tuple((at * 10 * MS, tier) for at, tier in sorted(visits))


def judge_take(function: Guarded) -> None:
    """Boat by boat the learner boards whom the queue boards, in the same order."""

    def fails(bank: Bank) -> Refuted | None:
        seats, visits = bank
        arrivals = tuple(
            Request(i, f"p{i}", at, tier)
            for i, (at, tier) in zip(_numbers(len(visits)), visits, strict=True)
        )
        plan = Plan(Settings(max_batch=seats), 1, arrivals)
        yours = run(plan, with_queue(plan, function))
        rule = run(plan, with_ferry(plan))
        if departures(yours) == departures(rule):
            return None
        return Refuted(_boarded_otherwise(seats, arrivals, yours, rule))

    smallest(function, first_banks(), banks(), fails)


def _boarded_otherwise(
    seats: int, arrivals: tuple[Request, ...], yours: Trace, rule: Trace
) -> Case:
    mine, theirs = departures(yours), departures(rule)
    first = next(i for i in range(99) if mine[i : i + 1] != theirs[i : i + 1])
    left = mine[:first]
    now = theirs[first][0] if first < len(theirs) else mine[first][0]
    gone = {i for _, ids in left for i in ids}
    waiting = [r for r in arrivals if r.id not in gone and r.arrived_at <= now]
    got, want = (side[first][1] if first < len(side) else () for side in (mine, theirs))
    names = {r.id: shown(r) for r in arrivals}
    seat = "1 seat" if seats == 1 else f"{seats} seats"
    why = (
        f"{_listed(names[r.id] for r in waiting)} wait for {seat}: you board "
        f"{_listed(names[i] for i in got) or 'nobody'}, the rule {_listed(names[i] for i in want)}"
    )
    if sorted(got) == sorted(want):
        why += "; the same people in another order"
    rows = [(names[r.id], _seat(r.id, got), _seat(r.id, want)) for r in waiting]
    return Case.tabled(why, ("waiting, in order", "yours", "the rule"), rows, yours, rule)


def _listed(names: Iterable[str], most: int = 8) -> str:
    named = list(names)
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


def _seat(request_id: int, boarded: tuple[int, ...]) -> str:
    return f"seat {boarded.index(request_id) + 1}" if request_id in boarded else "stays"


_TAKE = "def take(waiting, seats):\n"

TAKE = Exercise(
    id="01.take",
    title="Who boards?",
    minutes=8,
    difficulty=1,
    question=(
        "`waiting` is a list of passengers in order of arrival, each with an `id` and a `tier` "
        "(0 is paid, 1 is free). Return those who board, at most `seats`, in boarding order: paid "
        "before free, first come first served inside a tier."
    ),
    stub=_TAKE + '    """Who boards, at most `seats`, in boarding order."""\n    return ...\n',
    solution=_TAKE
    + '''\
    """Who boards, at most `seats`: paid before free, in order of arrival inside a tier."""
    paid = [one for one in waiting if one.tier == 0]
    free = [one for one in waiting if one.tier == 1]
    return (paid + free)[:seats]
''',
    why=(
        "Fill from paid, top up from free. The seats are counted once, at the end, so that a boat "
        "with a seat left never leaves a free passenger on the bank."
    ),
    hints=(
        "There are two lines, and one of them boards first. What happens to the seats it leaves?",
        "Put the paid ones first and the free ones after them, each as they came. Then cut at "
        "`seats`.",
        "`paid = [one for one in waiting if one.tier == 0]`, the same for free, and "
        "`(paid + free)[:seats]`.",
    ),
    judge=judge_take,
    mutants=(
        # First come, first served, whoever pays.
        _TAKE + "    return waiting[:seats]\n",
        # Free boards before paid.
        _TAKE + "    return sorted(waiting, key=lambda one: -one.tier)[:seats]\n",
        # Seats that paid leaves stay empty.
        _TAKE + "    paid = [one for one in waiting if one.tier == 0]\n"
        "    return paid[:seats] or waiting[:seats]\n",
        # Newest first.
        _TAKE + "    return sorted(waiting, key=lambda one: (one.tier, -one.id))[:seats]\n",
        # The right people, in order of arrival.
        _TAKE + "    first = sorted(waiting, key=lambda one: one.tier)[:seats]\n"
        "    return [one for one in waiting if one in first]\n",
        # Everybody.
        _TAKE + "    return sorted(waiting, key=lambda one: one.tier)\n",
        # Nobody free while anybody pays.
        _TAKE + "    paid = [one for one in waiting if one.tier == 0]\n"
        "    free = [one for one in waiting if one.tier == 1]\n"
        "    return (paid or free)[:seats]\n",
        # Ids in the place of passengers.
        _TAKE + "    ids = sorted((one.tier, one.id) for one in waiting)\n"
        "    return [i for _, i in ids[:seats]]\n",
    ),
    alternatives=(
        _TAKE + "    return sorted(waiting, key=lambda one: one.tier)[:seats]\n",
        _TAKE + "    aboard = []\n    for tier in (0, 1):\n        for one in waiting:\n"
        "            if one.tier == tier and len(aboard) < seats:\n"
        "                aboard.append(one)\n    return aboard\n",
        _TAKE + "    import heapq\n"
        "    return heapq.nsmallest(seats, waiting, key=lambda one: (one.tier, one.arrived_at))\n",
    ),
    right="the same people on every boat, in the same order",
)
