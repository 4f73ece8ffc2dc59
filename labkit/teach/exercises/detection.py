"""06.detection: how late a death may be noticed when the P95 is what counts."""

from collections.abc import Iterator, Sequence
from math import ceil

from hypothesis import strategies as st

from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import from_ms
from labkit.teach.exercises.answers import number, shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.lives import CLOSE, LONGEST, answered_after, ms
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.teach.exercises.world import run, with_ferry
from labkit.teach.rig import Fate, Plan

Sunk = tuple[tuple[tuple[float, float], ...], int, float, float, float]
"""Pairs (waited, sailed) of those who sank, percent, budget, batch time, network (milliseconds)."""


def slowest_for(
    lives: Sequence[tuple[float, float]],
    percent: int,
    budget: float,
    batch_time: float,
    network: float,
) -> float | None:
    """The largest delay (ms) with which `percent` % of these meet the budget; None if none does."""
    left = budget - network - batch_time - sum(unluckiest(lives, percent))
    return left if left >= 0 else None


def unluckiest(lives: Sequence[tuple[float, float]], percent: int) -> tuple[float, float]:
    """Who stands at this percentile (nearest rank) of the time that was spent in vain."""
    ordered = sorted(lives, key=lambda life: (sum(life), life))
    return ordered[ceil(percent * len(ordered) / 100) - 1]


def small_sunk() -> Iterator[Sunk]:
    """One who sank, then a few, then twenty; then budgets that cannot be kept."""
    yield ((50, 100),), 95, 500, 100, 30
    yield ((0, 0),), 95, 500, 100, 30
    yield ((50, 100),), 95, 500, 80, 30
    yield ((50, 20), (10, 100)), 100, 500, 100, 30
    yield ((50, 20), (10, 100)), 50, 500, 100, 30
    yield ((10, 90), (50, 40), (0, 95), (30, 20)), 75, 500, 100, 0
    even = tuple((50 - 2 * (i % 9), 5 * i) for i in range(20))
    yield even[::-1], 95, 500, 100, 30
    yield even, 100, 500, 100, 30
    yield ((50, 100),), 95, 250, 100, 30
    yield ((50, 100),), 95, 280, 100, 30
    yield even, 95, 200, 100, 30


@st.composite
def any_sunk(draw: st.DrawFn) -> Sunk:
    """Up to twelve of them, any percentile people promise."""
    life = st.tuples(st.integers(0, 10).map(lambda n: n * 10), st.integers(0, 100))
    lives = tuple(draw(st.lists(life, min_size=1, max_size=12)))
    percent = draw(st.sampled_from([50, 75, 90, 95, 99, 100]))
    budget = draw(st.integers(15, 60)) * 10
    return lives, percent, budget, 100, draw(st.sampled_from([0, 10, 30]))


def judge_detection(function: Guarded) -> None:
    """The learner's delay brings the one at the percentile home on the last tick."""

    def fails(sunk: Sunk) -> Refuted | None:
        lives, percent, budget, batch_time, network = sunk
        given = (
            f"(waited, sailed) {shown(list(lives), 48)}, P{percent}, budget {budget:g}, "
            f"batch {batch_time:g}, network {network:g} ms"
        )
        answer = function(list(lives), percent, budget, batch_time, network)
        rule = slowest_for(*sunk)
        if answer is None and rule is None:
            return None
        yours = None if answer is None else number(answer, "a delay in ms, or None", given)
        if rule is not None and yours is not None and abs(yours - rule) <= CLOSE:
            return None
        return _too_slow(sunk, given, yours, rule)

    smallest(function, small_sunk(), any_sunk(), fails)


def sunk_once(waited: float, sailed: float, batch_time: float, detection: float) -> Trace:
    """One request that waits, sinks after `sailed` ms at sea, is missed, and crosses again."""
    settings = Settings(max_wait=from_ms(waited), batch_time=from_ms(batch_time), budget=None)
    fates = (Fate("die", from_ms(sailed + detection)), Fate("ok", from_ms(batch_time)))
    plan = Plan(settings, 2, (Request(0, "passenger 0", 0),), fates, back_after=None)
    return run(plan, with_ferry(plan))


def _too_slow(sunk: Sunk, given: str, yours: float | None, rule: float | None) -> Refuted:
    lives, percent, _, batch_time, network = sunk
    waited, sailed = unluckiest(lives, percent)
    said = ["None" if v is None else ms(v) for v in (yours, rule)]
    rows = [
        (f"P{percent}: waited and sailed", *[f"{waited:g} + {sailed:g} ms"] * 2),
        ("until it is noticed", *said),
        ("the batch again", *[ms(batch_time)] * 2),
        ("network", *[ms(network)] * 2),
        ("within the budget", *(_within(sunk, value) for value in (yours, rule))),
    ]
    head = ("who sank", "yours", "the rule")
    if rule is None:
        why = f"{given}: noticed at once, it is too late already: None; you say {said[0]}"
        return Refuted(Case.tabled(why, head, rows))
    traces: list[Trace | None] = [None, None]
    if yours is not None and 0 <= yours <= LONGEST:
        traces = [sunk_once(waited, sailed, batch_time, delay) for delay in (yours, rule)]
    why = f"{given}: you say {said[0]}, and {said[1]} is the most that fits"
    if traces[0] is not None and yours is not None and yours > rule:
        total = answered_after(traces[0]) + network
        why = f"{given}: with {said[0]} the one at P{percent} is answered after {ms(total)}"
    return Refuted(Case.tabled(why, head, rows, *traces))


