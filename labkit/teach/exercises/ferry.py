"""The exercises of notebook 01: when the ferry leaves, who boards, who gets which answer."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from hypothesis import strategies as st

from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import MS, show_ms
from labkit.teach.exercises.answers import shown, whole
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.teach.exercises.world import (
    answers,
    departures,
    instants,
    run,
    with_answers,
    with_ferry,
    with_queue,
    with_rule,
)
from labkit.teach.rig import Fate, Plan

# -- 01.due_at ------------------------------------------------------------------------------------

Morning = tuple[int, int, tuple[int, ...]]
"""Seats, window and arrival instants (microseconds)."""


def small_mornings() -> Iterator[Morning]:
    """Up to three passengers at round instants, the fewest first."""
    for count in (1, 2, 3):
        for start, gaps in product((0, 10), product((10, 0, 50), repeat=count - 1)):
            times = [start * MS]
            for gap in gaps:
                times.append(times[-1] + gap * MS)
            yield from ((seats, 50 * MS, tuple(times)) for seats in (3, 2))


@st.composite
def mornings(draw: st.DrawFn) -> Morning:
    """Any boat, any window, up to eight passengers within half a second."""
    gaps = st.one_of(st.sampled_from([0, 10 * MS, 50 * MS]), st.integers(0, 60).map(MS.__mul__))
    times, now = [], 0
    for gap in draw(st.lists(gaps, min_size=1, max_size=8)):
        now += gap
        times.append(now)
    return draw(st.integers(1, 6)), draw(st.sampled_from([50, 20, 80])) * MS, tuple(times)


def judge_due_at(function: Guarded) -> None:
    """The learner's rule forms the very batches that the ferry rule forms."""
    whole(function((0,), 6, 50 * MS), "an instant in microseconds", "waiting since 0 ms")

    def fails(morning: Morning) -> Refuted | None:
        seats, max_wait, times = morning
        settings = Settings(max_batch=seats, max_wait=max_wait)
        arrivals = tuple(Request(i, f"passenger {i}", at) for i, at in enumerate(times))
        plan = Plan(settings, 2, arrivals)
        yours = run(plan, with_rule(plan, function))
        rule = run(plan, with_ferry(plan))
        if departures(yours) == departures(rule):
            return None
        told = f"arrivals at {instants(times)}, seats {seats}, window {show_ms(max_wait)}: "
        why = told + _late_or_early(yours, rule)
        head = ("arrivals", "yours left at", "the rule's left at")
        columns = [[show_ms(at) for at in times], _left(yours), _left(rule)]
        rows = [
            [column[i] if i < len(column) else "" for column in columns]
            for i in range(max(map(len, columns)))
        ]
        return Refuted(Case.tabled(why, head, rows, yours, rule))

    smallest(function, small_mornings(), mornings(), fails)


def _left(trace: Trace) -> list[str]:
    return [f"{show_ms(now)}, {len(ids)} aboard" for now, ids in departures(trace)]


def _late_or_early(yours: Trace, rule: Trace) -> str:
    mine, theirs = departures(yours), departures(rule)
    first = next(i for i in range(99) if mine[i : i + 1] != theirs[i : i + 1])
    if first == len(mine):
        return f"the boat due at {show_ms(theirs[first][0])} never left"
    if first == len(theirs):
        return f"your boat left at {show_ms(mine[first][0])} when none was due"
    (at, ids), (due, others) = mine[first], theirs[first]
    if at > due:
        full = len(others) == rule.settings.max_batch
        said = "it was full" if full else "the first aboard had waited too long"
        return f"your boat left {show_ms(at - due)} late; {said}"
    if at < due:
        return f"your boat left {show_ms(due - at)} early, with seats free and time to wait"
    return f"at {show_ms(at)} your boat took {len(ids)}, the rule {len(others)}"


_DUE_AT = "def due_at(waiting, max_batch, max_wait):\n"

