"""What a notebook must be to be shown: tidy outputs, prose that reads well, pictures with words."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from nbformat import NotebookNode, writes

MOST_BYTES = 500_000
MOST_CELL_LINES = 15
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_PATH = re.compile(
    r"(?<![\w./:-])/(?:home|Users|root|tmp|work|private|opt|usr|var|mnt)/\w|\b[A-Z]:\\\\?\w"
)
_TIMING = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)\s?(ms|µs|us|s|seconds?|req/s)\b")
_LABEL = re.compile(r"\((?:assumed|computed|contract|measured|published|rule of thumb)\b[^)]*\)")
_MAGIC = re.compile(r"^\s*[!%]", re.MULTILINE)
_BARE_IMAGE = re.compile(r"!\[\s*\]\(|<img(?![^>]*\balt=)")

CONTRACT = {"50 ms", "100 ms", "200 ms", "500 ms", "100 req/s", "10,000 req/s", "10000 req/s"}
"""What the question itself gives; every other timing in prose says where it comes from."""


# -- outputs ---------------------------------------------------------------------------------------


def tidy_problems(nb: NotebookNode) -> list[str]:
    """Why this executed notebook is not fit to be committed; empty when it is."""
    problems = [*_count_problems(nb), *_output_problems(nb)]
    if (size := len(writes(nb))) > MOST_BYTES:
        problems.append(f"{size:,} bytes, over {MOST_BYTES:,}")
    if "widgets" in nb.metadata:
        problems.append("widget state in its metadata")
    return problems


def _count_problems(nb: NotebookNode) -> Iterator[str]:
    counts = [cell.execution_count for cell in _code(nb)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"executed in the order {counts}, not 1 to {len(counts)}"


def _output_problems(nb: NotebookNode) -> Iterator[str]:
    for cell in _code(nb):
        meant = "raises-exception" in cell.metadata.get("tags", [])
        for output in cell.outputs:
            if output.output_type == "error" and not meant:
                yield f"cell {cell.id} raised {output.ename}: {output.evalue}"
            if WIDGET_VIEW in output.get("data", {}):
                yield f"cell {cell.id} keeps a view of a widget that is gone"
            for text in _texts(output):
                if found := _PATH.search(text):
                    near = text[found.start() : found.start() + 40]
                    yield f"cell {cell.id} prints a path of this machine: {near!r}"
                if re.search(r" at 0x[0-9a-f]{6,}", text):
                    yield f"cell {cell.id} prints an address in memory"


def _texts(output: NotebookNode) -> Iterator[str]:
    yield output.get("text", "")
    for mime, value in output.get("data", {}).items():
        if mime.startswith("text/") and isinstance(value, str):
            yield value


# -- reading ---------------------------------------------------------------------------------------


def reading_problems(nb: NotebookNode) -> list[str]:
    """What stands between this notebook and a reader; empty when nothing does."""
    return [
        *_heading_problems(nb),
        *_picture_problems(nb),
        *_prose_problems(nb),
        *_code_problems(nb),
    ]


def _heading_problems(nb: NotebookNode) -> Iterator[str]:
    levels = [
        (len(found[1]), found[2])
        for cell in nb.cells
        if cell.cell_type == "markdown"
        for found in re.finditer(r"^(#{1,6}) +(.+)$", _without_code(cell.source), re.MULTILINE)
    ]
    titles = [text for level, text in levels if level == 1]
    if len(titles) != 1 or levels[0][0] != 1:
        yield f"{len(titles)} headings of the first level; one, and it comes first"
    for (above, _), (level, text) in pairwise(levels):
        if level > above + 1:
            yield f"heading {text!r} of level {level} follows one of level {above}"


def _picture_problems(nb: NotebookNode) -> Iterator[str]:
    for cell in _code(nb):
        for output in cell.outputs:
            if not any(mime.startswith("image/") for mime in output.get("data", {})):
                continue
            alt = output.metadata.get("image/png", {}).get("alt", "")
            if len(alt.split()) < 4:
                yield f"cell {cell.id} shows a picture without a sentence: show a labkit Picture"
    for cell in nb.cells:
        if cell.cell_type == "markdown" and _BARE_IMAGE.search(cell.source):
            yield f"cell {cell.id} shows an image without alternative text"


def _prose_problems(nb: NotebookNode) -> Iterator[str]:
    """A timing typed in prose is wrong the day the code changes, unless it says its origin."""
    for cell in nb.cells:
        if cell.cell_type != "markdown":
            continue
        for paragraph in re.split(r"\n\s*\n", _without_code(cell.source)):
            if _LABEL.search(paragraph):
                continue
            for number, unit in _TIMING.findall(paragraph):
                if f"{number} {unit}" not in CONTRACT:
                    yield (
                        f"cell {cell.id} types {number} {unit} in prose: print it from the code, "
                        "or label it: (computed), (measured on ...), (published), (assumed)"
                    )


def _code_problems(nb: NotebookNode) -> Iterator[str]:
    for cell in _code(nb):
        if _MAGIC.search(cell.source):
            yield f"cell {cell.id} calls a shell or a magic: a library function must do it"
            continue
        lines = len([line for line in cell.source.splitlines() if line.strip()])
        if lines > MOST_CELL_LINES:
            yield f"cell {cell.id} has {lines} lines, over {MOST_CELL_LINES}"
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                yield f"cell {cell.id} imports *: name what it uses"
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
                yield f"cell {cell.id} touches sys.path"


def _without_code(markdown: str) -> str:
    return re.sub(r"```.*?```|`[^`]*`", "", markdown, flags=re.DOTALL)


def _code(nb: NotebookNode) -> list[Any]:
    return [cell for cell in nb.cells if cell.cell_type == "code"]
