"""00.contract: does a call to batchstring keep its contract?"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from labkit.core.settings import CONTRACT_MAX_BATCH
from labkit.teach.exercises.answers import either, shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted

Call = tuple[list[Any], Any]
"""What went in and what came back."""

MOST = CONTRACT_MAX_BATCH


def calls() -> Iterator[Call]:
    """Calls that keep the contract and calls that break it in one way each."""
    for count, more in product((1, 2, 3), (0, -1, 1)):
        outputs = [f"<{i}>" for i in range(count + more)]
        yield [f"p{i}" for i in range(count)], outputs
    yield [], []
    for count in (MOST - 1, MOST, MOST + 1):
        yield ["p"] * count, ["<p>"] * count
    yield ["p0", "p1"], ["<p0>", None]
    yield ["p0", "p1"], [None, "<p1>"]
    yield ["p0", 1], ["<p0>", "<1>"]
    yield ["p0"], [""]
    yield ["p0", "p0"], ["<p0>", "<p0>"]
    yield ["p0", "p1"], "ab"
    yield ["p0"], None
    yield ["p0"], ("<p0>",)
    yield ["p0"], [7]
    yield ["p0", "p1", "p2"], ["<p0>", None, "<p2>"]
    yield ["p0", None, "p2"], ["<p0>", "<>", "<p2>"]
    yield ["p"] * (MOST // 2), ["<p>"] * (MOST // 2)


def keeps_contract(inputs: list[Any], outputs: Any) -> bool:
    """1 to 100 strings in, a list of as many strings out."""
    return (
        isinstance(outputs, list)
        and 1 <= len(inputs) <= MOST
        and len(outputs) == len(inputs)
        and all(isinstance(text, str) for text in [*inputs, *outputs])
    )


def judge_contract(function: Guarded) -> None:
    """The learner accepts exactly the calls that keep the contract."""

    def fails(call: Call) -> Refuted | None:
        inputs, outputs = call
        given = f"{_many(inputs)} in, {_many(outputs)} out"
        yours = either(function(list(inputs), outputs), "whether a call keeps it", given)
        rule = keeps_contract(inputs, outputs)
        if yours == rule:
            return None
        said = "keeps the contract, and you refuse it" if rule else "breaks it, and you accept it"
        rows = [
            ("inputs", shown(inputs, 40), str(yours), str(rule)),
            ("outputs", shown(outputs, 40), "", ""),
        ]
        head = ("call", "what", "yours", "the rule")
        return Refuted(Case.tabled(f"{given}: {said}", head, rows))

    smallest(function, calls(), None, fails)


def _many(things: Any) -> str:
    if isinstance(things, list) and (len(things) > 3 or not things):
        return f"{len(things)} strings"
    return shown(things)


_KEPT = "def kept(inputs, outputs):\n"

CONTRACT = Exercise(
    id="00.contract",
    title="Does this call keep the contract?",
    minutes=5,
    difficulty=1,
    question=(
        "`inputs` went into `batchstring`, `outputs` came back. Return whether the call keeps the "
        "contract: a list of 1 to 100 strings in, a list of as many strings out."
    ),
    stub=_KEPT + '    """Whether this call keeps the contract."""\n    return ...\n',
    solution=_KEPT
    + '''\
    """Whether this call keeps the contract."""
    if not isinstance(outputs, list) or not 1 <= len(inputs) <= 100:
        return False
    if len(outputs) != len(inputs):
        return False
    return all(isinstance(text, str) for text in inputs + outputs)
''',
    why=(
        "A border checks what crosses it, in both directions. The count matters most: outputs are "
        "tied to requests by their place alone. What no check can see is the order, so a test "
        "gives each prompt an answer that only it can have."
    ),
    hints=(
        "Read the contract aloud, count its promises: how many, of what, how many back, of what?",
        "Three things: the size of the batch, the same number back, and strings on both sides. "
        "`None` can come back too.",
        "`isinstance(outputs, list)`, `1 <= len(inputs) <= 100`, `len(outputs) == len(inputs)`, "
        "and `all(isinstance(text, str) ...)` over both.",
    ),
    judge=judge_contract,
    mutants=(
        _KEPT + "    return len(inputs) == len(outputs or [])\n",
        _KEPT + "    return isinstance(outputs, list) and len(outputs) == len(inputs) <= 100 and "
        "all(isinstance(t, str) for t in inputs + outputs)\n",
        _KEPT
        + "    return isinstance(outputs, list) and 0 < len(outputs) == len(inputs) < 100 and "
        "all(isinstance(t, str) for t in inputs + outputs)\n",
        _KEPT
        + "    return isinstance(outputs, list) and 0 < len(outputs) == len(inputs) <= 100 and "
        "all(outputs) and all(isinstance(t, str) for t in inputs + outputs)\n",
        _KEPT + "    return 0 < len(inputs) <= 100 and outputs is not None and "
        "len(outputs) >= len(inputs)\n",
        _KEPT + "    return isinstance(outputs, list) and 0 < len(outputs) == len(inputs) <= 100\n",
    ),
    alternatives=(
        _KEPT + "    if type(outputs) is not list:\n        return False\n"
        "    strings = sum(isinstance(text, str) for text in inputs + outputs)\n"
        "    return strings == 2 * len(inputs) == 2 * len(outputs) and strings in range(2, 201)\n",
        _KEPT + "    try:\n        pairs = list(zip(inputs, outputs, strict=True))\n"
        "    except (TypeError, ValueError):\n        return False\n"
        "    texts = all(type(a) is type(b) is str for a, b in pairs)\n"
        "    return type(outputs) is list and texts and 0 < len(pairs) < 101\n",
    ),
    right="every call that keeps it is accepted, and no other",
)
