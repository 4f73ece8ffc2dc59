"""The lanes' script in a real browser: what it draws, how it is driven, and that it goes away."""

import re
from typing import Any

import pytest

from labkit.core.units import MS
from labkit.viz.lanes import Lanes
from labkit.viz.lanes_moment import receipt, ticks, totals
from labkit.viz.lanes_segments import lane_segments
from labkit.viz.tokens import contrast
from tests.viz.lanes_scenes import eight_at_once, simulated, with_faults

EIGHT = lane_segments(eight_at_once())
FAULTY = lane_segments(with_faults())

READS = """() => [
    Number(document.querySelector(".labkit").dataset.at),
    [...document.querySelectorAll(".lk-total")].map((node) => node.textContent),
    document.querySelector(".lk-receipt").textContent,
]"""

WORDS = """() => {
    const under = (node) => {
      const group = node.closest(".lk-on, .lk-on-late");
      const paper = getComputedStyle(document.body).backgroundColor;
      if (!group || group.querySelector(".lk-box")) return paper;
      if (group.matches(".lk-on-late") || group.closest(".lk-gap")) return paper;
      return getComputedStyle(group.parentNode.querySelector("rect")).fill;
    };
    return [...document.querySelectorAll(".labkit text")]
      .filter((node) => node.textContent && getComputedStyle(node).visibility === "visible")
      .map((node) => [node.textContent, getComputedStyle(node).fill, under(node)]);
}"""
"""Every word that shows, with its colour and the colour it lies on."""


