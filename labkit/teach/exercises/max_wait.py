"""02.max_wait: the shortest and the longest window that the contract allows."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from labkit.teach.exercises.answers import number, several
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.lives import (
    CLOSE,
    LONGEST,
    answered_after,
    longest_wait,
    ms,
    retried,
    unlucky,
)
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted

Terms = tuple[float, float, float, float, int]
"""Budget, batch time, network, detection (milliseconds), GPUs."""


def windows(
    budget: float, batch_time: float, network: float, detection: float, gpus: int
) -> tuple[float, float] | None:
    """The shortest window for which c T >= D, the longest with which one retry fits."""
    shortest = batch_time / gpus
    longest = budget - 2 * batch_time - network - detection
    return (shortest, longest) if shortest <= longest else None


def contracts() -> Iterator[Terms]:
    """The contract, then one thing changed at a time."""
    yield 500, 100, 30, 100, 2
    yield 500, 100, 30, 0, 2
    yield 500, 100, 30, 200, 2
    yield 500, 100, 0, 100, 2
    yield 500, 100, 30, 100, 1
    yield 500, 100, 30, 100, 4
    yield 500, 200, 30, 20, 4
    yield 300, 100, 30, 20, 2
    yield 300, 100, 30, 100, 2
    yield 400, 100, 50, 100, 1
    yield 250, 60, 30, 70, 2


@st.composite
def any_contract(draw: st.DrawFn) -> Terms:
    """Round numbers, often such that no window fits."""
    return (
        draw(st.integers(20, 100)) * 10,
        draw(st.sampled_from([20, 50, 100, 150, 250])),
        draw(st.integers(0, 8)) * 10,
        draw(st.integers(0, 25)) * 10,
        draw(st.sampled_from([1, 2, 4, 5, 8, 10])),
    )


def judge_max_wait(function: Guarded) -> None:
    """Both ends of the range; where they cross there is no window."""

    def fails(terms: Terms) -> Refuted | None:
        budget, batch_time, network, detection, gpus = terms
        given = (
            f"budget {budget:g}, batch {batch_time:g}, network {network:g}, detection "
            f"{detection:g} ms, {gpus} GPU{'s' * (gpus > 1)}"
        )
        answer = function(*terms)
        rule = windows(*terms)
        if answer is None or rule is None:
            if answer is None and rule is None:
                return None
            return _none_or_not(given, answer, terms)
        pair = several(answer, "the answer is the pair (shortest, longest), or None", given, 2)
        shortest, longest = (number(end, "a window in ms", given) for end in pair)
        if abs(longest - rule[1]) > CLOSE:
            return _longest(given, terms, longest, rule[1])
        if abs(shortest - rule[0]) > CLOSE:
            return _shortest(given, terms, shortest, rule[0])
        return None

    smallest(function, contracts(), any_contract(), fails)


def _none_or_not(given: str, answer: Any, terms: Terms) -> Refuted | None:
    budget, batch_time, network, detection, gpus = terms
    shortest = batch_time / gpus
    longest = budget - 2 * batch_time - network - detection
    if answer is not None:
        several(answer, "the answer is the pair (shortest, longest), or None", given, 2)
    verb = "is more than" if shortest > longest else "is at most"
    why = (
        f"{given}: {'no window does both' if shortest > longest else 'there is a window'}, since "
        f"the shortest {ms(shortest)} {verb} the longest {ms(longest)}"
    )
    rows = [
        ("shortest: batch / GPUs", f"{batch_time:g} / {gpus} = {ms(shortest)}"),
        (
            "longest: what is left",
            f"{budget:g} - 2 x {batch_time:g} - {network:g} - {detection:g} = {ms(longest)}",
        ),
    ]
    return Refuted(Case.tabled(why, ("end", "the rule"), rows))


def _longest(given: str, terms: Terms, yours: float, rule: float) -> Refuted:
    budget, batch_time, network, detection, _ = terms
    right = retried(rule, batch_time, detection)
    mine = retried(yours, batch_time, detection) if 0 <= yours <= LONGEST else None
    why = f"{given}: your longest window is {ms(yours)}"
    if mine is None:
        why += ", which is no window"
    else:
        total = answered_after(mine) + network
        why += f", and a request that is retried once takes {ms(total)} of {budget:g}"
        if total < budget:
            why += f": {ms(budget - total)} more would fit"
    rows = [
        ("wait at the dock", ms(yours), ms(rule)),
        ("batch, lost as it ends", ms(batch_time), ms(batch_time)),
        ("until it is noticed", ms(detection), ms(detection)),
        ("the batch again, and network", *2 * [f"{ms(batch_time)} + {ms(network)}"]),
        (
            "together",
            ms(yours + 2 * batch_time + detection + network),
            f"{ms(answered_after(right) + network)}, the budget",
        ),
    ]
    return Refuted(Case.tabled(why, ("a retried request", "yours", "the rule"), rows, mine, right))


def _shortest(given: str, terms: Terms, yours: float, rule: float) -> Refuted:
    _, batch_time, _, _, gpus = terms
    why = f"{given}: your shortest window is {ms(yours)}"
    right, mine = unlucky(rule, batch_time, gpus), None
    if CLOSE < yours <= LONGEST:
        mine = unlucky(yours, batch_time, gpus)
    if mine is None:
        why += ", which is no window"
    elif yours < rule:
        why += f", and then somebody waits {ms(longest_wait(mine))} for want of a GPU"
    else:
        why += f", yet with {ms(rule)} nobody waits for a GPU either"
    rows = [
        ("GPUs x window", f"{gpus} x {ms(yours)}", f"{gpus} x {ms(rule)}"),
        ("", ms(gpus * yours), ms(gpus * rule)),
        ("against one batch", ms(batch_time), ms(batch_time)),
    ]
    return Refuted(Case.tabled(why, ("", "yours", "the rule"), rows, mine, right))


_MAX_WAIT = "def max_wait(budget, batch_time, network, detection, gpus):\n"

MAX_WAIT = Exercise(
    id="02.max_wait",
    title="Derive the window",
    minutes=10,
    difficulty=2,
    question=(
        "All in milliseconds. Return `(shortest, longest)`: the shortest window with which `gpus` "
        "GPUs never make a batch wait while the timer decides, and the longest with which a "
        "request whose GPU dies just before its batch is done still meets the budget, retried "
        "once. The death is noticed `detection` ms after it happens. Return `None` when no window "
        "does both."
    ),
    stub=_MAX_WAIT
    + '    """The (shortest, longest) window in ms, or None when there is none."""\n'
    + "    return ...\n",
    solution=_MAX_WAIT
    + '''\
    """The (shortest, longest) window in ms, or None when there is none."""
    shortest = batch_time / gpus
    longest = budget - 2 * batch_time - network - detection
    return (shortest, longest) if shortest <= longest else None
''',
    why=(
        "The retry decides the longest window: wait, batch, notice, batch again, network. The GPUs "
        "decide the shortest: boats leave a window apart, c of them take turns, so each has c "
        "windows for its batch. With two GPUs and 100 ms that is 50 ms, which is where 50 comes "
        "from; with detection in 100 ms the budget would allow up to 170."
    ),
    hints=(
        "Follow one request whose GPU dies at the worst moment, and write down every millisecond "
        "until its answer. Then follow the boats: how far apart do they leave?",
        "Longest: the budget, less two batches, less the detection, less the network. Shortest: "
        "windows times GPUs must cover one batch.",
        "`longest = budget - 2 * batch_time - network - detection`, "
        "`shortest = batch_time / gpus`, and `None` if the shortest is the longer one.",
    ),
    judge=judge_max_wait,
    mutants=(
        # One batch is forgotten.
        _MAX_WAIT + "    longest = budget - batch_time - network - detection\n"
        "    return (batch_time / gpus, longest) if batch_time / gpus <= longest else None\n",
        # The network is forgotten.
        _MAX_WAIT + "    longest = budget - 2 * batch_time - detection\n"
        "    return (batch_time / gpus, longest) if batch_time / gpus <= longest else None\n",
        # The detector takes no time.
        _MAX_WAIT + "    longest = budget - 2 * batch_time - network\n"
        "    return (batch_time / gpus, longest) if batch_time / gpus <= longest else None\n",
        # A window that is impossible.
        _MAX_WAIT + "    return batch_time / gpus, budget - 2 * batch_time - network - detection\n",
        # The window has to cover a whole batch, however many GPUs.
        _MAX_WAIT + "    longest = budget - 2 * batch_time - network - detection\n"
        "    return (batch_time, longest) if batch_time <= longest else None\n",
        # Half the time a batch takes, because that is 50.
        _MAX_WAIT + "    longest = budget - 2 * batch_time - network - detection\n"
        "    return (batch_time / 2, longest) if batch_time / 2 <= longest else None\n",
        # Upside down.
        _MAX_WAIT + "    longest = budget - 2 * batch_time - network - detection\n"
        "    return (longest, batch_time / gpus)\n",
    ),
    alternatives=(
        _MAX_WAIT + "    spent = batch_time + detection + batch_time + network\n"
        "    ends = (batch_time / gpus, budget - spent)\n"
        "    return None if ends[1] < ends[0] else ends\n",
        _MAX_WAIT
        + "    ends = [batch_time / gpus, budget - network - detection - batch_time * 2]\n"
        "    if ends == sorted(ends):\n        return ends\n",
    ),
    right="both ends of the window, and no window where they cross",
)
