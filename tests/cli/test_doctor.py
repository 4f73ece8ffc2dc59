"""`labkit doctor`: says what there is, never fails on what is missing, and names the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.cli.machine import WELCOME, _why_no_gpu, _writable

ROOT = Path(__file__).parents[2]

BARE = """
import sys
from importlib import metadata

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy"}:
            raise ImportError(f"{name} is broken here")

sys.meta_path.insert(0, Wall())
if "absent" in sys.argv:
    real = metadata.version
    def version(package):
        if package in ("torch", "jupyterlab", "simpy"):
            raise metadata.PackageNotFoundError(package)
        return real(package)
    metadata.version = version
from labkit.cli.main import main
main(["doctor", *sys.argv[2:]], prog_name="labkit")
"""


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    """The doctor in an interpreter where torch cannot be imported (or is not even installed)."""
    return subprocess.run(
        [sys.executable, "-c", BARE, *words], cwd=ROOT, capture_output=True, text=True, check=False
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
    assert report["workers"]["cuda"] is bool(report["torch"]["gpus"])
    assert report["home"] == str(tmp_path / "not" / "yet")
    assert report["home_writable"] is True
    assert not (tmp_path / "not").exists()
    assert set(WELCOME) < set(report["packages"])


def test_people_read_a_table(labkit):
    said = labkit("doctor", COLUMNS="80", NO_COLOR="1")
    assert said.code == 0
    assert "The lab runs here" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_a_torch_that_cannot_be_imported_is_advice_and_not_a_traceback():
    pytest.importorskip("torch")
    done = bare("present")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "is installed and cannot be imported: torch is broken here" in done.stdout
    assert "-m pip install --force-reinstall torch==" in done.stdout


def test_what_the_lab_cannot_do_without_makes_it_exit_with_one():
    done = bare("absent")
    assert done.returncode == 1
    assert "simpy is not installed" in done.stdout
    assert "-m pip install simpy" in done.stdout
    assert "jupyterlab is not installed: the notebooks" in done.stdout
    assert "The lab cannot run here yet" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_cpu_build_beside_a_card_is_told_the_exact_line():
    what, line = _why_no_gpu({"version": "2.13.0+cpu", "cuda_build": None})
    assert what == "torch 2.13.0+cpu is a CPU-only build beside an NVIDIA card"
    assert "-m pip install --force-reinstall torch==2.13.0" in line


def test_a_cuda_build_without_a_usable_card_points_at_the_driver():
    what, remedy = _why_no_gpu({"version": "2.13.0", "cuda_build": "13.0"})
    assert what == "torch 2.13.0 (CUDA 13.0) finds no usable GPU"
    assert "update the driver" in remedy


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
