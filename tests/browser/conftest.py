"""Chromium, and a plain page on which a widget's own script runs with a model made of literals."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BUILD = Path(__file__).parents[2] / "build" / "browser"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SITE = "http://lab.test"

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>a widget</title>
<style>body {{ margin: 24px; background: #ffffff; color: #1f2937; }}
body[data-jp-theme-light="false"] {{ background: #111827; color: #e5e7eb; }}</style>
<style>{css}</style></head>
<body data-jp-theme-light="true"><main><h1 style="font: 16px sans-serif">A widget
on a plain page</h1><div id="one"></div><div id="two"></div></main>
<script type="module">
import widget from "/widget.js";
const listeners = new Set();
const state = {state};
const model = {{
  sent: [],
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; }},
  save_changes: () => {{}},
  send: (message) => model.sent.push(message),
  on: (event, listener) => listeners.add(listener),
  off: (event, listener) => listeners.delete(listener),
  emit: () => listeners.forEach((listener) => listener()),
  listening: () => listeners.size,
}};
const show = (id) => widget.render({{ model, el: document.getElementById(id) }});
const theme = (name) => {{ document.body.dataset.jpThemeLight = String(name === "light"); }};
window.lab = {{ model, state, show, theme, destroy: show("one") }};
</script></body></html>"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for the whole run; skips with the reason where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`show(widget_class, state, ...)`: a page with one view of the widget."""
    contexts, errors = [], []

    def open_page(widget: type, state: dict[str, Any], **options: Any) -> Any:
        options.setdefault("viewport", {"width": 820, "height": 640})
        context = chromium.new_context(device_scale_factor=2, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        body = PAGE.format(
            css=widget._css,
            state=json.dumps(state),
        )
        page.route(
            f"{SITE}/**",
            lambda route: route.fulfill(
                body=str(widget._esm) if route.request.url.endswith(".js") else body,
                content_type="text/javascript"
                if route.request.url.endswith(".js")
                else "text/html; charset=utf-8",
            ),
        )
        page.goto(f"{SITE}/")
        page.wait_for_selector(".labkit svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == [], "the script raised"


@pytest.fixture
def keep() -> Callable[[Any, str], Path]:
    """Keep a screenshot under build/browser/ for people to look at."""

    def save(page: Any, name: str) -> Path:
        BUILD.mkdir(parents=True, exist_ok=True)
        path = BUILD / f"{name}.png"
        page.screenshot(path=path)
        return path

    return save


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
