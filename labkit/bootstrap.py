"""From a bare Python to an open lab: makes `.venv`, installs what is pinned, opens JupyterLab."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# Standard library only, and nothing newer than Python 3.8: this module runs before anything is
# installed, perhaps under a Python that only serves to find a better one.

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
TURN = ROOT / ".venv.turn"
"""Held by the one that installs; outside `.venv`, which making it anew would empty."""
STAMP = VENV / "installed"
PINS = ROOT / "requirements.txt"
SUPPORTED = ((3, 11), (3, 12), (3, 13))
NEEDED = (
    "anywidget",
    "cloudpickle",
    "click",
    "hypothesis",
    "ipywidgets",
    "jupyterlab",
    "matplotlib",
    "numpy",
    "platformdirs",
    "rich",
    "simpy",
    "yaml",
)
"""What the notebooks import; the base and the `lab` extra of pyproject.toml."""


class CannotSetUp(Exception):
    """The lab cannot be installed here: says what is missing and the remedy."""


def missing() -> list[str]:
    """The packages of the notebooks that this interpreter cannot import."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def venv_python() -> Path:
    """The interpreter inside `.venv`, whether it is there or not."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint() -> str:
    """A name for what would be installed; it changes when the pins or the package change."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_current() -> bool:
    """Whether `.venv` holds exactly what this checkout asks for."""
    return (
        venv_python().exists()
        and STAMP.is_file()
        and STAMP.read_text(encoding="utf-8").strip() == fingerprint()
    )


def suits(command: list[str]) -> bool:
    """Whether this command is a supported Python that can make a virtual environment."""
    ask = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        asked = subprocess.run([*command, "-c", ask], capture_output=True, text=True, check=True)
        return tuple(map(int, asked.stdout.split())) in SUPPORTED
    except (OSError, ValueError, subprocess.CalledProcessError):
        return False


def find_python() -> list[str]:
    """The running Python if it will do, else the newest that is supported."""
    candidates = [[sys.executable]]
    for major, minor in reversed(SUPPORTED):
        candidates.append([f"python{major}.{minor}"])
        if os.name == "nt":
            candidates.append(["py", f"-{major}.{minor}"])
    for command in candidates:
        if shutil.which(command[0]) and suits(command):
            return command
    raise CannotSetUp(
        f"Python {sys.version_info[0]}.{sys.version_info[1]} at {sys.executable} will not do, and "
        "no python3.11, python3.12 or python3.13 with venv was found; install one "
        "(on Debian or Ubuntu its venv is a package: apt install python3-venv)"
    )


def set_up() -> None:
    """Make `.venv` and install the pinned packages and this checkout; nothing if it is current.

    Pip's own variables are obeyed, so `PIP_NO_INDEX=1 PIP_FIND_LINKS=folder` installs offline.
    """
    if is_current():
        return
    if not PINS.is_file():
        raise CannotSetUp(f"{PINS} is missing: the set-up works in a checkout of the lab")
    with _my_turn():
        # Whoever held the turn before may have done it all.
        if not is_current():
            _install()


@contextmanager
def _my_turn() -> Iterator[None]:
    """Wait until no other set-up of this checkout runs: two in one `.venv` ruin each other.

    The system gives the turn up when its holder ends, however it ends.
    """
    with open(TURN, "a+", encoding="utf-8") as file:
        if not _locked(file, wait=False):
            _say("another set-up is at work here; waiting for it")
            while not _locked(file, wait=True):
                time.sleep(0.2)
        yield


def _locked(file: IO[str], wait: bool) -> bool:
    """Whether this process now holds the file; on Windows a wait is a few seconds at most."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _install() -> None:
    """Make `.venv` if it is missing, install into it, and leave the sign that all is there."""
    if not suits([str(venv_python())]):
        command = find_python()
        _say(f"making .venv with {' '.join(command)}")
        subprocess.run([*command, "-m", "venv", "--clear", str(VENV)], check=True)
    _say("installing what requirements.txt pins: some minutes the first time")
    pip = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "--requirement", str(PINS)])
    # The build backend is among the pins, so this step asks no registry.
    _run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    STAMP.write_text(fingerprint() + "\n", encoding="utf-8")
    _say("the lab is installed in .venv")


def _run(command: list[str]) -> None:
    """Run one step of the set-up; raises with the step when it fails."""
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        raise CannotSetUp(f"`{' '.join(command)}` failed; its message stands above")


def _say(text: str) -> None:
    """One line about a step that takes long."""
    print(f"labkit: {text}", file=sys.stderr, flush=True)


def open_lab(arguments: list[str]) -> int:
    """Open JupyterLab with these arguments: here if all is installed, else from `.venv`."""
    lacking = missing()
    if not lacking:
        from labkit.cli.lab import lab

        sys.exit(lab(arguments, prog_name="labkit lab"))
    if Path(sys.prefix).resolve() == VENV.resolve():
        STAMP.unlink(missing_ok=True)
    if not PINS.is_file():
        raise CannotSetUp(
            f"{', '.join(lacking)} cannot be imported; install them: pip install 'labkit[lab]'"
        )
    set_up()
    return subprocess.call([str(venv_python()), "-m", "labkit", "lab", *arguments])


def main(arguments: list[str]) -> int:
    """`setup`, or `lab` with what JupyterLab is to be told; the exit code."""
    try:
        if arguments[:1] == ["lab"]:
            return open_lab(arguments[1:])
        set_up()
    except KeyboardInterrupt:
        return 130
    except CannotSetUp as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
