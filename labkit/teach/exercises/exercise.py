"""One exercise: a question, a stub, three hints, a check that runs the real thing, a solution."""

import ast
import inspect
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis.errors import Flaky

from labkit.teach.exercises.answers import is_stub, shown
from labkit.teach.exercises.guard import (
    ChangedArgument,
    Guarded,
    OutOfSteps,
    Raised,
    fingerprint,
    tampered,
)
from labkit.teach.exercises.verdict import Case, Mark, NotAttempted, Refuted, Verdict
from labkit.teach.page import Page

Judge = Callable[[Any], None]


@dataclass(frozen=True)
class Exercise:
    """One thing to build, and everything needed to check the answer and the check itself.

    `stub`, `solution`, `mutants` and `alternatives` are sources of one function, or of one
    assignment where the answer is a value; a mutant is a plausible wrong answer, an alternative a
    right one written differently. `judge` is handed the learner's guarded function, or the value:
    it returns when the answer is right and raises `Refuted` with the smallest case when it is not.
    `exhibit` makes the page that the question is about, where there is one.
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
    exhibit: Callable[[], tuple[Page, Any]] | None = field(default=None, repr=False)
    right: str = "every case agrees with the rule"

    @property
    def is_function(self) -> bool:
        """Whether the answer is a function, rather than a value."""
        return isinstance(_defined(self.stub), ast.FunctionDef)

    @property
    def name(self) -> str:
        """The name of what is to be written."""
        node = _defined(self.stub)
        if isinstance(node, ast.FunctionDef):
            return node.name
        assert isinstance(node, ast.Assign)
        assert isinstance(node.targets[0], ast.Name)
        return node.targets[0].id

    @property
    def notebook(self) -> str:
        """The number of the notebook it stands in."""
        return self.id.split(".")[0]

    def compiled(self, source: str, place: str | None = None) -> Any:
        """The function, or the value, that a source of this exercise defines."""
        names: dict[str, Any] = {"__name__": f"labkit_{self.id.replace('.', '_')}"}
        place = place or f"<{self.id}>"
        exec(compile(source, place, "exec"), names)
        # So that inspect.getsource and tracebacks show the source too.
        linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
        return names[self.name]

    @property
    def _own_place(self) -> str:
        return f"<labkit {self.id}>"

    def reference(self) -> Any:
        """The solution as a function, or as the value."""
        return self.compiled(self.solution, self._own_place)

    def made(self, answer: Any) -> bool:
        """Whether this function is the lab's own, handed out by `reference`."""
        written = getattr(answer, "__code__", None)
        return getattr(written, "co_filename", None) == self._own_place

    def judged(self, answer: Any) -> Verdict:
        """The verdict on an answer, the same on every run; never an exception.

        Runs in this process: `bench.check` does the same where it can be stopped.
        """
        if is_stub(answer):
            return self.not_attempted()
        if not self.is_function:
            return self._tried(lambda: self.judge(answer), None)
        if not callable(answer):
            what = f"{shown(answer)} is not a function; define {self.name} and hand it over"
            return Verdict(self.id, Mark.RAISED, what)
        if problem := self._signature_problem(answer):
            return Verdict(self.id, Mark.RAISED, problem)
        guarded = Guarded(answer, self.name)
        return self._tried(lambda: self.judge(guarded), guarded)

    def not_attempted(self) -> Verdict:
        """The verdict on a stub."""
        return Verdict(self.id, Mark.NOT_ATTEMPTED, f"write {self.name}, then check it")

    def _tried(self, judge: Callable[[], None], guarded: Guarded | None) -> Verdict:
        mark, line, case = Mark.PASSED, self.right, None
        before = fingerprint()
        try:
            judge()
        except NotAttempted:
            return self.not_attempted()
        except Refuted as refuted:
            mark, line, case = Mark.FAILED, refuted.case.why, refuted.case
        except ChangedArgument as error:
            mark, line = Mark.FAILED, str(error)
        except Flaky:
            mark, line = Mark.RAISED, "it gave two different answers to the same question"
        except (OutOfSteps, Raised) as error:
            mark, line = Mark.RAISED, str(error)
        except Exception as error:
            mark = Mark.RAISED
            line = f"what came back could not be read ({type(error).__name__}: {error})"
        if name := tampered(before):
            mark, case = Mark.RAISED, None
            line = f"your code changed {name}; a check needs the lab as it is"
        return Verdict(self.id, mark, line, case, guarded.printed.text if guarded else "")

    def _signature_problem(self, function: Callable[..., Any]) -> str | None:
        wanted = list(inspect.signature(self.reference()).parameters)
        try:
            inspect.signature(function).bind(*wanted)
        except TypeError:
            return f"{self.name} takes ({', '.join(wanted)}); yours takes other arguments"
        except Exception:
            return None
        return None


def _defined(source: str) -> ast.stmt:
    """The function or the assignment that a source is there for: the last one."""
    return ast.parse(source).body[-1]


__all__ = ["Case", "Exercise", "Judge", "Mark", "NotAttempted", "Refuted", "Verdict"]
