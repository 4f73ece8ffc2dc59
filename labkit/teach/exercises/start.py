"""The exercises of notebook 00: which costume is it, and does a batch keep the contract?"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from labkit.core.settings import CONTRACT_MAX_BATCH
from labkit.teach.exercises.answers import either, shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, NotAttempted, Refuted
from labkit.teach.page import Page, box, html_table, text_table

# -- 00.costume -----------------------------------------------------------------------------------

COSTUMES = ("narrow", "open", "ask")


@dataclass(frozen=True, slots=True)
class Opening:
    """How an interviewer begins, which costume that is, and the words that tell."""

    words: str
    costume: str
    tells: str


OPENINGS = {
    "a": Opening(
        "Here is batchstring(inputs): a hundred strings, about 100 ms, one call at a time. It is "
        "another team's, you may not touch it. Build the service in front.",
        "narrow",
        "you may not touch it: only the dispatch in front is yours",
    ),
    "b": Opening(
        "Design our chat backend from the HTTP request down to the GPU kernels' scheduler. Long "
        "prompts stall everybody's tokens today.",
        "open",
        "down to the GPU, and tokens: the scheduler inside the model server is yours",
    ),
    "c": Opening(
        "Design an inference API for an LLM on our GPUs, please.",
        "ask",
        "nothing says what may change; ask that before you draw",
    ),
    "d": Opening(
        "You get a sealed model server. One request carries a list of prompts and returns a list. "
        "We pay for eight of them. Get the most out of them at a P95 of 500 ms.",
        "narrow",
        "sealed: what is left is the waiting in front, and the arithmetic",
    ),
    "e": Opening(
        "We serve a 70B model with paged KV memory. How would you size the cache, and when would "
        "you split prefill from decode?",
        "open",
        "KV memory, prefill and decode are on the table",
    ),
    "f": Opening(
        "10,000 requests a second, and they should not wait. How many GPUs?",
        "ask",
        "no batch size, no batch time, no budget: ask for B and C, and what may change",
    ),
    "g": Opening(
        "The model function takes the same time for one input as for a hundred, and its signature "
        "is frozen. Clients call you over synchronous HTTP.",
        "narrow",
        "the signature is frozen, and its time does not depend on what you do",
    ),
    "h": Opening(
        "You own the whole stack. Requests should join and leave a running batch between two "
        "tokens.",
        "open",
        "the whole stack, and a batch that changes between tokens",
    ),
}


def openings() -> tuple[Page, None]:
    """The eight openings as a page."""
    head = ("", "the interviewer says")
    rows = [(letter, opening.words) for letter, opening in OPENINGS.items()]
    said = 'Answer with a dictionary: {"a": "narrow", "b": ...}, each "narrow", "open" or "ask".'
    lines = [*text_table(head, rows), "", said]
    return Page("\n".join(lines), box(html_table(head, rows) + f"<p>{said}</p>", "dotted")), None


def judge_costume(answer: Any) -> None:
    """Every opening by its letter; the first wrong one is shown with the words that tell."""
    if answer is None:
        raise NotAttempted
    if not isinstance(answer, dict):
        raise Refuted(f"got {shown(answer)}, but the answer is a dictionary from letter to costume")
    if unknown := [key for key in answer if key not in OPENINGS]:
        raise Refuted(f"{shown(unknown[0])} is no opening; they are a to h")
    rows = [(letter, answer.get(letter, ...), o) for letter, o in OPENINGS.items()]
    for letter, said, opening in rows:
        if said is ... or said is None:
            raise Refuted(f"opening {letter} has no answer yet")
        if said not in COSTUMES:
            raise Refuted(f'opening {letter}: {shown(said)} is none of "narrow", "open", "ask"')
        if said != opening.costume:
            wrong = sum(said != o.costume for _, said, o in rows)
            more = f"; {wrong} of 8 are not right yet" if wrong > 1 else ""
            why = f'opening {letter}: "{said}", yet {opening.tells}{more}'
            table = [(letter, opening.words, said)]
            raise Refuted(Case.tabled(why, ("", "the interviewer says", "yours"), table))


def _costumes(letters: str) -> str:
    given = {"n": "narrow", "o": "open", "a": "ask"}
    pairs = ", ".join(
        f'"{key}": "{given[sign]}"' for key, sign in zip(OPENINGS, letters, strict=True)
    )
    return f"costumes = {{{pairs}}}\n"


COSTUME = Exercise(
    id="00.costume",
    title="Which costume?",
    minutes=5,
    difficulty=1,
    question=(
        "Sort eight openings: `narrow` when the GPU function is given and may not change, `open` "
        "when the whole serving stack is yours, `ask` when the words do not tell."
    ),
    stub="costumes = ...\n",
    solution=_costumes("noanoano"),
    why=(
        "Ask what may change, then stop arguing about what may not. In the narrow costume the "
        "round lives in the dispatch layer and in the arithmetic; in the open one it lives in "
        "memory and tokens. An opening that leaves it open is a test of whether you ask."
    ),
    hints=(
        "In each opening, look for the thing that may not change. If there is none, look for the "
        "thing that is yours.",
        "Frozen, sealed, not yours: narrow. KV memory, tokens, prefill, the whole stack: open. "
        "Neither: ask.",
        "Three are narrow, three are open, two do not say.",
    ),
    judge=judge_costume,
    mutants=(
        _costumes("nonnonno"),
        _costumes("noonoono"),
        _costumes("noanoaoo"),
        _costumes("aaaaaaaa"),
        'costumes = {"a": "narrow", "b": "open"}\n',
        'costumes = ["narrow", "open"]\n',
    ),
    alternatives=(
        'narrow = dict.fromkeys("adg", "narrow")\n'
        'costumes = narrow | dict.fromkeys("beh", "open") | dict.fromkeys("cf", "ask")\n',
        'costumes = {k: w for w, ks in [("narrow", "adg"), ("open", "beh"), ("ask", "cf")] '
        "for k in ks}\n",
    ),
    exhibit=openings,
    right="all eight; you would have asked before you drew",
)

# -- 00.contract ----------------------------------------------------------------------------------

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
