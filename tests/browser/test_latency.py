"""The latency widget in a browser: real answers to real sliders, and silence said aloud."""

import re
from typing import Any

import pytest

from labkit.sim import fast
from labkit.viz.latency import Latency
from labkit.viz.tokens import contrast

WORDS = """() => [...document.querySelectorAll(".labkit text")]
    .filter((node) => node.textContent)
    .map((node) => [node.textContent, getComputedStyle(node).fill,
                    getComputedStyle(document.body).backgroundColor])"""


def hexed(colour: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def state(widget: Latency) -> dict[str, Any]:
    return {name: getattr(widget, name) for name in ("segments", "sliders", "choice", "answered")}


def answering(page: Any, widget: Latency) -> None:
    """From now on the page's model reaches this widget, as a kernel would."""

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        widget._told(None, message, [])
        return state(widget)

    page.expose_function("kernel", answer)
    page.evaluate(
        """() => {
            window.lab.model.send = async (message) => {
              window.lab.model.sent.push(message);
              Object.assign(window.lab.state, await window.kernel(message));
              window.lab.model.emit();
            };
        }"""
    )


@pytest.fixture
def hundred() -> Latency:
    return Latency(fast.crossings, rate=100, gpus=2)


def flag(page: Any) -> str:
    return page.locator(".lk-main text, .lk-flag.lk-late text").first.text_content()


def test_a_key_on_a_slider_draws_the_new_picture_over_the_old(show, hundred):
    page = show(Latency, state(hundred))
    answering(page, hundred)
    assert flag(page) == "P95 150 ms"
    slider = page.get_by_role("slider", name="window")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".lk-ghost")
    assert flag(page) == "P95 155 ms"
    assert slider.get_attribute("aria-valuetext") == "55 ms"
    assert page.evaluate("document.activeElement.ariaLabel") == "window"
    assert page.get_by_role("img").get_attribute("aria-label") == repr(hundred)


def test_of_a_drag_only_the_latest_question_is_asked_and_its_start_stays_behind(show, hundred):
    page = show(Latency, state(hundred))
    answering(page, hundred)
    page.evaluate(
        """() => {
            const slider = document.querySelector('input[aria-label="window"]');
            for (let step = 11; step <= 16; step += 1) {
              slider.value = step;
              slider.dispatchEvent(new Event("input", { bubbles: true }));
            }
            slider.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
    )
    page.wait_for_function("document.querySelector('.lk-main text').textContent === 'P95 180 ms'")
    sent = page.evaluate("window.lab.model.sent.map((one) => [one.choice.max_wait_ms, one.fresh])")
    assert sent == [[55, True], [80, False]]
    assert "window 50 ms" in hundred.segments["was"]


def test_without_an_answer_it_says_so_and_keeps_the_picture(show, hundred, keep):
    page = show(Latency, state(hundred))
    page.clock.install()
    page.get_by_role("slider", name="GPUs").focus()
    page.keyboard.press("ArrowRight")
    page.clock.run_for(1500)
    assert page.locator(".lk-silent").inner_text() == ""
    page.clock.run_for(1000)
    assert page.locator(".lk-silent").inner_text().startswith("Nothing answers")
    assert flag(page) == "P95 150 ms"
    keep(page, "latency_silent")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("window.lab.model.sent.length") == 2
    page.evaluate(
        """() => {
            const { view, ask } = window.lab.model.sent[1];
            window.lab.state.answered = { view, ask, error: "" };
            window.lab.model.emit();
        }"""
    )
    assert page.locator(".lk-silent").inner_text() == ""


def test_an_error_of_the_simulation_is_shown(show):
    def simulate(instants, gpus, **choice):
        if gpus == 3:
            raise RuntimeError("three is unlucky")
        return fast.crossings(instants, gpus=gpus, **choice)

    widget = Latency(simulate, rate=100, gpus=2, seconds=1)
    page = show(Latency, state(widget))
    answering(page, widget)
    page.get_by_role("slider", name="GPUs").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".lk-silent:has-text('RuntimeError: three is unlucky')")


def test_two_views_ask_once_and_both_follow(show, hundred):
    page = show(Latency, state(hundred))
    answering(page, hundred)
    page.evaluate("void window.lab.show('two')")
    page.locator("#one input").nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#two .lk-ghost")
    assert page.evaluate("window.lab.model.sent.length") == 1
    assert page.locator("#two input").nth(1).get_attribute("aria-valuetext") == "3"


def test_it_speaks_at_most_once_a_second(show, hundred):
    page = show(Latency, state(hundred))
    answering(page, hundred)
    page.evaluate(
        """() => {
            window.spoken = [];
            const region = document.querySelector("[aria-live]");
            new MutationObserver(() => window.spoken.push(region.textContent))
              .observe(region, { childList: true, characterData: true, subtree: true });
        }"""
    )
    page.get_by_role("slider", name="window").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("window.spoken.length === 2")
    assert "window 70 ms" in page.evaluate("window.spoken[1]")


def test_destroyed_it_leaves_nothing_behind(show, hundred):
    page = show(Latency, state(hundred))
    left = page.evaluate(
        """async () => {
            (await window.lab.destroy)();
            return [document.querySelectorAll(".labkit").length, window.lab.model.listening()];
        }"""
    )
    assert left == [0, 0]


def unstable() -> Latency:
    widget = Latency(fast.crossings, rate=10_000, gpus=18)
    widget.choose(gpus=9)
    return widget


def moved() -> Latency:
    widget = Latency(fast.crossings, rate=100, gpus=2)
    widget.choose(max_wait_ms=80)
    return widget


@pytest.mark.parametrize("scene", [unstable, moved], ids=lambda scene: scene.__name__)
def test_axe_finds_nothing_wrong_in_either_theme(show, keep, scene):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = show(Latency, state(scene()))
    for theme in ("light", "dark"):
        page.evaluate("(theme) => window.lab.theme(theme)", theme)
        page.wait_for_selector(f'.labkit[data-theme="{theme}"]')
        keep(page, f"latency_{scene.__name__}_{theme}")
        results = axe.run(page)
        assert results.violations_count == 0, results.generate_report()
        ratios = [(w, contrast(hexed(a), hexed(b))) for w, a, b in page.evaluate(WORDS)]
        assert [(w, r) for w, r in ratios if r < 4.5] == []