DUE_AT = Exercise(
    id="01.due_at",
    title="When does it leave?",
    minutes=6,
    difficulty=1,
    question=(
        "`waiting` holds the instants at which those on the bank arrived, oldest first, never "
        "empty. Return the instant from which the boat may leave."
    ),
    stub=_DUE_AT
    + '    """The instant (microseconds) from which the boat may leave."""\n    return ...\n',
    solution=_DUE_AT
    + '''\
    """The instant (microseconds) from which the boat may leave."""
    if len(waiting) >= max_batch:
        return waiting[max_batch - 1]
    return waiting[0] + max_wait
''',
    why=(
        "The timer belongs to the oldest passenger, not to the boat and not to the last arrival. "
        "An instant that is already past means now, so a full boat needs no case of its own."
    ),
    hints=(
        "Two things can make a boat leave. Which of them can you see in `waiting` alone?",
        "Full: as many wait as there are seats. Otherwise: the FIRST aboard decides, whoever "
        "comes after.",
        "`if len(waiting) >= max_batch:` it is due already: return any instant that is past. "
        "Else return the oldest one's arrival plus `max_wait`.",
    ),
    judge=judge_due_at,
    mutants=(
        # The timer restarts on each arrival.
        _DUE_AT + "    if len(waiting) >= max_batch:\n        return waiting[0]\n"
        "    return waiting[-1] + max_wait\n",
        # Size is forgotten.
        _DUE_AT + "    return waiting[0] + max_wait\n",
        # One seat too many.
        _DUE_AT + "    if len(waiting) > max_batch:\n        return waiting[0]\n"
        "    return waiting[0] + max_wait\n",
        # How long, where when is asked.
        _DUE_AT + "    return max_wait\n",
        # Leave at once.
        _DUE_AT + "    return waiting[0]\n",
        # Seats written into the rule.
        _DUE_AT + "    return waiting[0] if len(waiting) >= 6 else waiting[0] + max_wait\n",
    ),
    alternatives=(
        _DUE_AT + "    full = len(waiting) >= max_batch\n"
        "    return waiting[0] if full else waiting[0] + max_wait\n",
        _DUE_AT + "    return min(waiting) + max_wait * (len(waiting) < max_batch)\n",
        _DUE_AT + "    return 0 if waiting[max_batch - 1:] else waiting[0] + max_wait\n",
    ),
    right="the same boats as the rule, on every morning tried",
)

# -- 01.take --------------------------------------------------------------------------------------

Bank = tuple[int, tuple[tuple[int, int], ...]]
"""Seats, and for each passenger the instant (microseconds) and the tier."""


def small_banks() -> Iterator[Bank]:
    """Up to four passengers who come together, the fewest first."""
    for count in (1, 2, 3, 4):
        for tiers in product((0, 1), repeat=count):
            for seats in (1, 2, 3):
                yield seats, tuple((0, tier) for tier in tiers)


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
        arrivals = tuple(Request(i, f"p{i}", at, tier) for i, (at, tier) in enumerate(visits))
        plan = Plan(Settings(max_batch=seats), 1, arrivals)
        yours = run(plan, with_queue(plan, function))
        rule = run(plan, with_ferry(plan))
        if departures(yours) == departures(rule):
            return None
        return Refuted(_boarded_otherwise(seats, arrivals, yours, rule))

    smallest(function, small_banks(), banks(), fails)


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
        f"{', '.join(names[r.id] for r in waiting)} wait for {seat}: you board "
        f"{', '.join(names[i] for i in got) or 'nobody'}, the rule "
        f"{', '.join(names[i] for i in want)}"
    )
    if sorted(got) == sorted(want):
        why += "; the same people in another order"
    rows = [(names[r.id], _seat(r.id, got), _seat(r.id, want)) for r in waiting]
    return Case.tabled(why, ("waiting, in order", "yours", "the rule"), rows, yours, rule)


def _seat(request_id: int, boarded: tuple[int, ...]) -> str:
    return f"boards {boarded.index(request_id) + 1}." if request_id in boarded else "stays"


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

# -- 01.resolve -----------------------------------------------------------------------------------

Return = tuple[int, frozenset[int], int]
"""Rows in the batch, who left while it was out, outputs over or under the right count."""


def small_returns() -> Iterator[Return]:
    """Batches of up to three, the smallest first; some clients leave, some counts are wrong."""
    for count in (1, 2, 3):
        for surplus in (0, -1, 1):
            for left in product((False, True), repeat=count):
                yield count, frozenset(i for i, gone in enumerate(left) if gone), surplus


def judge_resolve(function: Guarded) -> None:
    """Batch by batch the learner answers whom the gateway answers, with the same output."""

    def fails(back: Return) -> Refuted | None:
        count, gone, surplus = back
        arrivals = tuple(Request(i, f"p{i}", 0) for i in range(count))
        plan = Plan(
            Settings(max_batch=count),
            2,
            arrivals,
            fates=(Fate("short"),) if surplus else (),
            cancels=tuple((20 * MS, i) for i in sorted(gone)),
        )
        yours = run(plan, with_answers(plan, function), surplus or -1)
        rule = run(plan, with_ferry(plan), surplus or -1)
        if answers(yours) == answers(rule):
            return None
        return Refuted(_answered_otherwise(back, yours, rule))

    smallest(function, small_returns(), None, fails)


