"""The committed notebooks: what their sources give, tidy, and fit to be read by anybody."""

import ast
from pathlib import Path

import nbformat
import pytest

from labkit.teach.lints import reading_problems, tidy_problems
from labkit.teach.pipeline import drift

FOLDER = Path(__file__).parents[2] / "notebooks"
COMMITTED = sorted([*FOLDER.glob("*.ipynb"), *(FOLDER / "solved").glob("*.ipynb")])
SOURCES = sorted((FOLDER / "src").glob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def test_every_notebook_is_what_its_source_gives():
    assert drift(FOLDER) == []


@pytest.mark.parametrize("path", COMMITTED, ids=named)
def test_it_is_tidy(path):
    assert tidy_problems(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", COMMITTED, ids=named)
def test_it_reads_well_and_every_picture_has_words(path):
    assert reading_problems(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", COMMITTED, ids=named)
def test_it_is_a_valid_notebook(path):
    nbformat.validate(nbformat.read(path, as_version=4))


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_its_source_is_python(path):
    ast.parse(path.read_text(encoding="utf-8"))
