"""The dock where learners meet it: in JupyterLab, with a real kernel, and after the kernel died."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from .jupyter import jupyterlab, open_lab, run_all, shut_down

BUILD = Path(__file__).parents[2] / "build" / "browser"
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
MOVES = 9
SLOWEST_MS = 1_000
"""Far above the goal of 100 ms, which a busy machine cannot promise; what it took is kept."""


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """The address of a JupyterLab with one notebook."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    with jupyterlab(tmp_path, nbformat.v4.new_notebook(cells=cells)) as address:
        yield address


@pytest.mark.slow
def test_it_plays_boards_a_real_gateway_and_survives_its_kernel(chromium, lab, keep):
    context = chromium.new_context(viewport={"width": 1100, "height": 2000})
    page = open_lab(context, lab)
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
    shut_down(page)
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
