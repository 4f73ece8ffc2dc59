"""Ten minutes that choose a path: six questions, the time left, which notebooks in which order."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import yaml

from labkit.paths import data_dir
from labkit.teach.pipeline import notebooks_dir, sources

LETTERS = "abcd"


@dataclass(frozen=True, slots=True)
class Question:
    """One question with four choices; `right` is the index of the right one."""

    ask: str
    choices: tuple[str, ...]
    right: int
    notebook: str
    because: str


class Diagnostic:
    """The six questions; `path` turns answers and the time left into a list of notebooks."""

    def __init__(self) -> None:
        text = (data_dir() / "interview/diagnostic.yaml").read_text(encoding="utf-8")
        read = yaml.safe_load(text)
        self.questions = tuple(
            Question(**{**question, "choices": tuple(question["choices"])})
            for question in read["questions"]
        )
        self.paths: dict[str, list[str]] = read["paths"]

    def marks(self, answers: str) -> list[bool | None]:
        """Right, wrong or left out, for answers such as `"a d c - b a"`, a letter a question."""
        letters = answers.lower().replace(",", " ").split()
        if len(letters) == 1 and len(letters[0]) == len(self.questions):
            letters = list(letters[0])
        if len(letters) != len(self.questions) or any(
            letter != "-" and letter not in LETTERS for letter in letters
        ):
            raise ValueError(
                f"answers {answers!r}: give {len(self.questions)} letters from a to d, or - for "
                'a question left out, such as "a d c - b a"'
            )
        return [
            None if letter == "-" else LETTERS.index(letter) == question.right
            for letter, question in zip(letters, self.questions, strict=True)
        ]

    def path(self, marks: Sequence[bool | None], time: str) -> list[str]:
        """Notebook numbers in order: the path for this time without what is known already."""
        if time not in self.paths:
            raise ValueError(f"time {time!r}: choose one of {', '.join(self.paths)}")
        known = {q.notebook for q, mark in zip(self.questions, marks, strict=True) if mark}
        return [number for number in self.paths[time] if number not in known]

    def advice(self, answers: str, time: str) -> "Advice":
        """The path in words, with a line on every question that was missed."""
        marks = self.marks(answers)
        there = {path.stem[:2]: path.stem for path in sources(notebooks_dir())}
        path = self.path(marks, time)
        lines = [f"{sum(m is True for m in marks)} of {len(marks)}. With {time} left:"]
        lines += [f"  {there[number]}" for number in path if number in there] or [
            "  you know these; go on to the interview"
        ]
        for question, mark in zip(self.questions, marks, strict=True):
            if not mark:
                lines.append(
                    f"- {question.ask}\n  {question.choices[question.right]}. {question.because}"
                )
        return Advice("\n".join(lines))

    def __str__(self) -> str:
        lines = []
        for number, question in enumerate(self.questions, 1):
            lines.append(f"{number}. {question.ask}")
            lines.append(
                "   " + "   ".join(map(" ".join, zip(LETTERS, question.choices, strict=True)))
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(
            f"<li style='margin:.5em 0'>{escape(question.ask)}<br>"
            + " &nbsp; ".join(
                f"<b>{letter}</b> {escape(choice)}"
                for letter, choice in zip(LETTERS, question.choices, strict=True)
            )
            + "</li>"
            for question in self.questions
        )
        times = ", ".join(f"<code>{escape(repr(time))}</code>" for time in self.paths)
        return (
            f"<ol>{items}</ol><p>Answer with one letter each, and say how long you have: "
            f'<code>diagnostic("a d c - b a", "a day")</code>; the time is one of {times}.</p>'
        )


@dataclass(frozen=True, slots=True)
class Advice:
    """What the diagnostic suggests, shown as plain lines."""

    text: str

    def __repr__(self) -> str:
        return self.text


def diagnostic(answers: str | None = None, time: str = "a day") -> Any:
    """The six questions; with answers (`"a d c - b a"`) and the time left, a path."""
    asked = Diagnostic()
    return asked if answers is None else asked.advice(answers, time)
