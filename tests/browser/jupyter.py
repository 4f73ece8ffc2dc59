"""A JupyterLab of a test's own, with one notebook open, that touches nobody's settings."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "ferry"
PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}
READY = "text=ipykernel) | Idle"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def jupyterlab(folder: Path, nb: nbformat.NotebookNode) -> Iterator[str]:
    """The address at which this notebook opens, for the length of a `with`."""
    work = folder / "work"
    work.mkdir()
    nb.metadata["kernelspec"] = PYTHON
    nbformat.write(nb, work / "open.ipynb")
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    own = {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "LABKIT_HOME": str(folder / "home"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [
        f"--port={free_port()}",
        f"--IdentityProvider.token={TOKEN}",
        f"--notebook-dir={work}",
    ]
    server = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | own, stderr=subprocess.PIPE, text=True
    )
    try:
        printed = []
        for line in server.stderr:
            printed.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield f"{found[0]}lab/tree/open.ipynb?reset&token={TOKEN}"
                break
        else:
            pytest.fail("JupyterLab ended without printing an address:\n" + "".join(printed))
    finally:
        server.terminate()
        server.communicate(timeout=30)


def open_lab(context: Any, address: str) -> Any:
    """A page on which the notebook is open and its kernel ready."""
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(READY, timeout=60_000)
    return page


def choose(page: Any, menu: str, command: str) -> None:
    """An entry of a menu."""
    page.locator("li.lm-MenuBar-item", has_text=menu).first.click()
    page.locator(f"li[data-command='{command}']").click()


def run_all(page: Any) -> None:
    """Run every cell, from the menu."""
    choose(page, "Run", "runmenu:run-all")


def shut_down(page: Any) -> None:
    """End the kernel, from the menu."""
    choose(page, "Kernel", "kernelmenu:shutdown")
    page.wait_for_selector("text=No Kernel")
