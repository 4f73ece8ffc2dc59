"""One source becomes two notebooks, the same every time, and a difference is found."""

import json
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from nbconvert import HTMLExporter

from labkit.cli.notebooks import notebooks
from labkit.cli.run import run
from labkit.teach import pipeline
from labkit.teach.lints import tidy_problems
from labkit.teach.pipeline import SourceError, notebook, solve
from labkit.teach.runs import TEMPLATE

SOURCE = '''# %% [markdown]
# # Who waits longest?
# A short paragraph.

# %% tags=["parameters"]
riders: int = 3
pace: float = 2.5
name: str = "quiet"
loud: bool = False

# %% [markdown]
# ## Predict, then look

# %% tags=["answer"]
print(riders * pace, name, loud)

# %% exercise="01.double"
def double(n):
    """Twice as many."""
    # solution
    return 2 * n
    # stub
    # return ...  # twice n

# %%
print("one")
print("two")
double(riders)

# %% only="solved"
from labkit.core.settings import Settings
from labkit.teach.notebook import dock
from labkit.viz import run_by_hand

dock(run_by_hand([0, 9_000], Settings(max_batch=6)))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notebooks"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "01_double.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(pipeline, "notebooks_dir", lambda: folder)
    return folder


def texts(nb):
    return [cell.source for cell in nb.cells]


def test_the_learner_gets_the_stub_and_the_solved_notebook_the_solution(folder):
    source = folder / "src" / "01_double.py"
    learner, solved = notebook(source, "learner"), notebook(source, "solved")
    assert (
        texts(learner)[4] == 'def double(n):\n    """Twice as many."""\n    return ...  # twice n'
    )
    assert texts(solved)[4] == 'def double(n):\n    """Twice as many."""\n    return 2 * n'
    assert len(solved.cells) == len(learner.cells) + 1


def test_the_answer_to_a_prediction_is_folded_for_the_learner_alone(folder):
    source = folder / "src" / "01_double.py"
    assert notebook(source, "learner").cells[3].metadata["jupyter"] == {"outputs_hidden": True}
    assert "jupyter" not in notebook(source, "solved").cells[3].metadata


def test_ids_come_from_headings_and_are_the_same_every_time(folder):
    source = folder / "src" / "01_double.py"
    first, second = notebook(source, "solved"), notebook(source, "solved")
    assert nbformat.writes(first) == nbformat.writes(second)
    assert [cell.id for cell in first.cells][:4] == [
        "who-waits-longest-1",
        "who-waits-longest-2",
        "predict-then-look-1",
        "predict-then-look-2",
    ]
    nbformat.validate(first)


@pytest.mark.parametrize(
    ("cell", "learner", "solved"),
    [
        ("a = 1\n# solution\nb = 2", "a = 1\n...", "a = 1\nb = 2"),
        ("# solution\nb = 2\n# stub\n# b = ...\n#\n# c", "b = ...\n\nc", "b = 2"),
        ("# solution\nb = 2\n# end\nc = 3", "...\nc = 3", "b = 2\nc = 3"),
        ("if a:\n    # solution\n    b = 2", "if a:\n    ...", "if a:\n    b = 2"),
        ("# solution\na\n# stub\n# b\n# end\n# solution\nc", "b\n...", "a\nc"),
    ],
)
def test_markers_part_the_solution_from_the_stub(cell, learner, solved):
    assert solve(cell, "learner", "here") == learner
    assert solve(cell, "solved", "here") == solved


def test_an_exercise_without_markers_is_refused_by_name():
    with pytest.raises(SourceError, match=r"01_x\.py, exercise 01\.a: no `# solution` line"):
        solve("a = 1", "learner", "01_x.py, exercise 01.a")


def test_a_stub_that_would_run_in_the_source_is_refused():
    with pytest.raises(SourceError, match="'b = 3' after `# stub` is not commented out"):
        solve("# solution\nb = 2\n# stub\nb = 3", "learner", "here")


def test_an_unknown_tag_is_refused_with_those_there_are(folder):
    source = folder / "src" / "01_double.py"
    source.write_text('# %% tags=["skip"]\n1', encoding="utf-8")
    with pytest.raises(SourceError, match="unknown tag skip; one of answer, gpu-extra, live"):
        notebook(source, "learner")


def test_the_cell_that_names_the_machine_is_never_compared(folder):
    source = folder / "src" / "01_double.py"
    source.write_text('# %%\nstart("01")\n\n# %%\nrestart(1)', encoding="utf-8")
    cells = notebook(source, "solved").cells
    kept = [cell.metadata for cell in cells if cell.id != "setup"]
    assert kept == [{"tags": ["nbval-ignore-output"]}, {}]


def test_the_setup_cell_installs_the_extras_that_the_notebook_names(folder):
    source = folder / "src" / "01_double.py"
    for head, extras in (("# %%", "[lab]"), ('# %% extras="http"', "[lab,http]")):
        source.write_text(f'# %% [markdown]\n# # One\n\n{head}\nstart("01")', encoding="utf-8")
        setup, starts = notebook(source, "learner").cells[1:]
        assert f'"install", "-q", f"{{wheel}}{extras}"])' in setup.source
        assert starts.metadata == {"tags": ["nbval-ignore-output"]}


def test_drift_says_what_differs_and_how_to_mend_it(folder):
    source = folder / "src" / "01_double.py"
    assert pipeline.drift(folder) == [
        "01_double.ipynb is missing: labkit notebooks build 01_double",
        "solved/01_double.ipynb is missing: labkit notebooks build 01_double",
    ]
    pipeline.build(source, folder, run=False)
    assert pipeline.drift(folder) == []
    source.write_text(SOURCE.replace("return 2 * n", "return n + n"), encoding="utf-8")
    assert pipeline.drift(folder) == [
        "solved/01_double.ipynb differs from src/01_double.py in cell predict-then-look-3: "
        "labkit notebooks build 01_double"
    ]
    (folder / "02_lost.ipynb").write_text("{}")
    assert pipeline.drift(folder)[1:] == ["02_lost.ipynb has no source in src/: remove it"]


def test_the_check_fails_on_drift_and_passes_without(folder):
    assert CliRunner().invoke(notebooks, ["check"]).exit_code == 1
    pipeline.build(folder / "src" / "01_double.py", folder, run=False)
    result = CliRunner().invoke(notebooks, ["check"])
    assert (result.exit_code, result.output) == (0, "1 sources, every notebook matches\n")


def test_a_name_that_is_no_notebook_is_refused_with_those_there_are(folder):
    result = CliRunner().invoke(notebooks, ["build", "09"])
    assert result.exit_code == 2
    assert "no notebook '09'" in result.output
    assert "there are: 01_double" in result.output


@pytest.mark.slow
def test_building_executes_both_and_leaves_nothing_of_the_machine(folder):
    result = CliRunner().invoke(notebooks, ["build", "01"])
    assert result.exit_code == 0, result.output
    solved = nbformat.read(folder / "solved" / "01_double.ipynb", as_version=4)
    assert tidy_problems(solved) == []
    assert pipeline.drift(folder) == []
    assert [output.get("text") for output in solved.cells[5].outputs] == ["one\ntwo\n", None]
    assert solved.cells[5].outputs[1].data == {"text/plain": "6"}
    assert set(solved.cells[6].outputs[0].data) == {"image/png", "text/plain"}
    assert "version" not in solved.metadata.language_info
    before = (folder / "solved" / "01_double.ipynb").read_bytes()
    pipeline.build(folder / "src" / "01_double.py", folder)
    assert (folder / "solved" / "01_double.ipynb").read_bytes() == before


@pytest.mark.slow
def test_a_reader_without_a_kernel_sees_the_picture_and_its_words(folder):
    pipeline.build(folder / "src" / "01_double.py", folder)
    solved = nbformat.read(folder / "solved" / "01_double.ipynb", as_version=4)
    page, _ = HTMLExporter(template_name=TEMPLATE).from_notebook_node(solved)
    assert 'alt="Dock at ' in page
    assert "model not found" not in page.lower()
    assert "application/vnd.jupyter.widget" not in json.dumps(solved)


@pytest.mark.slow
def test_a_run_replaces_parameters_and_writes_a_report(folder, tmp_path):
    pipeline.build(folder / "src" / "01_double.py", folder, run=False)
    args = ["01", "-p", "riders=5", "-p", "pace=3", "-p", "loud=true", "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(run, args)
    assert result.exit_code == 0, result.output
    nb = json.loads((tmp_path / "o" / "01_double.ipynb").read_text())
    printed = [o.get("text") for cell in nb["cells"] for o in cell.get("outputs", [])]
    assert ["15.0 quiet True\n"] in printed
    assert "15.0 quiet True" in (tmp_path / "o" / "01_double.html").read_text()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("rider=5", "no parameter 'rider'; this notebook has: riders=3, pace=2.5, name='quiet'"),
        ("riders=5.5", "riders='5.5': riders is a whole number"),
        ("pace=fast", "pace='fast': pace is a number"),
        ("pace=nan", "pace='nan': pace must be finite"),
        ("loud=yes", "loud='yes': loud is true or false"),
        ("riders", "'riders' has no '=': write -p name=value"),
    ],
)
def test_a_run_refuses_unknown_names_and_wrong_types(folder, given, says):
    pipeline.build(folder / "src" / "01_double.py", folder, run=False)
    result = CliRunner().invoke(run, ["01_double", "-p", given])
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())
