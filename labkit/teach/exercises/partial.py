"""06.came_back: a batch came back wrong; who is answered, and who goes out again."""

from collections.abc import Iterator, Sequence

from labkit.core.settings import Settings
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.sinking import (
    Back,
    CameBack,
    LearnersReturn,
    all_at_once,
    live,
    out_of_turn,
    scattered,
    span,
)
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.teach.exercises.world import with_ferry
from labkit.teach.rig import Fate, Plan

Return = tuple[int, int, int | None, Sequence[int] | None]
"""Rows, outputs over or under their number in the first batch, and the place of the row that
raises, if any; then the ids, where they are not 0, 1, 2 and so on."""


def returns() -> Iterator[Return]:
    """A batch as it should be; outputs too few or too many; a row that makes the call raise.

    Then the same with ids that are no places, and with two requests that ask the same.
    """
    yield from ((count, 0, None, None) for count in (1, 2, 3))
    yield from ((count, surplus, None, None) for surplus in (-1, 1) for count in (2, 1, 3))
    yield from ((count, 0, row, None) for count in (2, 1, 3, 5) for row in range(count))
    wrong = ((2, 2), (3, -2), (3, 3), (3, -3), (5, -4), (5, 20), (40, -13), (100, -1), (100, 100))
    for count, surplus in wrong:
        yield count, surplus, None, scattered(count)
    yield from ((count, 0, row, scattered(count)) for count in (3, 4) for row in (0, 2))
    yield 40, 0, None, scattered(40)
    yield 100, 0, 37, None


def judge_came_back(function: Guarded) -> None:
    """Batch by batch the learner answers the same, and sends the same out again."""

    def fails(back: Return) -> Refuted | None:
        count, surplus, bad, ids = back
        arrivals = all_at_once(count, ids)
        plan = Plan(
            Settings(max_batch=count),
            3,
            arrivals,
            fates=(Fate("short"),) if surplus else (),
            bad=frozenset() if bad is None else frozenset({arrivals[bad].id}),
        )
        gateway = LearnersReturn(plan.settings)
        gateway.function = function
        yours = live(plan, gateway, surplus or -1)
        if gateway.first is None:
            return None
        rule = live(plan, with_ferry(plan), surplus or -1)
        first = gateway.first
        head = ("row", "came back", "yours", "the rule")
        return Refuted(Case.tabled(_why(first), head, _rows(first), yours, rule))

    smallest(function, returns(), None, fails)


def _rows(first: CameBack) -> list[tuple[object, ...]]:
    out = first.outputs
    return [
        (
            row,
            "it raised" if out is None else out[i] if i < len(out) else "nothing",
            _lot(row, first.yours),
            _lot(row, first.rule),
        )
        for i, row in enumerate(first.rows)
    ]


def _lot(row: int, back: Back) -> str:
    """What becomes of one row."""
    answers, groups = back
    own = next((group for group in groups if row in group), None)
    again = f"again with {span(own)}" if own is not None and len(own) > 1 else "again, alone"
    if row in answers:
        return f"gets {answers[row]}" + (f", and {again}" if own is not None else "")
    return "fails" if own is None else again


def _why(first: CameBack) -> str:
    rows, out = first.rows, first.outputs
    (answers, groups), (want, _) = first.yours, first.rule
    again = [row for group in groups for row in group]
    came = "the call raised" if out is None else f"{len(out)} came back"
    said = f"{len(rows)} aboard, {came}: "
    if out is None and answers:
        return said + f"you answer {len(answers)}, and nothing was computed"
    if out is not None and len(out) != len(rows):
        if answers:
            return said + f"you answer {len(answers)}, and cannot know whose answers those are"
        if not again:
            return said + "all fail, and another GPU may well count right"
        return said + "the GPU is at fault, not the rows: send out all of them, together"
    if answers != want:
        return said + f"you answer {len(answers)}, and {len(want)} wait for their own"
    if out is not None:
        return said + f"you send out {len(again)} who are answered"
    if len(rows) == 1:
        return said + "it raised alone, and you send it out again"
    if missing := sorted(set(rows) - set(again)):
        return said + f"request {missing[0]} fails, and need not be the one that raises"
    if len(groups) == 1:
        return said + "you send the same company out again, and it will raise again"
    if again != rows:
        return said + out_of_turn(again, rows)
    sizes = ", ".join(map(str, [len(group) for group in groups][:4]))
    return said + f"you send boats of {sizes}{', ...' if groups[4:] else ''}; halves find it sooner"


_BACK = "def came_back(rows, outputs):\n"

