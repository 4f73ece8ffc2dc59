"""Whoever lacks an optional package is told what installs it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from labkit.extras import EXTRAS, missing

ROOT = Path(__file__).parents[2]
BLOCK = """
import sys
from labkit.extras import EXTRAS
for modules in EXTRAS.values():
    sys.modules.update(dict.fromkeys(modules))
from labkit.cli.main import main
main(prog_name="labkit")
"""
WITHOUT = [
    ("lab --no-browser", "pip install 'labkit[lab]'"),
    ("live --uvloop --workers fake --seconds 1", "pip install 'labkit[fast]'"),
    ("loadtest --url http://127.0.0.1:9", "pip install 'labkit[http]'"),
    ("measure --dry", "pip install 'labkit[torch]'"),
    ("notebooks build", "pip install 'labkit[lab]'"),
    ("run 03", "pip install 'labkit[lab]'"),
    ("serve", "pip install 'labkit[http]'"),
]


@pytest.mark.parametrize(("line", "remedy"), WITHOUT)
def test_a_command_without_its_packages_says_what_to_install(line: str, remedy: str):
    done = subprocess.run(
        [sys.executable, "-c", BLOCK, *line.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert remedy in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_every_optional_package_is_in_the_extra_that_brings_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, modules in EXTRAS.items():
        brought = " ".join(project["optional-dependencies"][extra]).replace("-", "_")
        # What Jupyter is made of comes with JupyterLab.
        ours = [name for name in modules if not name.startswith("nb")]
        assert [name for name in ours if name not in brought] == []


def test_any_other_error_is_no_lack_of_a_package():
    assert missing(ModuleNotFoundError("no", name="labkit.nothing")) is None
    assert missing(ImportError("torch")) is None
    assert missing(ModuleNotFoundError("no", name="torch.nn")) == (
        "torch is not installed; pip install 'labkit[torch]'"
    )
