"""The hunts: a gateway with one planted fault, its receipts, and a list of suspects."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.core.trace import Trace
from labkit.teach.exercises.answers import shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.verdict import Case, NotAttempted, Refuted
from labkit.teach.page import Page, box, html_table, inline, text_table

HEAD = ("boat", "left at", "GPU", "aboard", "why", "the oldest had waited")

SUSPECTS = {
    "unit_slip": "The window is written in one unit of time and read in another.",
    "restarting_timer": "Every arrival starts the window again.",
    "full_waits": "A full boat stays until the timer rings.",
    "stale_timer": "The timer of a boat that left full keeps running, and cuts the next one short.",
    "window_at_look": "The window opens when the loop comes round to look.",
    "one_forgotten": "After a loss somebody is not put back.",
}
"""The accused of every hunt on the dock, in the order of their letters."""


def lettered(suspects: Mapping[str, str]) -> dict[str, str]:
    """A letter for each suspect."""
    return dict(zip("abcdefgh", suspects, strict=False))


LETTERS = lettered(SUSPECTS)

WORDS = {
    "unit_slip": r"\bunits?\b|unit_slip|micro.{0,60}milli|milli.{0,60}(micro|nano)|thousand",
    "restarting_timer": r"restart|re-?arm|starts? (again|over)|reset by|each arrival|every arrival",
    "full_waits": r"full_waits|full (boat|batch)\w* (stays?|waits?|is held)",
    "stale_timer": (
        r"stale|left[- ]?over timer|(timer|clock|alarm|window)[^.]{0,60}"
        r"(not|never|n't|nobody)[^.]{0,30}(cancel|stop|clear|reset|disarm)"
        r"|(not|never|n't|nobody|forgets?|without)[^.]{0,30}(cancel|stop|clear|reset|disarm)"
        r"[^.]{0,40}(timer|clock|alarm)"
        r"|(old|previous|earlier|last|first)\b[^.]{0,40}(timer|clock|alarm)"
        r"|(timer|clock|alarm)[^.]{0,60}(keeps|still|goes on|continues)"
    ),
    "window_at_look": r"window_at_look|loop (looks|comes round)|when (it|the loop) looks",
    "one_forgotten": r"one_forgotten|forg[eo]t|not put back|is lost",
}
"""How people say each of them; a sentence may name one."""


Evidence = tuple[Trace, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Hunt:
    """One hunt: the planted bug, and the boats whose receipts give it away.

    `suspects` and `words`: who may be accused, and how people say each; `head` and `rows`: how the
    receipts are shown; `where`: the sentence above them, `made` makes them where it is not a
    morning of the zoo.
    """

    bug_id: str
    telling: Callable[[dict[str, Any], float], bool]
    nudge: str
    suspects: Mapping[str, str] = field(default_factory=lambda: SUSPECTS)
    words: Mapping[str, str] = field(default_factory=lambda: WORDS)
    head: tuple[str, ...] = HEAD
    rows: Callable[[list[dict[str, Any]]], list[tuple[str, ...]]] | None = None
    where: str = "Two GPUs"
    made: Callable[[str], Evidence] | None = None

    def shown(self, receipts: list[dict[str, Any]]) -> Sequence[tuple[str, ...]]:
        """The receipts as people read them."""
        return (self.rows or receipt_rows)(receipts)

    def evidence(self) -> Evidence:
        """The trace of a morning, and its receipts."""
        if self.made is not None:
            return self.made(self.bug_id)
        from labkit.teach.zoo import hunt

        return hunt(self.bug_id)


def receipt_rows(receipts: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Receipts as people read them."""
    return [
        (
            str(row["batch"]),
            f"{row['at_ms']:g} ms",
            str(row["gpu"]),
            str(len(row["aboard"])),
            row["reason"],
            f"{row['oldest_ms']:g} ms",
        )
        for row in receipts
    ]


def exhibit(hunt: Hunt) -> tuple[Page, Trace]:
    """The receipts and the suspects as a page, and the trace for the dock."""
    trace, receipts = hunt.evidence()
    chosen = trace.settings
    window = f"{chosen.max_wait / 1000:g} ms"
    intro = f"{hunt.where}, {chosen.max_batch} seats, a window of {window}. Its receipts:"
    rows = hunt.shown(receipts)
    suspects = [(k, hunt.suspects[v]) for k, v in lettered(hunt.suspects).items()]
    said = "Accuse one: by its letter, or in your own words."
    accusable = text_table(("", "suspect"), suspects)
    lines = [intro, *text_table(hunt.head, rows), "", *accusable, "", said]
    body = f"<p>{inline(intro)}</p>{html_table(hunt.head, rows)}"
    body += f"{html_table(('', 'suspect'), suspects)}<p>{inline(said)}</p>"
    return Page("\n".join(lines), box(body, "dotted")), trace