def _answered_otherwise(back: Return, yours: Trace, rule: Trace) -> Case:
    """The first batch that came back is the one that matters."""
    count, gone, surplus = back
    at = 100 * MS
    got, want = (dict(answers(side)).get(at, {}) for side in (yours, rule))
    outputs = [f"<p{i}>" for i in range(count)]
    outputs = [*outputs, "<nobody>"][: count + surplus]
    why = f"rows {list(range(count))}, outputs {shown(outputs)}, gone {shown(gone)}: "
    if surplus:
        why += (
            f"{len(outputs)} for {count}, so nobody can be sure of an answer; you gave {len(got)}"
        )
    elif given := sorted(gone & set(got)):
        why += f"request {given[0]} left, and you answered it"
    elif missing := sorted(set(want) - set(got)):
        why += f"request {missing[0]} waits, and got nothing"
    else:
        i = next(i for i in want if got[i] != want[i])
        why += f"request {i} got {got[i]}, which belongs to another"
    rows: list[list[Any]] = [
        [
            i,
            "left" if i in gone else "waits",
            outputs[i] if i < len(outputs) else "none",
            got.get(i, "nothing"),
            want.get(i, "nothing"),
        ]
        for i in range(count)
    ]
    head = ("row", "client", "output", "yours", "the rule")
    return Case.tabled(why, head, rows, yours, rule)


_RESOLVE = "def resolve(rows, outputs, gone):\n"

RESOLVE = Exercise(
    id="01.resolve",
    title="Who gets which answer?",
    minutes=8,
    difficulty=2,
    question=(
        "`rows` are the ids that went aboard, in order; `outputs` is what came back; `gone` holds "
        "the ids of clients who have left. Return a dictionary from id to output. When the counts "
        "differ nobody gets an answer."
    ),
    stub=_RESOLVE + '    """Which request gets which output."""\n    return ...\n',
    solution=_RESOLVE
    + '''\
    """Which request gets which output."""
    if len(rows) != len(outputs):
        return {}
    return {row: output for row, output in zip(rows, outputs) if row not in gone}
''',
    why=(
        "Order is the only thing that ties an output to its request, so it is worth nothing once "
        "one is missing: a neighbour's answer is worse than none. And a client who left keeps its "
        "place in the pairing; only its answer is dropped, after pairing, never before."
    ),
    hints=(
        "What tells you that output 3 belongs to row 3? When can you no longer know?",
        "First compare the counts. Then pair everything off in order, and only then leave out "
        "those who have gone.",
        "`if len(rows) != len(outputs): return {}`, then a dictionary over `zip(rows, outputs)` "
        "with `if row not in gone`.",
    ),
    judge=judge_resolve,
    mutants=(
        # Pairs off what there is.
        _RESOLVE + "    return {row: out for row, out in zip(rows, outputs) if row not in gone}\n",
        # Answers those who left.
        _RESOLVE + "    if len(rows) != len(outputs):\n        return {}\n"
        "    return dict(zip(rows, outputs))\n",
        # Leaves them out before pairing: everyone after gets a neighbour's answer.
        _RESOLVE + "    if len(rows) != len(outputs):\n        return {}\n"
        "    return dict(zip([row for row in rows if row not in gone], outputs))\n",
        # Counts only those who stayed.
        _RESOLVE + "    if len(rows) - len(gone) != len(outputs):\n        return {}\n"
        "    return {row: out for row, out in zip(rows, outputs) if row not in gone}\n",
        # Only too few is noticed.
        _RESOLVE + "    if len(outputs) < len(rows):\n        return {}\n"
        "    return {row: out for row, out in zip(rows, outputs) if row not in gone}\n",
        # One who left spoils it for all.
        _RESOLVE + "    if len(rows) != len(outputs) or gone:\n        return {}\n"
        "    return dict(zip(rows, outputs))\n",
    ),
    alternatives=(
        _RESOLVE + "    answers = {}\n    if len(outputs) == len(rows):\n"
        "        for i, row in enumerate(rows):\n            if row not in gone:\n"
        "                answers[row] = outputs[i]\n    return answers\n",
        _RESOLVE + "    try:\n        pairs = dict(zip(rows, outputs, strict=True))\n"
        "    except ValueError:\n        return {}\n"
        "    return {row: pairs[row] for row in set(rows) - set(gone)}\n",
    ),
    right="everyone who waits has their own answer, and nobody has another's",
)
