"""pyproject.toml, requirements.txt and environment.yml agree, and a wheel carries its data."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from labkit import bootstrap
from labkit.paths import checkout_dir, data_dir, home_dir
from tests.architecture.test_imports import imports_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    extra: [Requirement(line) for line in lines]
    for extra, lines in PROJECT["optional-dependencies"].items()
}
BASE = [Requirement(line) for line in PROJECT["dependencies"]]
DECLARED = [*BASE, *(requirement for extra in EXTRAS.values() for requirement in extra)]
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
BROUGHT_ALONG = {
    *("cycler", "pil"),  # by matplotlib
    *("ipython", "jupyter_client", "psutil", "traitlets"),  # by the kernel
    *("jupyter_server", "jupyterlab_server", "nbclient", "nbconvert", "nbformat"),  # by JupyterLab
    "packaging",  # by pytest
}
IMPORT_NAMES = {"import-linter": "importlinter", "pytest-xdist": "xdist", "pyyaml": "yaml"}


def ranges(requirements):
    """Canonical name to range."""
    return {canonicalize_name(r.name): str(r.specifier) for r in requirements}


def pins():
    """Canonical name to the exact version in requirements.txt."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = (line.partition(";")[0].strip() for line in text.splitlines())
    kept = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in kept if not re.fullmatch(r"[\w.-]+==[\w.!]+", line)] == []
    return {canonicalize_name(name): version for name, version in (k.split("==") for k in kept)}


def conda():
    """The requirements of environment.yml, under the names that pip knows, and its pip lines."""
    listed = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    by_pip = next(entry["pip"] for entry in listed if isinstance(entry, dict))
    lines = [entry for entry in listed if isinstance(entry, str)]
    lines += [line for line in by_pip if not line.startswith("-e")]
    found = ranges(Requirement(line) for line in lines)
    return {CONDA_NAMES.get(name, name): range_ for name, range_ in found.items()}, by_pip


def files_in(folder):
    """Every file under a folder, by its path from there."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_conda_gets_the_names_and_ranges_of_pyproject():
    found, by_pip = conda()
    assert found.pop("pip") == ""
    assert found.pop("python") == str(Requirement(f"p{PROJECT['requires-python']}").specifier)
    assert found == ranges(DECLARED)
    assert "-e ." in by_pip


def test_every_declared_package_is_pinned_inside_its_range():
    pinned = pins()
    outside = [
        f"{requirement} pinned at {pinned.get(canonicalize_name(requirement.name))}"
        for requirement in DECLARED
        if canonicalize_name(requirement.name) not in pinned
        or pinned[canonicalize_name(requirement.name)] not in requirement.specifier
    ]
    assert outside == [], "run `make lock`, or move the range"


def test_torch_is_pinned_to_one_release():
    assert pins()["torch"].count(".") == 2


def test_what_the_set_up_looks_for_is_what_the_base_and_the_lab_extra_declare():
    names = ranges(BASE + EXTRAS["lab"])
    assert set(bootstrap.NEEDED) == {IMPORT_NAMES.get(name, name) for name in names}


@pytest.mark.parametrize("folder", ["labkit", "tests", "tools"])
def test_everything_that_is_imported_is_declared(folder):
    known = {IMPORT_NAMES.get(r.name, r.name.replace("-", "_")).lower() for r in DECLARED}
    known |= (
        BROUGHT_ALONG | {"labkit", "tests", "tools", "benchmarks"} | set(sys.stdlib_module_names)
    )
    strangers = {
        path.relative_to(ROOT).as_posix(): unknown
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (unknown := {name for name in imports_of(path) if name.lower() not in known})
    }
    assert strangers == {}


def test_the_dependencies_page_lists_every_declared_package_at_its_pin():
    page = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \| ([a-z]+) \| .+ \| ([\d.]+) \|$", page, re.MULTILINE)
    extras = {"base": BASE, **EXTRAS}
    pinned = pins()
    assert sorted(rows) == sorted(
        (requirement.name, extra, pinned[requirement.name])
        for extra, requirements in extras.items()
        for requirement in requirements
    )


def test_a_checkout_finds_its_data():
    assert checkout_dir() == ROOT
    assert data_dir() == ROOT / "data"


def test_the_home_of_a_learner_is_where_labkit_home_says(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "mine"))
    assert home_dir() == tmp_path / "mine"
    assert not home_dir().exists()


def test_the_home_of_a_learner_is_otherwise_among_their_own_data(monkeypatch):
    monkeypatch.delenv("LABKIT_HOME")
    assert home_dir().name == "labkit"
    assert home_dir().is_absolute()


@pytest.mark.slow
def test_an_installed_wheel_finds_its_data(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    wheel = next(tmp_path.glob("labkit-*.whl"))
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True
    )
    python = bootstrap.venv_python().relative_to(bootstrap.VENV)
    python = tmp_path / "venv" / python
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    ask = "from labkit.paths import *; print(checkout_dir(), data_dir(), home_dir(), sep='\\n')"
    told = subprocess.run(
        [str(python), "-c", ask],
        cwd=tmp_path,
        env={"LABKIT_HOME": str(tmp_path / "mine")},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert told[0] == "None"
    assert files_in(Path(told[1])) == files_in(ROOT / "data")
    assert told[2] == str(tmp_path / "mine")
    names = zipfile.ZipFile(wheel).namelist()
    assert "labkit/cli/jupyter/labconfig/page_config.json" in names
    assert {name.split("/")[0] for name in names} == {
        "labkit",
        wheel.name.split("-py3")[0] + ".dist-info",
    }