CAME_BACK = Exercise(
    id="06.came_back",
    title="99 answers for 100 questions",
    minutes=8,
    difficulty=2,
    question=(
        "`rows` are the ids of a batch in order, `outputs` is what came back, or `None` when the "
        "call raised and the GPU lives. Return a pair: a dictionary of who is answered with what, "
        "and the groups (a list of lists) that go out again. A wrong count: nobody is answered, "
        "all go out again together. A call that raised: its two halves go out apart; a row that "
        "raised alone does not, and so has failed."
    ),
    stub=_BACK + '    """(who is answered with what, the groups that go out again)."""\n'
    "    return ...\n",
    solution=_BACK
    + '''\
    """(who is answered with what, the groups that go out again)."""
    if outputs is None:
        middle = (len(rows) + 1) // 2
        return {}, [rows[:middle], rows[middle:]] if len(rows) > 1 else []
    if len(outputs) != len(rows):
        return {}, [rows]
    return dict(zip(rows, outputs)), []
''',
    why=(
        "Three failures that look alike and are not. A wrong count is the GPU's fault: no output "
        "can be trusted, so all are computed again elsewhere, and the GPU is taken out. A call "
        "that raises is a row's fault and kills nothing, so tries are cheap: halving finds one "
        "bad row of a hundred in at most 15 calls. Only a dead GPU costs minutes, and so those "
        "aboard travel whole, in tens, alone."
    ),
    hints=(
        "Ask of each failure whose fault it is: the GPU's, or one row's?",
        "Three cases in this order: it raised, the count is wrong, all is well. A batch of one "
        "that raised has nobody left to blame.",
        "`if outputs is None:` return `{}` and the halves `rows[:middle]`, `rows[middle:]`, or no "
        "group for a single row. `if len(outputs) != len(rows): return {}, [rows]`.",
    ),
    judge=judge_came_back,
    mutants=(
        # Pairs off what there is, and retries the rest.
        _BACK + "    if outputs is None:\n        middle = (len(rows) + 1) // 2\n"
        "        return {}, [rows[:middle], rows[middle:]] if len(rows) > 1 else []\n"
        "    rest = rows[len(outputs):]\n"
        "    return dict(zip(rows, outputs)), [rest] if rest else []\n",
        # One bad row fails everybody.
        _BACK + "    if outputs is None:\n        return {}, []\n"
        "    if len(outputs) != len(rows):\n        return {}, [rows]\n"
        "    return dict(zip(rows, outputs)), []\n",
        # The same company again.
        _BACK + "    if outputs is None or len(outputs) != len(rows):\n        return {}, [rows]\n"
        "    return dict(zip(rows, outputs)), []\n",
        # A hundred calls.
        _BACK + "    if outputs is None:\n"
        "        return {}, [[row] for row in rows] if len(rows) > 1 else []\n"
        "    if len(outputs) != len(rows):\n        return {}, [rows]\n"
        "    return dict(zip(rows, outputs)), []\n",
        # Halves of an odd number, and the middle one is lost.
        _BACK + "    half = len(rows) // 2\n    if outputs is None:\n"
        "        return {}, [rows[:half], rows[-half:]] if half else []\n"
        "    if len(outputs) != len(rows):\n        return {}, [rows]\n"
        "    return dict(zip(rows, outputs)), []\n",
        # A wrong count is taken for a bad row.
        _BACK + "    if outputs is None or len(outputs) != len(rows):\n"
        "        middle = (len(rows) + 1) // 2\n"
        "        return {}, [rows[:middle], rows[middle:]] if len(rows) > 1 else []\n"
        "    return dict(zip(rows, outputs)), []\n",
        # A miscounting GPU fails everybody.
        _BACK + "    if outputs is None:\n        middle = (len(rows) + 1) // 2\n"
        "        return {}, [rows[:middle], rows[middle:]] if len(rows) > 1 else []\n"
        "    if len(outputs) != len(rows):\n        return {}, []\n"
        "    return dict(zip(rows, outputs)), []\n",
        # The one that raises is tried for ever.
        _BACK + "    if outputs is None:\n        middle = (len(rows) + 1) // 2\n"
        "        return {}, [half for half in (rows[:middle], rows[middle:]) if half]\n"
        "    if len(outputs) != len(rows):\n        return {}, [rows]\n"
        "    return dict(zip(rows, outputs)), []\n",
    ),
    alternatives=(
        _BACK + "    if outputs is None:\n        if len(rows) == 1:\n            return {}, []\n"
        "        half = len(rows) // 2\n        return {}, [rows[:half], rows[half:]]\n"
        "    if len(outputs) == len(rows):\n"
        "        return {row: outputs[i] for i, row in enumerate(rows)}, []\n"
        "    return {}, [rows]\n",
        _BACK + "    answers, again = {}, []\n    if outputs is None:\n"
        "        n = len(rows)\n        if n > 1:\n"
        "            again = [rows[: n - n // 2], rows[n - n // 2 :]]\n"
        "    elif len(outputs) != len(rows):\n        again.append(rows)\n"
        "    else:\n        answers.update(zip(rows, outputs))\n    return answers, again\n",
    ),
    right="nobody gets a neighbour's answer, and one bad row costs 15 calls at most",
)