def accused(
    answer: str, suspects: Mapping[str, str] = SUSPECTS, said_as: Mapping[str, str] = WORDS
) -> list[str]:
    """The suspects that an answer names: by letter, by id, or by the words people use."""
    words, letters = " ".join(answer.lower().replace("_", " ").split()), lettered(suspects)
    if words.strip("().\"' ") in letters:
        return [letters[words.strip("().\"' ")]]
    exact = [name for name in suspects if words == name.replace("_", " ")]
    return exact or [
        name for name, said in said_as.items() if re.search(said.replace("_", " "), words)
    ]


def judge_of(hunt: Hunt) -> Callable[[Any], None]:
    """Whether an answer names the planted fault, and no other."""

    def judge(answer: Any) -> None:
        if answer is None or (isinstance(answer, str) and not answer.strip()):
            raise NotAttempted
        if not isinstance(answer, str):
            raise Refuted(f"got {shown(answer)}, but an accusation is a letter or a sentence")
        named = accused(answer[:2_000], hunt.suspects, hunt.words)
        if named == [hunt.bug_id]:
            return
        said = shown(answer, 48)
        if len(named) > 1:
            raise Refuted(f"{said} names {len(named)} suspects; accuse one")
        trace, receipts = hunt.evidence()
        window = trace.settings.max_wait / 1000
        rows = hunt.shown(receipts)
        first = next(i for i, row in enumerate(receipts) if hunt.telling(row, window))
        begin = max(min(first - 1, len(rows) - 5), 0)
        why = f"{said} does not explain boat {receipts[first]['batch']}: {hunt.nudge}"
        if not named:
            why = f"{said} names none of the suspects; look at boat {receipts[first]['batch']}"
        raise Refuted(Case.tabled(why, hunt.head, rows[begin : begin + 5]))

    return judge


def _too_early(row: dict[str, Any], window: float) -> bool:
    return row["reason"] == "timer" and row["oldest_ms"] < window


def _says(words: str) -> str:
    return f'accused = "{words}"\n'


STALE = Hunt(
    "stale_timer",
    _too_early,
    "it left by the timer, and its oldest had not waited the window out",
)
SLIP = Hunt(
    "unit_slip",
    _too_early,
    "it left by the timer, with a GPU free, long before anybody had waited the window out",
)

FERRY_HUNT = Exercise(
    id="01.hunt",
    title="Something is wrong on the dock",
    minutes=8,
    difficulty=2,
    question="Here is a gateway with one fault, and its receipts. Which fault is it?",
    stub="accused = ...\n",
    solution=_says("stale timer"),
    why=(
        "A boat left full, with time still on its clock, and nobody stopped that clock. It rang "
        "for those who boarded later and sent them off half empty. State the instant from the "
        "oldest who waits, each time anew, and there is no clock to forget."
    ),
    hints=(
        "Look for a boat that left by the timer although nobody aboard had waited the window out.",
        "Go back from that boat by one window. What happened then, and who was the first aboard "
        "of which boat?",
        "The boat before it left full after a few milliseconds. Its timer had been started by its "
        "first passenger, and nobody stopped it.",
    ),
    judge=judge_of(STALE),
    mutants=(
        _says("b"),
        _says("the timer restarts on each arrival"),
        _says("unit_slip"),
        _says("the boats are too small"),
        _says("a full boat waits for the timer"),
        _says("stale timer, or the unit is wrong"),
    ),
    alternatives=(
        _says("d"),
        _says("stale_timer"),
        _says("The size flush does not cancel the running timer, so it cuts the next batch short."),
        _says("The clock of the previous full boat still runs and rings for the next."),
    ),
    exhibit=lambda: exhibit(STALE),
    right="that is the fault: a stale timer",
)

CAPACITY_HUNT = Exercise(
    id="03.hunt",
    title="Twice the GPUs, and still too few",
    minutes=8,
    difficulty=2,
    question=(
        "On paper two GPUs are plenty for this load. Here they are busy all morning with boats "
        "that are nearly empty. Which fault is it?"
    ),
    stub="accused = ...\n",
    solution=_says("unit slip"),
    why=(
        "A window of 50 ms was handed to code that counts in a smaller unit, so boats left as soon "
        "as anybody was aboard. Nothing crashed: the fill fell, and with it what every GPU "
        "carries. Capacity bugs look like that. Give durations one unit inside, convert at the "
        "border, and put the unit into the name of a setting."
    ),
    hints=(
        "How long had the oldest waited, on the boats that did not wait for a GPU?",
        "Divide the window by that time. Is it a number you know?",
        "The first boat left after 0.05 ms, and the window is 50 ms: a factor of 1,000.",
    ),
    judge=judge_of(SLIP),
    mutants=(
        _says("d"),
        _says("The timer of the full boat is never cancelled"),
        _says("restarting_timer"),
        _says("There are too few GPUs"),
        _says("unit slip or a restarting timer"),
    ),
    alternatives=(
        _says("a"),
        _says("unit_slip"),
        _says("Somebody wrote the window in milliseconds and somebody else reads microseconds."),
        _says("The window is too short by a factor of a thousand."),
    ),
    exhibit=lambda: exhibit(SLIP),
    right="that is the fault: one unit written, another read",
)