def _within(sunk: Sunk, delay: float | None) -> str:
    """Percent of them that meet the budget with this delay."""
    lives, _, budget, batch_time, network = sunk
    if delay is None:
        return "none asked"
    fixed = delay + batch_time + network
    home = sum(waited + sailed + fixed <= budget + CLOSE for waited, sailed in lives)
    return f"{home} of {len(lives)}"


_SLOW = "def slowest_detection_for(lives, percent, budget, batch_time, network):\n"
_LINE = "    return left if left >= 0 else None\n"
_RANK = "    from math import ceil\n\n    rank = ceil(percent * len(lives) / 100)\n"
_SPENT = "    spent = sorted(waited + sailed for waited, sailed in lives)\n"

DETECTION = Exercise(
    id="06.detection",
    title="How late may you notice?",
    minutes=8,
    difficulty=2,
    question=(
        "`lives` holds a pair (waited, sailed) for each request whose GPU died: how long it was at "
        "the dock, and how far its batch had come. All are retried once, and all in milliseconds. "
        "Return the largest delay in noticing a death with which `percent` % of them still meet "
        "the budget, network included; `None` when not even a death noticed at once would do."
    ),
    stub=_SLOW + '    """The largest delay (ms) with which so many meet the budget, or None."""\n'
    "    return ...\n",
    solution=_SLOW
    + '    """The largest delay (ms) with which so many meet the budget, or None."""\n'
    + _RANK
    + _SPENT
    + "    left = budget - network - batch_time - spent[rank - 1]\n"
    + _LINE,
    why=(
        "The worst case dies at the last instant of a batch it waited longest for; few do. Add "
        "what each had behind it first, then take the percentile of the sums: percentiles of the "
        "parts do not add up, since whoever waited longest is seldom whoever sailed farthest. At "
        "100 requests a second and a window of 50 ms that leaves about 236 ms for noticing, where "
        "the worst case leaves 220."
    ),
    hints=(
        "One number a request: what did it have behind it when its GPU died?",
        "Sort those sums and take the one at rank ceil(percent x n / 100), counted from 1. Then "
        "subtract: budget, network, one more batch, that sum.",
        "`spent = sorted(waited + sailed for waited, sailed in lives)`, then `left = budget - "
        "network - batch_time - spent[rank - 1]`; a negative rest is `None`.",
    ),
    judge=judge_detection,
    mutants=(
        # The worst case, whatever was asked.
        _SLOW + "    spent = max(waited + sailed for waited, sailed in lives)\n"
        "    left = budget - network - batch_time - spent\n" + _LINE,
        # The mean.
        _SLOW + "    spent = sum(waited + sailed for waited, sailed in lives) / len(lives)\n"
        "    left = budget - network - batch_time - spent\n" + _LINE,
        # Percentiles of the parts, added up.
        _SLOW
        + _RANK
        + "    parts = (sorted(part)[rank - 1] for part in zip(*lives))\n"
        + "    left = budget - network - batch_time - sum(parts)\n"
        + _LINE,
        # A whole batch is lost, wherever it was.
        _SLOW
        + _RANK
        + "    waits = sorted(waited for waited, _ in lives)\n"
        + "    left = budget - network - 2 * batch_time - waits[rank - 1]\n"
        + _LINE,
        # Every batch is the lab's own.
        _SLOW + _RANK + _SPENT + "    left = budget - network - 100 - spent[rank - 1]\n" + _LINE,
        # The second crossing is forgotten.
        _SLOW + _RANK + _SPENT + "    left = budget - network - spent[rank - 1]\n" + _LINE,
        # The network is.
        _SLOW + _RANK + _SPENT + "    left = budget - batch_time - spent[rank - 1]\n" + _LINE,
        # One rank too high.
        _SLOW
        + _SPENT
        + "    rank = min(int(percent * len(lives) / 100), len(lives) - 1)\n"
        + "    left = budget - network - batch_time - spent[rank]\n"
        + _LINE,
        # Less than no time.
        _SLOW + _RANK + _SPENT + "    return budget - network - batch_time - spent[rank - 1]\n",
    ),
    alternatives=(
        _SLOW + "    rests = sorted((budget - network - batch_time - waited - sailed\n"
        "                    for waited, sailed in lives), reverse=True)\n"
        "    rest = rests[-(-percent * len(rests) // 100) - 1]\n"
        "    return None if rest < 0 else rest\n",
        _SLOW + "    room = budget - network - batch_time\n"
        "    for spent in sorted(sum(life) for life in lives):\n"
        "        home = sum(sum(life) <= spent for life in lives)\n"
        "        if 100 * home >= percent * len(lives):\n"
        "            return float(room - spent) if spent <= room else None\n",
    ),
    right="so many of those who sank come home in time, with not a millisecond to spare",
)
