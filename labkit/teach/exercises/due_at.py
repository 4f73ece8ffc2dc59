"""01.due_at: the instant from which the ferry may leave."""

from collections.abc import Iterator
from itertools import product

from hypothesis import strategies as st

from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import MS, show_ms
from labkit.teach.exercises.answers import whole
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.teach.exercises.world import (
    departures,
    instants,
    run,
    with_ferry,
    with_rule,
)
from labkit.teach.rig import Plan

Morning = tuple[int, int, tuple[int, ...]]
"""Seats, window and arrival instants (microseconds)."""


def first_mornings() -> Iterator[Morning]:
    """Up to three passengers at round instants, the fewest first; then crowds at any instants."""
    for count in (1, 2, 3):
        for start, gaps in product((0, 10), product((10, 0, 50), repeat=count - 1)):
            times = [start * MS]
            for gap in gaps:
                times.append(times[-1] + gap * MS)
            yield from ((seats, 50 * MS, tuple(times)) for seats in (3, 2))
    yield 2, 50 * MS, (1, 7)
    for seats, max_wait, count, gap in (
        (9, 200 * MS, 12, 7_777),
        (30, 7_777, 40, 501),
        (100, 80 * MS, 130, 333),
    ):
        yield seats, max_wait, tuple(range(501, 501 + count * gap, gap))


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

    smallest(function, first_mornings(), mornings(), fails)


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
        "An instant that is already past means now, so a full boat may name any that is."
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