def hexed(colour: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def state(segments: dict[str, Any], at: int = 0) -> dict[str, Any]:
    return {"segments": segments, "at": at}


def at_ms(page: Any) -> int:
    return int(float(page.locator(".labkit").first.get_attribute("data-at")) // MS)


def window(page: Any) -> list[int]:
    return [int(at) // MS for at in page.locator(".labkit").get_attribute("data-window").split()]


def shown(page: Any) -> list[str]:
    return [words for words, _, _ in page.evaluate(WORDS)]


def test_it_starts_paused_where_it_was_told(show):
    page = show(Lanes, state(EIGHT, EIGHT["horizon"]))
    page.wait_for_timeout(100)
    assert at_ms(page) == 438
    assert page.locator(".lk-play").inner_text() == "▶ play"
    assert "12 on 8 GPUs" in shown(page)


def test_play_at_the_end_begins_again(show):
    page = show(Lanes, state(EIGHT, EIGHT["horizon"]))
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('.labkit').dataset.at < 200000")
    page.keyboard.press("Space")
    assert page.locator(".lk-play").inner_text() == "▶ play"


@pytest.mark.parametrize("segments", [EIGHT, FAULTY], ids=["eight", "faulty"])
def test_the_script_says_what_the_python_twin_says_at_every_instant(show, segments):
    page = show(Lanes, state(segments), reduced_motion="reduce")
    page.locator(".lk-axis").focus()
    seen, expected = [], []
    panel = segments["panels"][0]
    for at in segments["instants"]:
        seen.append(page.evaluate(READS))
        expected.append([at, [value for _, value, _ in totals(panel, at)], receipt(panel, at)])
        page.keyboard.press("ArrowRight")
    assert seen == expected


def test_a_batch_is_named_once_the_playhead_is_past_its_words(show):
    page = show(Lanes, state(EIGHT, 60 * MS))
    assert [words for words in shown(page) if words in ("84", "77", "50")] == ["84", "77", "50"]
    assert "91" not in shown(page)


def test_keys_and_buttons_zoom_around_the_playhead_and_back(show):
    page = show(Lanes, state(EIGHT, 200 * MS))
    page.locator(".lk-axis").focus()
    page.keyboard.press("+")
    assert window(page) == [90, 309]
    page.get_by_role("button", name="zoom in").click()
    assert window(page) == [145, 254]
    page.get_by_role("button", name="zoom out").click()
    page.keyboard.press("0")
    assert window(page) == [0, 438]
    page.keyboard.press("-")
    assert window(page) == [0, 438]


def test_the_axis_carries_the_ticks_of_its_window(show):
    page = show(Lanes, state(EIGHT, 200 * MS))
    for first, last in ((0, 438 * MS), (90_500, 309_500)):
        labels = page.eval_on_selector_all(
            ".lk-axis g:not(.lk-head) text", "(nodes) => nodes.map((node) => node.textContent)"
        )
        expected = ticks(first, last, EIGHT["right"] - EIGHT["left"])
        assert labels == [f"{at // MS} ms" for at in expected]
        page.get_by_role("button", name="zoom in").click()


def test_a_playhead_that_leaves_the_window_turns_the_page(show):
    page = show(Lanes, state(EIGHT, 0))
    page.locator(".lk-axis").focus()
    for _ in range(2):
        page.keyboard.press("+")
    assert window(page) == [0, 109]
    page.keyboard.press("End")
    assert window(page) == [328, 438]
    page.keyboard.press("Home")
    assert window(page) == [0, 109]


def test_dragging_over_the_lanes_moves_time(show):
    page = show(Lanes, state(EIGHT))
    box = page.locator(".lk-hit").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.up()
    assert at_ms(page) == pytest.approx(219, abs=3)


def test_the_axis_is_a_slider(show):
    page = show(Lanes, state(EIGHT, 68 * MS))
    slider = page.get_by_role("slider", name="time")
    assert slider.get_attribute("aria-valuetext") == "68 ms"
    assert slider.get_attribute("aria-valuemax") == "438"


def test_it_speaks_of_the_latest_instant_at_most_once_a_second(show):
    page = show(Lanes, state(EIGHT))
    page.evaluate(
        """() => {
            window.spoken = [];
            const region = document.querySelector("[aria-live]");
            new MutationObserver(() => window.spoken.push(region.textContent))
              .observe(region, { childList: true, characterData: true, subtree: true });
        }"""
    )
    page.locator(".lk-axis").focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("window.spoken.length === 2")
    spoken = page.evaluate("window.spoken")
    assert [words.split(".")[0] for words in spoken] == ["8 ms", "44 ms"]


def test_reduced_motion_hops_from_one_event_to_the_next(show):
    page = show(Lanes, state(EIGHT), reduced_motion="reduce")
    page.locator("select").select_option("4")
    page.locator(".lk-play").click()
    page.wait_for_function("document.querySelector('.labkit').dataset.at !== '0'")
    assert page.locator(".labkit").get_attribute("data-at") == str(EIGHT["instants"][1])


def test_two_views_do_not_double_what_one_does(show):
    page = show(Lanes, state(EIGHT))
    page.evaluate("void (window.lab.second = window.lab.show('two'))")
    page.locator("#one .lk-axis").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert page.locator("#one .labkit").get_attribute("data-at") == "8000"
    assert page.locator("#two .labkit").get_attribute("data-at") == "0"
    assert page.locator("#two .labkit").get_attribute("data-window") == "0 438000"


def test_it_stops_when_scrolled_out_of_sight(show):
    page = show(Lanes, state(EIGHT))
    page.evaluate("document.body.style.height = '4000px'")
    page.locator(".lk-play").click()
    page.evaluate("window.scrollTo(0, 3000)")
    page.wait_for_function("document.querySelector('.lk-play').textContent === '▶ play'")
    assert at_ms(page) < 300


def test_destroyed_it_leaves_nothing_behind(show):
    page = show(Lanes, state(EIGHT))
    page.locator(".lk-play").click()
    left = page.evaluate(
        """async () => {
            (await window.lab.destroy)();
            let frames = 0;
            const ask = window.requestAnimationFrame;
            window.requestAnimationFrame = (f) => { frames += 1; return ask(f); };
            await new Promise((done) => setTimeout(done, 120));
            const roots = document.querySelectorAll(".labkit").length;
            return [roots, window.lab.model.listening(), frames];
        }"""
    )
    assert left == [0, 0, 0]


SCENES = {
    "eight": (EIGHT, EIGHT["horizon"]),
    "draining": (EIGHT, 225 * MS),
    "faulty": (FAULTY, FAULTY["horizon"]),
    "two": (
        lane_segments({f"{gpus} GPUs": simulated(1_500, 0.4, gpus) for gpus in (2, 3)}),
        300 * MS,
    ),
    "sixteen": (lane_segments(simulated(12_000, 0.4, 16)), 350 * MS),
}


@pytest.mark.parametrize("scene", SCENES)
def test_axe_finds_nothing_wrong_in_either_theme(show, keep, scene):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = show(Lanes, state(*SCENES[scene]))
    for theme in ("light", "dark"):
        page.evaluate("(theme) => window.lab.theme(theme)", theme)
        page.wait_for_selector(f'.labkit[data-theme="{theme}"]')
        keep(page, f"lanes_{scene}_{theme}")
        results = axe.run(page)
        assert results.violations_count == 0, results.generate_report()
        ratios = [(w, contrast(hexed(a), hexed(b))) for w, a, b in page.evaluate(WORDS)]
        assert [(w, r) for w, r in ratios if r < 4.5] == []
