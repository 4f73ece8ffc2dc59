"""Notebook 16 where learners meet it: a crowd, a button, everybody answered, and nothing left."""

import re
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from .jupyter import choose, jupyterlab, open_lab, shut_down

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "16_the_board.ipynb"


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """The address of a JupyterLab with the learner's notebook, less the cell that ends the server.

    Nothing is kept of its outputs, so that whatever the page shows was computed here.
    """
    nb = nbformat.read(NOTEBOOK, as_version=4)
    nb.cells = [cell for cell in nb.cells if "server.stop()" not in cell.source]
    for cell in nb.cells:
        cell.source = cell.source.replace("crowd_seconds = 4", "crowd_seconds = 3")
        cell.metadata.pop("jupyter", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with jupyterlab(tmp_path, nb) as address:
        yield address


def count(board: Any, name: str) -> int:
    return int(board.locator(f"[data-count='{name}']").text_content().replace(",", ""))


@pytest.mark.slow
def test_a_button_kills_a_gpu_under_load_and_everybody_is_answered(chromium, lab, keep):
    context = chromium.new_context(viewport={"width": 1100, "height": 9000})
    page = open_lab(context, lab)
    reading = page.locator(".jp-CodeCell:has-text('LIVE  restarts:')")
    reading.locator(".cm-content").click()
    choose(page, "Run", "notebook:run-all-above")

    # The last of the boards stands where the learner's own crowd is sent.
    board = page.locator(".lk-wall").nth(2)
    board.wait_for(timeout=60_000)
    page.wait_for_function(
        "[...document.querySelectorAll('.lk-wall')].at(-1)"
        ".querySelector('[data-count=on_the_way]').textContent !== '0'"
    )
    before, refused = count(board, "answered"), count(board, "refused")
    board.locator("li[data-gpu='2'][data-state='ready']").wait_for()
    restarts = board.locator("li[data-gpu='2']").get_attribute("data-restarts")
    board.get_by_role("button", name="Kill GPU 2").click()
    done = board.locator(".lk-done:has-text('GPU 2 is dead, with')")
    done.wait_for(timeout=10_000)
    sent = count(board, "sent")
    keep(board, "board_killed")

    # The books of that crowd are read in the cell after it.
    choose(page, "Run", "notebook:run-all-below")
    told = page.get_by_text(re.compile(r"LIVE  \d+ asked, \d+ answered, 0 got no answer"))
    told.nth(1).wait_for(timeout=30_000)
    asked, answered = map(int, re.findall(r"\d+", told.nth(1).text_content())[:2])
    assert asked == answered > sent > 0
    page.wait_for_function(
        "[...document.querySelectorAll('.lk-wall')].at(-1)"
        ".querySelector('[data-count=on_the_way]').textContent === '0'"
    )
    assert count(board, "answered") > before
    assert count(board, "refused") == refused
    back = f"li[data-gpu='2'][data-state='ready']:not([data-restarts='{restarts}'])"
    board.locator(back).wait_for(timeout=30_000)
    page.locator(".lk-plate svg[aria-label*='requests over']").nth(1).wait_for(timeout=20_000)
    keep(board, "board_after")

    # The server ends with its kernel.
    pid = int(re.search(r"process (\d+), a free port", page.content())[1])
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    shut_down(page)
    deadline = time.monotonic() + 20
    while any(map(alive, family)):
        assert time.monotonic() < deadline, "the server outlived its kernel"
        time.sleep(0.05)
    context.close()


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
