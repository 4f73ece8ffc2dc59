"""From the command to a first notebook whose kernel answers, as a person sees it."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN_FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
)


def free_port():
    """A port nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def lab_address(tmp_path):
    """The address that `python -m labkit lab` prints; the server ends with the test."""
    own = {name: str(tmp_path / name.lower()) for name in OWN_FOLDERS}
    server = subprocess.Popen(
        [sys.executable, "-m", "labkit", "lab", "--no-browser", f"--port={free_port()}"],
        cwd=ROOT,
        env=os.environ | own,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S+token=\w+", line):
                yield found[0]
                break
        else:
            pytest.fail("the server ended without printing an address")
    finally:
        server.terminate()
        server.communicate(timeout=30)


@pytest.mark.slow
def test_the_lab_opens_on_its_first_notebook_and_the_kernel_answers(chromium, lab_address):
    page = chromium.new_page()
    page.goto(lab_address)
    page.wait_for_selector("text=ipykernel) | Idle", timeout=60_000)
    assert page.locator(".jp-Notebook").count() == 1
    assert page.get_by_role("tab", name="00_start_here.ipynb").count() == 1
    assert page.locator(".Toastify__toast").count() == 0, "a pop-up greets the learner"
    page.close()
