"""The rules of tests/conftest.py, seen from outside: a run of its own for each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SETTINGS = """
[tool.pytest.ini_options]
addopts = "--import-mode=importlib --strict-markers -p no:cacheprovider"
markers = ["browser: needs Chromium"]
"""


pytestmark = pytest.mark.slow


@pytest.fixture
def suite(tmp_path):
    """`suite(files, **environment)`: pytest's exit code and what it printed, for these files."""

    def run(files, *options, **environment):
        shutil.copy(CONFTEST, tmp_path / "conftest.py")
        (tmp_path / "pyproject.toml").write_text(SETTINGS)
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("LABKIT_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *(options or ("-p", "no:nbval"))],
            cwd=tmp_path,
            env=clean | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


WITHOUT_BROWSER = """
import pytest

@pytest.mark.browser
def test_it_draws():
    pytest.skip("no Chromium")

def test_something_else():
    pytest.skip("no torch")
"""


def test_a_browser_test_may_skip_where_no_browser_is_asked_for(suite):
    code, told = suite({"test_it.py": WITHOUT_BROWSER})
    assert code == 0
    assert "2 skipped" in told


def test_a_browser_test_that_skips_has_failed_where_one_is_asked_for(suite):
    code, told = suite({"test_it.py": WITHOUT_BROWSER}, LABKIT_REQUIRE="tool browser")
    assert code == 1
    assert "1 failed, 1 skipped" in told
    assert "LABKIT_REQUIRE has browser, yet: Skipped: no Chromium" in told


def test_a_run_fails_when_a_test_passes_that_was_expected_to_fail(suite):
    xpass = "import pytest\n@pytest.mark.xfail(strict=False)\ndef test_it():\n    assert True\n"
    code, told = suite({"test_it.py": xpass})
    assert "1 xpassed" in told
    assert code == 1


def test_every_run_has_a_home_of_its_own_that_is_gone_afterwards(suite, tmp_path):
    ask = (
        "import os, pathlib\n"
        "def test_it():\n"
        "    home = os.environ['LABKIT_HOME']\n"
        "    assert os.path.isdir(home)\n"
        "    pathlib.Path('home.txt').write_text(home)\n"
    )
    code, _ = suite({"test_it.py": ask})
    assert code == 0
    home = Path((tmp_path / "home.txt").read_text())
    assert home != Path(os.environ["LABKIT_HOME"])
    assert not home.exists()


def test_a_solved_notebook_is_compared_and_a_learners_only_run(suite):
    wrong = nbformat.v4.new_code_cell("print(1)", execution_count=1)
    wrong.outputs = [nbformat.v4.new_output("stream", text="2\n")]
    notebook = nbformat.writes(nbformat.v4.new_notebook(cells=[wrong]))
    options = ("--nbval", "--nbval-current-env", "-W", "ignore")
    assert suite({"00_it.ipynb": notebook}, *options)[0] == 0
    code, told = suite({"solved/00_it.ipynb": notebook}, *options)
    assert code == 1
    assert "1 failed, 1 passed" in told
