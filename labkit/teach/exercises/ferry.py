"""The exercises of notebook 01: when the ferry leaves, who boards, who gets which answer."""

from dataclasses import dataclass

from hypothesis import strategies as st

from labkit.core.batching import FerryRule
from labkit.core.gateway import Gateway
from labkit.core.messages import Depart, Request
from labkit.core.queues import FairQueue
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import MS, show_ms
from labkit.teach.exercises.exercise import Case, Exercise, Refuted, table, whole
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.laws import LawBroken
from labkit.teach.rig import Plan, Rig

SIX = Settings(max_batch=6)
"""A boat with six seats, so that a full one is a small case."""


@st.composite
def mornings(draw: st.DrawFn, most: int = 8) -> tuple[int, ...]:
    """Arrival instants of a few passengers, often at round times, within a fifth of a second."""
    gaps = st.one_of(st.sampled_from([0, 10 * MS, 50 * MS]), st.integers(0, 60).map(MS.__mul__))
    instants, now = [], 0
    for gap in draw(st.lists(gaps, max_size=most)):
        now += gap
        instants.append(now)
    return tuple(instants)


def departures(trace: Trace) -> list[tuple[int, tuple[int, ...]]]:
    """When each batch left, and with whom."""
    return [
        (now, tuple(r.id for r in c.rows)) for now, c in trace.commands() if isinstance(c, Depart)
    ]


@dataclass
class LearnersRule:
    """A rule whose `due_at` is the learner's function of who waits, oldest first."""

    function: Guarded
    queue: FairQueue | None = None
    max_batch: int = SIX.max_batch
    max_wait: int = SIX.max_wait

    def due_at(self, bank: FairQueue) -> int:
        """Ask the learner; whatever is not a whole number is refuted with what was given."""
        waiting = tuple(request.arrived_at for request in bank.waiting.values())
        answer = self.function(waiting, self.max_batch, self.max_wait)
        shown = ", ".join(show_ms(instant) for instant in waiting)
        return whole(answer, "an instant in microseconds", f"waiting since {shown}")


def _world(instants: tuple[int, ...]) -> Plan:
    arrivals = tuple(Request(i, f"passenger {i}", at) for i, at in enumerate(instants))
    return Plan(SIX, 2, arrivals)


def _run(plan: Plan, rule: FerryRule | LearnersRule) -> tuple[Trace, LawBroken | None]:
    rig = Rig(plan, Gateway(plan.settings, rule=rule), SIX.max_wait)
    try:
        return rig.run(), None
    except LawBroken as broken:
        return rig.trace, broken


def _left(trace: Trace) -> list[str]:
    return [f"{show_ms(now)}, {len(ids)} aboard" for now, ids in departures(trace)]


def judge_due_at(function: Guarded) -> None:
    """The learner's rule forms the very batches that the ferry rule forms."""
    whole(function((0,), 6, 50 * MS), "an instant in microseconds", "waiting since 0 ms")

    def fails(instants: tuple[int, ...]) -> Exception | None:
        plan = _world(instants)
        yours, _ = _run(plan, LearnersRule(function))
        rule, _ = _run(plan, FerryRule(SIX.max_batch, SIX.max_wait))
        mine, theirs = departures(yours), departures(rule)
        if mine == theirs:
            return None
        shown = [show_ms(at) for at in instants]
        left, right = _left(yours), _left(rule)
        rows = [
            tuple(column[i] if i < len(column) else "" for column in (shown, left, right))
            for i in range(max(len(shown), len(left), len(right)))
        ]
        first = next(i for i in range(9) if mine[i : i + 1] != theirs[i : i + 1])
        why = _why(mine[first : first + 1], theirs[first : first + 1])
        head = ("arrivals", "yours left at", "the rule's left at")
        return Refuted(Case(why, **table(head, rows), yours=yours, rule=rule))

    smallest(mornings(), fails)


def _why(mine: list[tuple[int, tuple[int, ...]]], theirs: list[tuple[int, tuple[int, ...]]]) -> str:
    if not mine:
        return f"the boat due at {show_ms(theirs[0][0])} never left"
    if not theirs:
        return f"your boat left at {show_ms(mine[0][0])} when none was due"
    late = mine[0][0] - theirs[0][0]
    if late > 0:
        return f"your boat left {show_ms(late)} late: someone aboard had waited too long"
    if late < 0:
        return f"your boat left {show_ms(-late)} early, with seats free and time to wait"
    return (
        f"at {show_ms(mine[0][0])} your boat took {len(mine[0][1])}, the rule {len(theirs[0][1])}"
    )


DUE_AT = Exercise(
    id="01.due_at",
    title="When does it leave?",
    minutes=6,
    difficulty=1,
    question=(
        "`waiting` holds the instants at which those on the bank arrived, oldest first, never "
        "empty. Return the instant from which the boat may leave."
    ),
    stub='''\
def due_at(waiting, max_batch, max_wait):
    """The instant (microseconds) from which the boat may leave."""
    return ...
''',
    solution='''\
def due_at(waiting, max_batch, max_wait):
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
        "def due_at(waiting, max_batch, max_wait):\n"
        "    if len(waiting) >= max_batch:\n        return waiting[0]\n"
        "    return waiting[-1] + max_wait\n",
        "def due_at(waiting, max_batch, max_wait):\n    return waiting[0] + max_wait\n",
        "def due_at(waiting, max_batch, max_wait):\n"
        "    if len(waiting) > max_batch:\n        return waiting[0]\n"
        "    return waiting[0] + max_wait\n",
        "def due_at(waiting, max_batch, max_wait):\n    return max_wait\n",
        "def due_at(waiting, max_batch, max_wait):\n    return waiting[0]\n",
    ),
    alternatives=(
        "def due_at(waiting, max_batch, max_wait):\n"
        "    full = len(waiting) >= max_batch\n"
        "    return waiting[0] if full else waiting[0] + max_wait\n",
        "def due_at(waiting, max_batch, max_wait):\n"
        "    return min(waiting) + max_wait * (len(waiting) < max_batch)\n",
        "def due_at(waiting, max_batch, max_wait):\n"
        "    return 0 if waiting[max_batch - 1:] else waiting[0] + max_wait\n",
    ),
)
