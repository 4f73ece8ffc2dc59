"""`labkit run`: what it refuses, what it leaves alone, and how it tells of a cell that failed."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.teach import runs
from labkit.teach.progress import records

PASSES = """
from labkit.teach.notebook import exercise
exercise("01.hunt").check("stale timer")
"""


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """A small notebook with one parameter, and a learner's folder of one's own."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    cells = [
        new_code_cell("rate = 1", metadata={"tags": ["parameters"]}),
        new_markdown_cell("Words."),
        new_code_cell(PASSES),
        new_code_cell("1 / rate"),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = tmp_path / "small.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def test_a_run_notes_nothing_in_the_learners_progress(notebook, tmp_path, capfd):
    written, report = runs.run(notebook, {"rate": 4}, tmp_path / "out", tmp_path)
    assert "0.25" in written.read_text(encoding="utf-8")
    assert "that is the fault" in report.read_text(encoding="utf-8")
    assert records() == {}
    said = capfd.readouterr().err
    assert "Kernel" not in said
    assert "cell 1 of about 4\n" in said


def test_a_cell_that_fails_is_told_in_one_line_and_the_notebook_kept(notebook, tmp_path):
    with pytest.raises(runs.CellFailed) as caught:
        runs.run(notebook, {"rate": 0}, tmp_path / "out", tmp_path)
    told = "cell 4 of 4, texts counted, `1 / rate`, raised ZeroDivisionError: division by zero"
    assert told in str(caught.value)
    assert str(tmp_path / "out" / "small.ipynb") in str(caught.value)
    assert (tmp_path / "out" / "small.ipynb").is_file()


def test_a_folder_that_cannot_be_made_is_told_without_a_traceback(labkit, tmp_path):
    (tmp_path / "file").touch()
    said = labkit("run", "03", "--out", tmp_path / "file" / "folder")
    assert said.code == 2
    assert "file/folder: Not a directory" in " ".join(said.err.split())
