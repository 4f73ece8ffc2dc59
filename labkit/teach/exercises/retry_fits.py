"""02.retry_fits: how late a death may be noticed for one retry to fit."""

from collections.abc import Iterator

from hypothesis import strategies as st

from labkit.teach.exercises.answers import number
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.lives import (
    CLOSE,
    LONGEST,
    answered_after,
    ms,
    retried,
)
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted

Retry = tuple[float, float, float, float]
"""Budget, window, batch time, network, in milliseconds."""


def slowest_detection(
    budget: float, max_wait: float, batch_time: float, network: float
) -> float | None:
    """The largest detection delay (ms) with which one retry still fits; None when none does."""
    left = budget - max_wait - 2 * batch_time - network
    return left if left >= 0 else None


def retries() -> Iterator[Retry]:
    """The contract, then the windows people propose, then contracts that cannot be kept."""
    yield 500, 50, 100, 30
    yield 500, 20, 100, 30
    yield 500, 80, 100, 30
    yield 500, 50, 100, 0
    yield 500, 50, 200, 30
    yield 280, 50, 100, 30
    yield 250, 50, 100, 30
    yield 400, 100, 150, 30


@st.composite
def any_retry(draw: st.DrawFn) -> Retry:
    """Round numbers, sometimes such that nothing fits."""
    return (
        draw(st.integers(20, 80)) * 10,
        draw(st.integers(0, 12)) * 10,
        draw(st.sampled_from([20, 50, 100, 150, 250])),
        draw(st.integers(0, 8)) * 10,
    )


def judge_retry_fits(function: Guarded) -> None:
    """The learner's delay is the one at which the retried answer comes on the last tick."""

    def fails(terms: Retry) -> Refuted | None:
        budget, max_wait, batch_time, network = terms
        given = (
            f"budget {budget:g}, window {max_wait:g}, batch {batch_time:g}, network {network:g} ms"
        )
        answer, rule = function(*terms), slowest_detection(*terms)
        if answer is None and rule is None:
            return None
        yours = None if answer is None else number(answer, "a delay in ms, or None", given)
        if rule is not None and yours is not None and abs(yours - rule) <= CLOSE:
            return None
        return _slowest(given, terms, yours, rule)

    smallest(function, retries(), any_retry(), fails)


def _slowest(given: str, terms: Retry, yours: float | None, rule: float | None) -> Refuted:
    budget, max_wait, batch_time, network = terms
    shown_yours, shown_rule = ("None" if v is None else ms(v) for v in (yours, rule))
    if rule is None:
        least = answered_after(retried(max_wait, batch_time, 0)) + network
        why = f"{given}: noticed at once, a retried request takes {ms(least)} already: None"
        rows = [("detection", shown_yours, shown_rule)]
        return Refuted(Case.tabled(why, ("", "yours", "the rule"), rows))
    mine = None
    if yours is not None and 0 <= yours <= LONGEST:
        mine = retried(max_wait, batch_time, yours)
    why = f"{given}: with a death noticed after {shown_yours}"
    if mine is None:
        why = f"{given}: you say {shown_yours}, yet {shown_rule} fits"
    else:
        total = answered_after(mine) + network
        side = "over" if total > budget else "under"
        why += f" the retried answer takes {ms(total)}, {ms(abs(total - budget))} {side} the budget"
    rows = [
        ("wait at the dock", ms(max_wait), ms(max_wait)),
        ("batch, lost as it ends", ms(batch_time), ms(batch_time)),
        ("until it is noticed", shown_yours, shown_rule),
        ("the batch again", ms(batch_time), ms(batch_time)),
        ("network", ms(network), ms(network)),
    ]
    right = retried(max_wait, batch_time, rule)
    return Refuted(Case.tabled(why, ("a retried request", "yours", "the rule"), rows, mine, right))


_FITS = "def slowest_detection(budget, max_wait, batch_time, network):\n"

RETRY_FITS = Exercise(
    id="02.retry_fits",
    title="When does one retry no longer fit?",
    minutes=6,
    difficulty=2,
    question=(
        "All in milliseconds. A GPU dies just before its batch is done. Return the longest delay "
        "between that death and the gateway knowing of it with which the retried answer still "
        "meets the budget; `None` when even a death noticed at once is too late."
    ),
    stub=_FITS + '    """The longest delay (ms) in noticing a death, or None."""\n    return ...\n',
    solution=_FITS
    + '''\
    """The longest delay (ms) in noticing a death, or None."""
    left = budget - max_wait - 2 * batch_time - network
    return left if left >= 0 else None
''',
    why=(
        "The reserve buys one more batch and the time it takes to notice that the first was lost. "
        f"With the contract that leaves {slowest_detection(500, 50, 100, 30)} ms for noticing in "
        "the worst case: the death comes as the batch is about to return. Take the moment of death "
        "at random and look at the P95, and it is a little more. A hang is noticed only by a "
        "deadline, which counts from the departure and so contains the first batch."
    ),
    hints=(
        "The budget is spent in five pieces. Four of them you are given.",
        "Wait, batch, delay, batch again, network. What is the delay when they add up to the "
        "budget?",
        "`left = budget - max_wait - 2 * batch_time - network`; a negative rest is `None`.",
    ),
    judge=judge_retry_fits,
    mutants=(
        _FITS + "    left = budget - max_wait - batch_time - network\n"
        "    return left if left >= 0 else None\n",
        _FITS + "    left = budget - max_wait - 2 * batch_time\n"
        "    return left if left >= 0 else None\n",
        _FITS + "    return budget - max_wait - 2 * batch_time - network\n",
        # The window is waited out twice: returned requests are due at once.
        _FITS + "    left = budget - 2 * max_wait - 2 * batch_time - network\n"
        "    return left if left >= 0 else None\n",
        # The reserve, less a batch.
        _FITS + "    return 200 - batch_time\n",
        # Exactly nothing left counts as not fitting.
        _FITS + "    left = budget - max_wait - 2 * batch_time - network\n"
        "    return left if left > 0 else None\n",
    ),
    alternatives=(
        _FITS + "    first = max_wait + batch_time\n    again = batch_time + network\n"
        "    if first + again > budget:\n        return None\n    return budget - first - again\n",
        _FITS + "    left = budget - sum((max_wait, batch_time, batch_time, network))\n"
        "    return None if left < 0 else float(left)\n",
    ),
    right="the retried answer comes on the last millisecond of the budget, never after",
)
