"""Run a notebook with other parameters: strict about names and types, with a report to hand on."""

import ast
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

TEMPLATE = "classic"
"""The one template of nbconvert that hands on the alternative text of a picture."""

QUIET = ["--log-level=CRITICAL"]
"""What the kernel says of its wire and of its end would only frighten; cells have their own way."""

TELL_EVERY = 10
"""Cells between two lines on how far a run is."""

Value = bool | int | float | str


class ParameterError(ValueError):
    """A parameter the notebook does not have, or a value of another type."""


class CellFailed(Exception):
    """A cell of the notebook raised: which cell, what it said, and where the notebook lies."""


def parameters(nb: NotebookNode) -> dict[str, Value]:
    """The names and defaults in the cell tagged `parameters`; only literals count."""
    found: dict[str, Value] = {}
    for cell in nb.cells:
        if "parameters" not in cell.metadata.get("tags", []):
            continue
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                name = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(name, ast.Name) and (value := _literal(node.value)) is not None:
                    found[name.id] = value
    return found


def _literal(node: ast.expr) -> Value | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, bool | int | float | str) else None


def chosen(given: tuple[str, ...], defaults: dict[str, Value]) -> dict[str, Value]:
    """`key=value` texts as values of the defaults' types; refuses every other name and type."""
    values = {}
    for text in given:
        name, equals, word = text.partition("=")
        if not equals:
            raise ParameterError(f"{text!r} has no '=': write -p name=value")
        if name not in defaults:
            known = ", ".join(f"{key}={value!r}" for key, value in defaults.items()) or "none"
            raise ParameterError(f"no parameter {name!r}; this notebook has: {known}")
        values[name] = _as(type(defaults[name]), name, word)
    return values


def _as(kind: type, name: str, word: str) -> Value:
    try:
        if kind is bool:
            return {"true": True, "false": False}[word.lower()]
        if kind is str:
            return word
        value: Value = kind(word)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ParameterError(f"{name}={word!r}: {name} is {wanted}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ParameterError(f"{name}={word!r}: {name} must be finite")
    return value


def run(path: Path, values: dict[str, Value], out: Path, cwd: Path) -> tuple[Path, Path]:
    """Execute the notebook with these values; returns the notebook and its HTML report.

    Nothing is noted in the learner's progress: the answers that it checks are not the learner's.
    Raises CellFailed; the notebook is kept as far as it came.
    """
    import papermill
    from nbconvert import HTMLExporter
    from papermill.exceptions import PapermillExecutionError

    out.mkdir(parents=True, exist_ok=True)
    result = out / path.name
    try:
        with _strangers_home():
            papermill.execute_notebook(
                path,
                result,
                parameters=values,
                kernel_name="python3",
                cwd=str(cwd),
                progress_bar=sys.stderr.isatty(),
                extra_arguments=QUIET,
                on_cell_start=_teller(path),
            )
    except PapermillExecutionError as error:
        raise CellFailed(
            f"{_which(path, error, bool(values))} raised {error.ename}: {error.evalue}; {result} "
            "holds the notebook as far as it came"
        ) from error
    nb: Any = nbformat.read(result, as_version=4)
    nb.metadata.pop("widgets", None)
    body, _ = HTMLExporter(template_name=TEMPLATE).from_notebook_node(nb)
    report = result.with_suffix(".html")
    report.write_text(body, encoding="utf-8")
    return result, report


def _which(path: Path, error: Any, injected: bool) -> str:
    """The cell that raised, by its place in the notebook as it is, and how it begins."""
    cells = nbformat.read(path, as_version=4).cells
    tagged = (n for n, one in enumerate(cells) if "parameters" in one.metadata.get("tags", []))
    # The values that were given stand in a cell of their own, behind the parameters.
    more = injected and error.cell_index > next(tagged, len(cells))
    begins = next(iter(error.source.strip().splitlines()), "")
    return f"cell {error.cell_index - more + 1} of {len(cells)}, texts counted, `{begins}`,"


def _teller(path: Path) -> Callable[..., None] | None:
    """Says every few cells how far a run is, where no bar can be drawn."""
    if sys.stderr.isatty():
        return None
    total = len(nbformat.read(path, as_version=4).cells)

    def tell(cell: NotebookNode, cell_index: int) -> None:
        if cell_index % TELL_EVERY == 0:
            sys.stderr.write(f"cell {cell_index + 1} of about {total}\n")
            sys.stderr.flush()

    return tell


@contextmanager
def _strangers_home() -> Iterator[None]:
    """An empty `LABKIT_HOME` for the kernels started inside, which inherit the environment."""
    before = os.environ.get("LABKIT_HOME")
    with tempfile.TemporaryDirectory(prefix="labkit-home-") as home:
        os.environ["LABKIT_HOME"] = home
        try:
            yield
        finally:
            os.environ.pop("LABKIT_HOME")
            if before is not None:
                os.environ["LABKIT_HOME"] = before
