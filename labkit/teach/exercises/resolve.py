"""01.resolve: which request gets which output, and when nobody gets any."""

from collections.abc import Iterator
from itertools import product
from typing import Any

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
    answers,
    run,
    with_answers,
    with_ferry,
)
from labkit.teach.rig import Fate, Plan

Return = tuple[int, frozenset[int], int]
"""Rows in the batch, the places of those who left meanwhile, outputs over or under the count."""


def first_returns() -> Iterator[Return]:
    """Batches of up to three, the smallest first, then larger ones.

    Some clients leave, some counts are wrong.
    """
    for count in (1, 2, 3):
        for surplus in (0, -1, 1):
            for left in product((False, True), repeat=count):
                yield count, frozenset(i for i, gone in enumerate(left) if gone), surplus
    yield from ((count, frozenset({1, 3}), 0) for count in (5, 12, 100))
    yield from ((5, frozenset(), surplus) for surplus in (-2, 2, -5, 95))


def _numbers(count: int) -> list[int]:
    """The ids aboard: in a larger batch they are in no order, and no place in a list."""
    return list(range(count)) if count <= 3 else [(7 * i + 3) % 211 for i in range(count)]


def judge_resolve(function: Guarded) -> None:
    """Batch by batch the learner answers whom the gateway answers, with the same output."""

    def fails(back: Return) -> Refuted | None:
        count, gone, surplus = back
        ids = _numbers(count)
        arrivals = tuple(Request(ids[i], f"p{i}", 0) for i in range(count))
        plan = Plan(
            Settings(max_batch=count),
            2,
            arrivals,
            fates=(Fate("short"),) if surplus else (),
            cancels=tuple((20 * MS, ids[i]) for i in sorted(gone)),
        )
        yours = run(plan, with_answers(plan, function), surplus or -1)
        rule = run(plan, with_ferry(plan), surplus or -1)
        if answers(yours) == answers(rule):
            return None
        return Refuted(_answered_otherwise(back, yours, rule))

    smallest(function, first_returns(), None, fails)


def _answered_otherwise(back: Return, yours: Trace, rule: Trace) -> Case:
    """The first batch that came back is the one that matters."""
    count, gone, surplus = back
    at = 100 * MS
    got, want = (dict(answers(side)).get(at, {}) for side in (yours, rule))
    outputs = [f"<p{i}>" for i in range(count)]
    outputs = [*outputs, *["<nobody>"] * max(surplus, 0)][: count + surplus]
    ids = _numbers(count)
    left = {ids[i] for i in gone}
    why = f"rows {shown(ids)}, outputs {shown(outputs)}, gone {shown(frozenset(left))}: "
    if surplus:
        why += (
            f"{len(outputs)} for {count}, so nobody can be sure of an answer; you gave {len(got)}"
        )
    elif given := sorted(left & set(got)):
        why += f"request {given[0]} left, and you answered it"
    elif missing := sorted(set(want) - set(got)):
        why += f"request {missing[0]} waits, and got nothing"
    else:
        i = next(i for i in want if got[i] != want[i])
        why += f"request {i} got {got[i]}, which belongs to another"
    rows: list[list[Any]] = [
        [
            row,
            "left" if i in gone else "waits",
            outputs[i] if i < len(outputs) else "none",
            got.get(row, "nothing"),
            want.get(row, "nothing"),
        ]
        for i, row in enumerate(ids)
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
