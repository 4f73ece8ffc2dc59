"""Exercises as a notebook uses them: check, hint, solution, and going on without."""

from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any

from labkit.teach import progress as progress_file
from labkit.teach.exercises import EXERCISES, Exercise, Mark, Verdict
from labkit.teach.exercises.answers import is_stub
from labkit.teach.exercises.bench import Bench, packed
from labkit.teach.page import Page, box, code, inline, show

LABS_OWN = "but this is the lab's own: run the cell with yours again, then check it"

_checked: dict[bytes, Verdict] = {}
"""Verdicts of this session by the answer itself; nothing else is ever trusted."""


@cache
def bench() -> Bench:
    """The process in which this session's answers are checked."""
    return Bench()


class Practice:
    """One exercise in one session.

    `check(answer)` runs the real thing, `hint()` gives the next of three hints, `solution()` opens
    after one attempt, `show()` shows what the question is about.
    """

    def __init__(self, exercise: Exercise) -> None:
        self.exercise = exercise
        self.attempts = 0
        self.hints = 0

    def check(self, answer: Any) -> Verdict:
        """The verdict on an answer; it shows itself.

        The lab's own, put in the learner's name by `use`, is told from an answer and not noted.
        """
        verdict = self.exercise.not_attempted() if is_stub(answer) else _verdict(self.id, answer)
        if self.exercise.made(answer):
            return replace(verdict, line=f"{verdict.line}; {LABS_OWN}")
        self.attempts += verdict.mark is not Mark.NOT_ATTEMPTED
        progress_file.note_check(self.id, verdict.mark)
        return verdict

    def hint(self) -> Page:
        """The next hint; the last one stays."""
        hints = self.exercise.hints
        self.hints = min(self.hints + 1, len(hints))
        progress_file.note_hint(self.id, self.hints)
        left = len(hints) - self.hints
        more = f"{left} more" if left else "that was the last; `solution()` is there too"
        head = f"hint {self.hints} of {len(hints)}"
        return _page(head, hints[self.hints - 1], f"({more})")

    def solution(self) -> Page:
        """One right answer and why it is right; asks for one attempt first."""
        seen = progress_file.records().get(self.id)
        if not self.attempts and (seen is None or not seen.attempts):
            said = "check one answer of your own first; a wrong one will do, and teaches more"
            return _page("not yet", said, "")
        progress_file.note_solution(self.id)
        source = self.exercise.solution
        text = f"{self.id} one solution:\n\n{source}\n{_plain(self.exercise.why)}"
        head = f"<div><strong>one solution</strong> {self.id}</div>"
        return Page(text, box(f"{head}{code(source)}<p>{inline(self.exercise.why)}</p>"))

    def show(self) -> None:
        """Show what the question is about: the openings, the receipts, or the question itself."""
        if self.exercise.exhibit is None:
            show(self._page())
            return
        page, trace = self.exercise.exhibit()
        show(page)
        if trace is not None:
            from labkit.viz.dock import Dock

            show(Dock(trace))

    def answers(self) -> Any:
        """The reference: a function, or a value."""
        return self.exercise.reference()

    @property
    def id(self) -> str:
        """Its notebook and its name."""
        return self.exercise.id

    def _page(self) -> Page:
        ex = self.exercise
        head = f"{ex.title} ({ex.id}, {ex.minutes} minutes, difficulty {ex.difficulty} of 3)"
        return _page(head, ex.question, "")

    def __repr__(self) -> str:
        return self._page().text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return self._page()._repr_mimebundle_()


@cache
def _practice(exercise_id: str) -> Practice:
    return Practice(_known(exercise_id))


def exercise(exercise_id: str) -> Practice:
    """An exercise to work on, the same one however often it is asked for in a session."""
    found = _practice(exercise_id)
    # Early, so that the second it takes to start is over when the first check comes.
    bench().start()
    return found


def use(exercise_id: str, answer: Any) -> Any:
    """The learner's own answer when it passes, else the lab's, and a line that says which."""
    chosen = _known(exercise_id)
    if chosen.made(answer):
        show(_line(f"{exercise_id}: the lab's own is in use", "dotted"))
        return answer
    verdict = chosen.not_attempted() if is_stub(answer) else _verdict(exercise_id, answer, True)
    if verdict.passed:
        show(_line(f"{exercise_id}: yours from here on", "solid"))
        return answer
    how = {
        Mark.NOT_ATTEMPTED: "yours is not written yet",
        Mark.FAILED: "yours does not pass yet",
        Mark.RAISED: "yours does not run to its end yet",
    }[verdict.mark]
    show(_line(f"{exercise_id}: the lab's own from here on; {how}", "dotted"))
    return chosen.reference()


def _verdict(exercise_id: str, answer: Any, known_is_enough: bool = False) -> Verdict:
    """The verdict, from the bench or, where that is enough, from earlier in this session."""
    payload = packed(exercise_id, answer)
    if isinstance(payload, Verdict):
        return payload
    key = sha256(payload).digest()
    if known_is_enough and key in _checked:
        return _checked[key]
    verdict = bench().check(exercise_id, answer)
    if verdict.mark in (Mark.PASSED, Mark.FAILED):
        _checked[key] = verdict
    return verdict


def _known(exercise_id: str) -> Exercise:
    if exercise_id not in EXERCISES:
        known = ", ".join(EXERCISES)
        raise KeyError(f"no exercise {exercise_id!r}; there are {known}")
    return EXERCISES[exercise_id]


def _page(head: str, body: str, foot: str) -> Page:
    text = f"{head}: {_plain(body)} {_plain(foot)}".rstrip()
    last = f' <span style="opacity:.75">{inline(foot)}</span>' if foot else ""
    return Page(text, box(f"<strong>{inline(head)}</strong> {inline(body)}{last}", "dotted"))


def _line(words: str, line: str) -> Page:
    return Page(words, box(inline(words), line))


def _plain(text: str) -> str:
    return text.replace("`", "")
