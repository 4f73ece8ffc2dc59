"""One exercise: a question, a stub, three hints, a check that runs the real thing, a solution."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from labkit.core.trace import Trace
from labkit.teach.exercises.guard import (
    ChangedArgument,
    Guarded,
    OutOfSteps,
    Raised,
)


class Mark(StrEnum):
    """How a check ends."""

    NOT_ATTEMPTED = "not attempted"
    FAILED = "failed"
    PASSED = "passed"
    RAISED = "raised"


@dataclass(frozen=True, slots=True)
class Case:
    """The smallest case on which an answer and the rule differ.

    `head` and `rows` are a table of at most five rows ("arrivals", "yours", "the rule"); `yours`
    and `rule` are the traces of both, for the dock.
    """

    why: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    yours: Trace | None = None
    rule: Trace | None = None


class Refuted(Exception):
    """Raised by a judge that has found the smallest failing case."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.why)
        self.case = case


class NotAttempted(Exception):
    """Raised when the learner's function is still the stub."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check says: a mark, one line, and the case that shows it."""

    exercise_id: str
    mark: Mark
    line: str
    case: Case | None = None
    printed: str = ""

    @property
    def passed(self) -> bool:
        """Whether the learner's own answer is right."""
        return self.mark is Mark.PASSED

    def __str__(self) -> str:
        lines = [f"{self.exercise_id} {self.mark}: {self.line}"]
        if self.case and self.case.rows:
            table = (self.case.head, *self.case.rows)
            widths = [max(len(row[i]) for row in table) for i in range(len(self.case.head))]
            lines += [
                "  "
                + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
                for row in table
            ]
        if self.printed:
            lines += ["your code printed:", textwrap.indent(self.printed.rstrip(), "  ")]
        return "\n".join(lines)


Judge = Callable[[Guarded], None]


@dataclass(frozen=True)
class Exercise:
    """One thing to build, and everything needed to check the answer and the check itself.

    `stub`, `solution`, `mutants` and `alternatives` are sources of one function; a mutant is a
    plausible wrong answer, an alternative a right one written differently. `judge` is handed the
    learner's guarded function: it returns when the answer is right and raises `Refuted` with the
    smallest case when it is not.
    """

    id: str
    title: str
    minutes: int
    difficulty: int
    question: str
    stub: str
    solution: str
    why: str
    hints: tuple[str, str, str]
    judge: Judge = field(repr=False)
    mutants: tuple[str, ...] = field(default=(), repr=False)
    alternatives: tuple[str, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """The name of the function to write."""
        return next(n.name for n in ast.parse(self.stub).body if isinstance(n, ast.FunctionDef))

    @property
    def notebook(self) -> str:
        """The number of the notebook it stands in."""
        return self.id.split(".")[0]

    def compiled(self, source: str) -> Callable[..., Any]:
        """The function that a source of this exercise defines."""
        names: dict[str, Any] = {}
        exec(compile(source, f"<{self.id}>", "exec"), names)
        function: Callable[..., Any] = names[self.name]
        return function

    def reference(self) -> Callable[..., Any]:
        """The solution as a function."""
        return self.compiled(self.solution)

    def judged(self, function: Callable[..., Any]) -> Verdict:
        """The verdict on a function, the same on every run; never an exception.

        Runs in this process: `bench.check` does the same where it can be stopped.
        """
        if not callable(function):
            what = f"{function!r} is not a function; define {self.name} and hand it over"
            return Verdict(self.id, Mark.RAISED, what)
        if problem := self._signature_problem(function):
            return Verdict(self.id, Mark.RAISED, problem)
        guarded = Guarded(function)
        mark, line, case = Mark.PASSED, "every case agrees with the rule", None
        try:
            self.judge(guarded)
        except NotAttempted:
            mark, line = Mark.NOT_ATTEMPTED, f"write {self.name} above, then check again"
        except Refuted as refuted:
            mark, line, case = Mark.FAILED, refuted.case.why, refuted.case
        except ChangedArgument as error:
            mark, line = Mark.FAILED, str(error)
        except (OutOfSteps, Raised) as error:
            mark, line = Mark.RAISED, str(error)
        return Verdict(self.id, mark, line, case, guarded.printed.text)

    def _signature_problem(self, function: Callable[..., Any]) -> str | None:
        wanted = list(inspect.signature(self.reference()).parameters)
        try:
            inspect.signature(function).bind(*wanted)
        except TypeError:
            return f"{self.name} takes ({', '.join(wanted)}); yours takes other arguments"
        except ValueError:
            return None
        return None


def attempted(answer: Any) -> Any:
    """The learner's answer; raises `NotAttempted` for the stub's ellipsis."""
    if answer is ...:
        raise NotAttempted
    return answer


def whole(answer: Any, what: str, given: str) -> int:
    """A whole number, or `Refuted` saying what came instead."""
    attempted(answer)
    if isinstance(answer, bool) or not isinstance(answer, int):
        kind = type(answer).__name__
        hint = "; did you forget to return?" if answer is None else ""
        raise Refuted(Case(f"{given}: got {answer!r} ({kind}), but {what} is a whole number{hint}"))
    return answer


def number(answer: Any, what: str, given: str) -> float:
    """A finite number, or `Refuted` saying what came instead."""
    attempted(answer)
    good = isinstance(answer, int | float) and not isinstance(answer, bool)
    if not good or answer != answer or answer in (float("inf"), float("-inf")):
        hint = "; did you forget to return?" if answer is None else ""
        raise Refuted(Case(f"{given}: got {answer!r}, but {what} is a finite number{hint}"))
    return answer


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, Any]:
    """The table of a `Case`, cut to five rows."""
    return {
        "head": tuple(head),
        "rows": tuple(tuple(str(cell) for cell in row) for row in rows[:5]),
    }
