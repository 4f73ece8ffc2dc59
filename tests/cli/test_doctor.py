"""`labkit doctor`: says what there is, never fails on what is missing, and names the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.cli.machine import WELCOME, _writable

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys
from importlib import metadata

real = metadata.version

def version(package):
    if package in sys.argv[1:]:
        raise metadata.PackageNotFoundError(package)
    return real(package)

metadata.version = version
from labkit.cli.main import main
main(["doctor"], prog_name="labkit")
"""


def doctor_without(*packages: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The doctor in an interpreter that lacks these packages and looks into `path` first."""
    search = os.pathsep.join([str(path), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *packages],
        cwd=path,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_doctor_says_what_runs_here(labkit, tmp_path):
    said = labkit("doctor", "--json", LABKIT_HOME=str(tmp_path / "not" / "yet"))
    report = said.report
    assert said.code == 0
    assert report["ok"] is True
    assert report["broken"] == []
    assert report["python"] == ".".join(map(str, sys.version_info[:3]))
    assert report["cores"] >= 1
    assert report["workers"]["timer"] is True
    assert report["workers"]["cpu"] is report["torch"]["works"]
    assert report["workers"]["cuda"] <= bool(report["cards"])
    assert report["fleet"]["banner"]
    assert report["home"] == str(tmp_path / "not" / "yet")
    assert report["home_writable"] is True
    assert not (tmp_path / "not").exists()
    assert set(WELCOME) < set(report["packages"])


def test_people_read_a_table(labkit):
    said = labkit("doctor", COLUMNS="80", NO_COLOR="1")
    assert said.code == 0
    assert "The lab runs here" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_a_torch_that_cannot_be_imported_is_advice_and_not_a_traceback(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libtorch.so: not found')")
    (tmp_path / "torch" / "version.py").write_text("cuda = None")
    done = doctor_without(path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "is installed and cannot be imported: libtorch.so: not found" in done.stdout
    assert "-m pip install --force-reinstall torch==" in done.stdout
    assert "8 timer workers on this CPU" in done.stdout


def test_what_the_lab_cannot_do_without_makes_it_exit_with_one():
    done = doctor_without("simpy", "jupyterlab")
    assert done.returncode == 1
    assert "simpy is not installed" in done.stdout
    assert "-m pip install simpy" in done.stdout
    assert "jupyterlab is not installed: the notebooks" in done.stdout
    assert "The lab cannot run here yet" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_home_that_cannot_be_written_is_advice(labkit, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    said = labkit("doctor", "--json", LABKIT_HOME=str(blocked))
    assert said.code == 0
    assert said.report["home_writable"] is False
    assert any("set LABKIT_HOME" in line["remedy"] for line in said.report["advice"])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_read_only_folder_is_not_writable(tmp_path):
    tmp_path.chmod(0o500)
    assert not _writable(tmp_path)
