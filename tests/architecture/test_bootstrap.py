"""The lab opens from a bare Python: what is told before anything is installed."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import bootstrap
from tests.architecture.test_imports import imports_of

ROOT = Path(__file__).parents[2]
BARE = ("__init__.py", "__main__.py", "bootstrap.py")


def bare_python(folder, *arguments):
    """Run `python -m labkit ...` in a folder, by a Python without any installed package."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "labkit", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    """A folder with what an unpacked package has, and no checkout around it."""
    (tmp_path / "labkit").mkdir()
    for name in BARE:
        shutil.copy(ROOT / "labkit" / name, tmp_path / "labkit" / name)
    return tmp_path


@pytest.mark.parametrize("name", BARE)
def test_what_runs_first_needs_no_package_and_no_new_python(name):
    path = ROOT / "labkit" / name
    assert imports_of(path) <= set(sys.stdlib_module_names) | {"labkit", "__future__"}
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_a_command_without_its_packages_says_how_to_get_them():
    done = bare_python(ROOT, "sim", "--rate", "100")
    assert done.returncode == 2
    assert "python -m labkit setup" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lab_outside_a_checkout_says_what_to_install(copy):
    done = bare_python(copy, "lab")
    assert done.returncode == 2
    assert "pip install 'labkit[lab]'" in done.stderr
    assert "jupyterlab" in done.stderr


def test_a_set_up_outside_a_checkout_is_refused(copy):
    (copy / "pyproject.toml").touch()
    done = bare_python(copy, "setup")
    assert done.returncode == 2
    assert "requirements.txt is missing" in done.stderr
    assert not (copy / ".venv").exists()


def test_a_set_up_that_is_current_does_nothing(copy):
    """And is current no longer once a pin has changed."""
    (copy / "pyproject.toml").write_text("[project]\n")
    (copy / "requirements.txt").write_text("one==1.0\n")
    inside = copy / bootstrap.venv_python().relative_to(bootstrap.ROOT)
    inside.parent.mkdir(parents=True)
    inside.touch()
    ask = "from labkit import bootstrap as b; {}; print(b.is_current())"
    sign = ask.format("b.STAMP.write_text(b.fingerprint())")
    assert _print(copy, sign) == "True"
    assert bare_python(copy, "setup").returncode == 0
    (copy / "requirements.txt").write_text("one==1.1\n")
    assert _print(copy, ask.format("pass")) == "False"


def _print(folder, code):
    """What a snippet prints when it runs in a folder."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_second_set_up_waits_for_the_first_and_then_has_nothing_to_do(copy):
    (copy / "pyproject.toml").write_text("[project]\n")
    (copy / "requirements.txt").write_text("one==1.0\n")
    inside = copy / bootstrap.venv_python().relative_to(bootstrap.ROOT)
    inside.parent.mkdir(parents=True)
    inside.touch()
    first = (
        "from labkit import bootstrap as b\nimport sys\n"
        "with b._my_turn():\n print('mine', flush=True)\n sys.stdin.readline()\n"
        " b.STAMP.write_text(b.fingerprint())\n"
    )
    command = [sys.executable, "-S"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": copy}
    with subprocess.Popen([*command, "-c", first], **streams) as holder:
        assert holder.stdout.readline() == "mine\n"
        second = [*command, "-m", "labkit", "setup"]
        with subprocess.Popen(second, stderr=subprocess.PIPE, **streams) as waiter:
            assert waiter.stderr.readline() == (
                "labkit: another set-up is at work here; waiting for it\n"
            )
            holder.communicate("done\n")
            assert waiter.communicate() == ("", "")
            assert waiter.returncode == 0


def test_the_running_python_will_do():
    assert bootstrap.suits([sys.executable])
    assert bootstrap.find_python() == [sys.executable]


def test_a_python_that_is_absent_or_too_old_will_not_do(tmp_path):
    assert not bootstrap.suits([str(tmp_path / "python3.11")])
    if os.name == "posix":
        old = tmp_path / "python3"
        old.write_text("#!/bin/sh\necho 3 9\n")
        old.chmod(0o755)
        assert not bootstrap.suits([str(old)])
        old.write_text("#!/bin/sh\necho 3 12\n")
        assert bootstrap.suits([str(old)])
