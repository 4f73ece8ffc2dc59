"""What a check says: a mark, one line, and the smallest case that shows it."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

from labkit.core.messages import Depart
from labkit.core.trace import Trace
from labkit.teach.page import box, html_table, inline, text_table

MOST_ROWS = 5
"""Rows of a case's table: more is a wall."""


class Mark(StrEnum):
    """How a check ends."""

    NOT_ATTEMPTED = "not attempted"
    FAILED = "failed"
    PASSED = "passed"
    RAISED = "raised"


SIGNS = {Mark.NOT_ATTEMPTED: "○", Mark.FAILED: "✗", Mark.PASSED: "✓", Mark.RAISED: "△"}
LINES = {
    Mark.NOT_ATTEMPTED: "dotted",
    Mark.FAILED: "dashed",
    Mark.PASSED: "solid",
    Mark.RAISED: "dashed",
}


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

    @classmethod
    def tabled(
        cls,
        why: str,
        head: Sequence[str],
        rows: Sequence[Sequence[object]],
        yours: Trace | None = None,
        rule: Trace | None = None,
    ) -> "Case":
        """A case with its table cut to five rows, the last of which says how many are left out."""
        shown = [tuple(str(cell) for cell in row) for row in rows]
        if len(shown) > MOST_ROWS:
            kept = MOST_ROWS - 1
            more = f"and {len(shown) - kept} more"
            shown = [*shown[:kept], (more, *[""] * (len(head) - 1))]
        return cls(why, tuple(head), tuple(shown), yours, rule)


class Refuted(Exception):
    """Raised by a judge that has found the smallest failing case."""

    def __init__(self, case: Case | str) -> None:
        self.case = Case(case) if isinstance(case, str) else case
        super().__init__(self.case.why)


class NotAttempted(Exception):
    """Raised when the learner's answer is still the stub."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check says: a mark, one line, and the case that shows it.

    In a notebook it shows itself: one line, a small table, and the case on the dock.
    """

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
            lines += text_table(self.case.head, self.case.rows)
        if self.printed:
            lines += ["your code printed:", textwrap.indent(self.printed.rstrip(), "  ")]
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """One line, then the table, then what the learner's code printed."""
        sign = f'<span aria-hidden="true">{SIGNS[self.mark]}</span>'
        name = f'<span style="opacity:.75">{escape(self.exercise_id)}</span>'
        parts = [f"<div>{sign} <strong>{self.mark}</strong> {name} {inline(self.line)}</div>"]
        if self.case and self.case.rows:
            parts.append(html_table(self.case.head, self.case.rows))
        if self.printed:
            parts.append(
                "<details><summary>what your code printed</summary>"
                f"<pre>{escape(self.printed)}</pre></details>"
            )
        return box("".join(parts), LINES[self.mark])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self.html}

    def dock(self) -> Any:
        """The failing case to play, yours above the rule's; None when it has no boats."""
        case = self.case
        if case is None or case.yours is None or case.rule is None:
            return None
        from labkit.viz.dock import Dock

        return Dock({"yours": case.yours, "the rule": case.rule}, parting(case.yours, case.rule))

    def _ipython_display_(self) -> None:
        """The verdict, and under it the dock: one output cannot hold both."""
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        if (dock := self.dock()) is not None:
            display(dock)


def parting(yours: Trace, rule: Trace) -> int | None:
    """The first instant (microseconds) at which only one of the two lets a batch leave."""
    mine, theirs = (
        {(now, *(row.id for row in c.rows)) for now, c in trace.commands() if isinstance(c, Depart)}
        for trace in (yours, rule)
    )
    return min((departure[0] for departure in mine ^ theirs), default=None)
