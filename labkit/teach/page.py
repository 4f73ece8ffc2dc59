"""A small page of text: the same words for a terminal and, as quiet HTML, for a notebook."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

CELL = "padding:2px 16px 2px 0;border:0;text-align:left;vertical-align:top"
HEAD = f"{CELL};font-weight:600;border-bottom:1px solid var(--jp-border-color1,currentColor)"


@dataclass(frozen=True, slots=True)
class Page:
    """What a notebook shows: `text` where there is only text, `html` where there is more."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}


def show(thing: Any) -> None:
    """Display in a notebook, print elsewhere."""
    if "IPython" in sys.modules:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            display(thing)
            return
    print(thing)


def inline(text: str) -> str:
    """Text as HTML, with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def box(body: str, line: str = "solid") -> str:
    """HTML beside a thin line; `line` is solid, dashed or dotted, so that grey tells it too."""
    style = (
        f"border-left:2px {line} currentColor;padding:2px 0 2px 12px;margin:4px 0;"
        "color:var(--jp-content-font-color1,inherit);font-variant-numeric:tabular-nums"
    )
    return f'<div style="{style}">{body}</div>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without a frame."""
    top = "".join(f'<th scope="col" style="{HEAD}">{inline(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{CELL}">{inline(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return (
        '<table style="margin:6px 0 2px;font-size:inherit;border-collapse:collapse">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    )


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The same as lines of text, indented by two."""
    every = (head, *rows)
    widths = [max(len(row[i]) for row in every) for i in range(len(head))]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]


def code(source: str) -> str:
    """Source as HTML."""
    return f'<pre style="margin:6px 0"><code>{escape(source.rstrip())}</code></pre>'
