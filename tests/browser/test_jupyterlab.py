"""The dock where learners meet it: in JupyterLab, with a real kernel, and after the kernel died."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "browser"
TOKEN = "ferry"
PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}
CELLS = [
    "from labkit.core.settings import Settings\n"
    "from labkit.core.units import MS\n"
    "from labkit.viz import Dock, Lanes, Latency, LoadDock, run_by_hand\n"
    "six = Settings(max_batch=6)\n"
    "trace = run_by_hand([ms * MS for ms in (0, 9, 14, 33, 40, 41, 46, 80)], six)",
    "Dock(trace)",
    "load = LoadDock(Settings(max_batch=2, max_wait=4000 * MS, batch_time=300 * MS, budget=None))\n"
    "load",
    "Lanes(run_by_hand([ms * 3 * MS for ms in range(60)], six, gpus=4), at=160 * MS)",
    "from labkit.sim import fast\nLatency(fast.crossings, rate=10_000, gpus=18)",
]
READY = "text=ipykernel) | Idle"
MOVES = 9
SLOWEST_MS = 1_000
"""Far above the goal of 100 ms, which a busy machine cannot promise; what it took is kept."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """A JupyterLab with one notebook; yields its address. It touches nobody's settings."""
    work = tmp_path / "work"
    work.mkdir()
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nb.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(nb, work / "dock.ipynb")
    settings = tmp_path / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    own = {
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "LABKIT_HOME": str(tmp_path / "home"),
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
                yield f"{found[0]}lab/tree/dock.ipynb?reset&token={TOKEN}"
                break
        else:
            pytest.fail("JupyterLab ended without printing an address:\n" + "".join(printed))
    finally:
        server.terminate()
        server.communicate(timeout=30)


@pytest.mark.slow
def test_it_plays_boards_a_real_gateway_and_survives_its_kernel(chromium, lab, keep):
    context = chromium.new_context(viewport={"width": 1100, "height": 2000})
    page = context.new_page()
    page.goto(lab)
    page.wait_for_selector(READY, timeout=60_000)
    run_all(page)
    page.wait_for_selector(".lk-play", timeout=60_000)
    page.wait_for_selector(".lk-board")
    replayed = page.locator(".labkit").first

    # The keyboard is the widget's, not the notebook's.
    page.locator(".lk-axis").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert replayed.get_attribute("data-at") == "14000"
    assert page.locator(".jp-Cell").count() == len(CELLS)

    # You are the load: two presses fill a boat of two, whose receipt comes from the gateway.
    board = page.locator(".lk-board")
    board.scroll_into_view_if_needed()
    board.click()
    board.click()
    keep(page, "jupyterlab_boarding")
    page.wait_for_selector(".lk-receipt:has-text('because it was full')")
    board.click()
    page.wait_for_selector(".lk-receipt:has-text('Boat 2 left')")
    keep(page, "jupyterlab_light")
    page.locator(".jp-WindowedPanel-outer").evaluate("(panel) => panel.scrollTo(0, 0)")

    # The lanes start where they were told, and play.
    lanes = page.locator(".lk-lanes-widget")
    assert lanes.get_attribute("data-at") == "160000"
    keep(lanes, "jupyterlab_lanes")
    lanes.locator(".lk-play").click()
    page.wait_for_function("document.querySelector('.lk-lanes-widget').dataset.at > 165000")
    lanes.locator(".lk-play").click()

    # A slider asks the kernel, and the new picture is there at once.
    latency = page.locator(".lk-latency-widget")
    took = sorted(slide(page, latency) for _ in range(MOVES))
    keep(latency, "jupyterlab_latency")
    said = {"from slider to picture, median ms": took[MOVES // 2], "slowest": took[-1]}
    (BUILD / "latency_ms.json").write_text(json.dumps(said) + "\n")
    print(said)
    assert took[MOVES // 2] < SLOWEST_MS

    # The theme is the page's.
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_selector('.labkit[data-theme="dark"]')
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")

    # A replay needs no kernel.
    page.locator("li.lm-MenuBar-item", has_text="Kernel").click()
    page.locator("li[data-command='kernelmenu:shutdown']").click()
    page.wait_for_selector("text=No Kernel")
    page.locator(".lk-axis").first.focus()
    page.keyboard.press("End")
    assert replayed.get_attribute("data-at") != "14000"

    # A slider does, and says so.
    before = latency.locator("svg").get_attribute("aria-label")
    latency.get_by_role("slider", name="GPUs").press("ArrowLeft")
    latency.locator(".lk-silent:has-text('Nothing answers')").wait_for()
    assert latency.locator("svg").get_attribute("aria-label") == before
    context.close()


def slide(page: Any, latency: Any) -> float:
    """Move a slider by one step; milliseconds from the key to the picture it changed."""
    latency.evaluate("(root) => delete root.dataset.took")
    latency.get_by_role("slider", name="window").press("ArrowRight")
    page.wait_for_function("document.querySelector('.lk-latency-widget').dataset.took")
    return float(latency.get_attribute("data-took"))


def run_all(page: Any) -> None:
    page.locator("li.lm-MenuBar-item", has_text="Run").first.click()
    page.locator("li[data-command='runmenu:run-all']").click()
