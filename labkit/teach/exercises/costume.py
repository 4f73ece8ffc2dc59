"""00.costume: what may change, and when to ask."""

from dataclasses import dataclass
from typing import Any

from labkit.teach.exercises.answers import shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.verdict import Case, NotAttempted, Refuted
from labkit.teach.page import Page, box, html_table, text_table

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
