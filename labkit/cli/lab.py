"""`labkit lab`: opens JupyterLab on the first notebook."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from labkit.cli.common import Problem
from labkit.paths import checkout_dir

FIRST = Path("notebooks") / "00_start_here.ipynb"
JUPYTER_CONFIG = Path(__file__).resolve().parent / "jupyter"
"""Holds one setting: no pop-up that asks to fetch announcements from the network."""


def lab_root() -> Path:
    """The folder that holds `notebooks/`: this one, else the checkout."""
    for root in (Path.cwd(), checkout_dir()):
        if root is not None and (root / FIRST).is_file():
            return root
    raise Problem(f"no {FIRST.as_posix()} in {Path.cwd()}; run this in a clone of the lab")


def lab_command(root: Path, arguments: Sequence[str] = ()) -> list[str]:
    """The command that serves `root` to this machine alone, with a token; `arguments` win."""
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/{FIRST.as_posix()}",
        # In a container one is often root, and this machine alone can reach the server.
        *(["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []),
        *arguments,
    ]


def lab_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with JupyterLab's announcements switched off, for this run alone."""
    paths = [str(JUPYTER_CONFIG), environment.get("JUPYTER_CONFIG_PATH", "")]
    return {**environment, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("jupyter_arguments", nargs=-1, type=click.UNPROCESSED)
def lab(jupyter_arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on notebooks/00_start_here.ipynb.

    It listens on this machine alone and asks for a token. Whatever else is given goes to
    JupyterLab: `labkit lab --no-browser --port 9000`.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise Problem("JupyterLab is not installed; install it: pip install 'labkit[lab]'")
    command = lab_command(lab_root(), jupyter_arguments)
    environment = lab_environment(os.environ)
    if os.name == "posix":
        # No process of ours in between: a signal meant for the server reaches the server.
        os.execve(command[0], command, environment)
    sys.exit(subprocess.call(command, env=environment))
