"""The dock's script in a real browser: what it draws, how it is driven, and that it goes away."""

import re
from typing import Any

import pytest

from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.units import MS, S
from labkit.viz.dock import Dock
from labkit.viz.hand import HandShell, run_by_hand
from labkit.viz.moment import moment
from labkit.viz.segments import OPEN, dock_segments
from labkit.viz.tokens import contrast

SIX = Settings(max_batch=6)
ARRIVALS = [ms * MS for ms in (0, 9, 14, 33, 40, 41, 46, 80, 95, 130, 150, 160, 165, 170, 175)]
SEGMENTS = dock_segments(run_by_hand(ARRIVALS, SIX, gpus=2))


WHO_SHOWS = """() => {
    const count = (selector) => document.querySelectorAll(selector).length;
    return [
      Number(document.querySelector(".labkit").dataset.at),
      count('.lk-who[data-state="bank"]'),
      count('.lk-who[data-state="aboard"]'),
      count(".lk-out"),
      document.querySelector(".lk-receipt").textContent,
    ];
}"""


WORDS = """() => {
    const under = (node) => {
      const shape = node.parentNode.querySelector(".lk-disc, .lk-badge rect");
      const paper = getComputedStyle(document.body).backgroundColor;
      return shape && node.closest(".lk-who, .lk-badge") ? getComputedStyle(shape).fill : paper;
    };
    const texts = [...document.querySelectorAll(".labkit text")];
    return texts.filter((node) => node.textContent).map((node) =>
      [node.textContent, getComputedStyle(node).fill, under(node)]);
}"""
"""Every word with its colour and the colour it lies on: axe does not look into SVG."""


def ratio(one: str, other: str) -> float:
    """The contrast of two colours as a browser gives them: `rgb(1, 2, 3)`."""

    def hexed(colour: str) -> str:
        return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])

    return contrast(hexed(one), hexed(other))


def replaying(segments: dict[str, Any] = SEGMENTS) -> dict[str, Any]:
    return {"mode": "replay", "segments": segments}


def at_ms(page: Any) -> int:
    return int(float(page.locator(".labkit").first.get_attribute("data-at")) // MS)


def test_it_starts_paused_at_nought(show):
    page = show(Dock, replaying())
    page.wait_for_timeout(150)
    assert at_ms(page) == 0
    assert page.locator(".lk-play").inner_text() == "▶ play"


def test_the_keyboard_alone_steps_jumps_and_plays(show):
    page = show(Dock, replaying())
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert at_ms(page) == 9
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert at_ms(page) == 9
    page.keyboard.press("End")
    assert at_ms(page) == SEGMENTS["horizon"] // MS
    page.keyboard.press("Home")
    assert at_ms(page) == 0
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('.labkit').dataset.at > 2000")
    page.keyboard.press("Space")
    assert page.locator(".lk-play").inner_text() == "▶ play"


def test_a_space_on_the_play_button_toggles_once(show):
    page = show(Dock, replaying())
    page.locator(".lk-play").focus()
    page.keyboard.press("Space")
    assert page.locator(".lk-play").inner_text() == "❚❚ pause"


def test_the_script_shows_whom_the_python_twin_shows_at_every_instant(show):
    page = show(Dock, replaying(), reduced_motion="reduce")
    page.locator(".lk-axis").focus()
    seen, expected = [], []
    for at in SEGMENTS["instants"]:
        seen.append(page.evaluate(WHO_SHOWS))
        now = moment(SEGMENTS, SEGMENTS["docks"][0], at)
        expected.append([at, len(now.bank), len(now.aboard), len(now.out), now.receipt])
        page.keyboard.press("ArrowRight")
    assert seen == expected


def test_play_runs_to_the_end_and_stops(show):
    page = show(Dock, replaying(dock_segments(run_by_hand([0], SIX), pace=S)))
    page.locator(".lk-play").click()
    page.wait_for_function("document.querySelector('.labkit').dataset.at == 150000")
    assert page.locator(".lk-play").inner_text() == "▶ play"


def test_speed_multiplies_the_pace(show):
    page = show(Dock, replaying())
    page.locator("select").select_option("4")
    page.evaluate(
        """() => new Promise((done) => {
            const root = document.querySelector(".labkit");
            root.querySelector(".lk-play").click();
            const start = performance.now();
            const look = () => {
              const passed = performance.now() - start;
              if (passed < 700) return requestAnimationFrame(look);
              window.measured = Number(root.dataset.at) / 1000 / passed;
              done();
            };
            look();
        })"""
    )
    expected = 4 * SEGMENTS["pace"] / S
    assert expected * 0.5 < page.evaluate("window.measured") <= expected * 1.1


def test_reduced_motion_hops_from_one_event_to_the_next(show):
    page = show(Dock, replaying(), reduced_motion="reduce")
    page.locator("select").select_option("4")
    page.locator(".lk-play").click()
    seen = page.evaluate(
        """() => new Promise((done) => {
            const root = document.querySelector(".labkit");
            const seen = new Set();
            const observer = new MutationObserver(() => {
              seen.add(Number(root.dataset.at));
              if (seen.size === 4) { observer.disconnect(); done([...seen]); }
            });
            observer.observe(root, { attributes: true, attributeFilter: ["data-at"] });
        })"""
    )
    assert seen == SEGMENTS["instants"][1:5]


def test_dragging_the_playhead_moves_time(show):
    page = show(Dock, replaying())
    box = page.locator(".lk-hit").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 15)
    page.mouse.up()
    assert at_ms(page) == pytest.approx(SEGMENTS["horizon"] / MS / 2, abs=3)
    page.mouse.move(box["x"] + 20, box["y"] + 15)
    assert at_ms(page) == pytest.approx(SEGMENTS["horizon"] / MS / 2, abs=3)


def test_the_timer_is_a_progress_bar_and_the_axis_a_slider(show):
    page = show(Dock, replaying())
    page.locator(".lk-axis").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    bar = page.get_by_role("progressbar", name="how long the first has waited")
    assert bar.get_attribute("aria-valuenow") == "33"
    assert bar.get_attribute("aria-valuetext") == "the first has waited 33 of 50 ms"
    slider = page.get_by_role("slider", name="time")
    assert slider.get_attribute("aria-valuetext") == "33 ms"


def test_it_speaks_at_most_once_a_second_and_says_the_latest(show):
    page = show(Dock, replaying())
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
    assert [words.split(".")[0] for words in spoken] == ["9 ms", "46 ms"]


def test_two_views_do_not_double_what_one_does(show):
    page = show(Dock, replaying())
    page.evaluate("void (window.lab.second = window.lab.show('two'))")
    page.locator("#one .lk-axis").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#one .labkit").get_attribute("data-at") == "9000"
    assert page.locator("#two .labkit").get_attribute("data-at") == "0"


def test_it_stops_when_scrolled_out_of_sight(show):
    page = show(Dock, replaying())
    page.evaluate("document.body.style.paddingTop = '0'; document.body.style.height = '4000px'")
    page.locator(".lk-play").click()
    page.evaluate("window.scrollTo(0, 3000)")
    page.wait_for_function("document.querySelector('.lk-play').textContent === '▶ play'")
    assert at_ms(page) < SEGMENTS["horizon"] / MS / 2


def test_destroyed_it_leaves_nothing_behind(show):
    page = show(Dock, replaying())
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


def test_new_segments_are_drawn(show):
    page = show(Dock, replaying())
    page.evaluate(
        "(segments) => { window.lab.state.segments = segments; window.lab.model.emit(); }",
        dock_segments(run_by_hand([0], SIX)),
    )
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert at_ms(page) == 150


def two_rules() -> dict[str, Any]:
    return dock_segments(
        {
            "leave at once": run_by_hand(ARRIVALS, SIX.with_(rule="at_once")),
            "wait until full": run_by_hand(ARRIVALS, SIX.with_(rule="full")),
        }
    )


def with_a_loss() -> dict[str, Any]:
    shell = HandShell(SIX, gpus=2)
    for i, (ms, tenant, tier) in enumerate(
        [(0, "a", 0), (5, "b", 0), (9, "c", 1), (12, "b", 0), (70, "a", 0), (75, "a", 1)]
    ):
        shell.board([Request(i, arrived_at=ms * MS, tier=tier, tenant=tenant)], ms * MS)
    shell.lose(0, 90 * MS)
    shell.until(300 * MS)
    return dock_segments(shell.trace)


CROWD = [i * 400 for i in range(700)]
SCENES = {
    "six": (SEGMENTS, 10),
    "two_rules": (two_rules(), 9),
    "loss": (with_a_loss(), 7),
    "hundred": (dock_segments(run_by_hand(CROWD, Settings(), gpus=2)), 350),
    "eight": (dock_segments(run_by_hand(CROWD, Settings(max_batch=12), gpus=8)), 90),
}


@pytest.mark.parametrize("scene", SCENES)
def test_axe_finds_nothing_wrong_in_either_theme(show, keep, scene):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    segments, steps = SCENES[scene]
    page = show(Dock, replaying(segments), reduced_motion="reduce")
    page.evaluate(
        """(steps) => {
            const axis = document.querySelector(".lk-axis");
            const press = () => new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true });
            for (let i = 0; i < steps; i += 1) axis.dispatchEvent(press());
        }""",
        steps,
    )
    for theme in ("light", "dark"):
        page.evaluate("(theme) => window.lab.theme(theme)", theme)
        page.wait_for_selector(f'.labkit[data-theme="{theme}"]')
        keep(page, f"dock_{scene}_{theme}")
        results = axe.run(page)
        assert results.violations_count == 0, results.generate_report()
        faint = [(w, r) for w, fill, on in page.evaluate(WORDS) if (r := ratio(fill, on)) < 4.5]
        assert faint == []


# -- you are the load ------------------------------------------------------------------------------


def loading() -> dict[str, Any]:
    empty = HandShell(Settings(max_batch=6, max_wait=3 * S, batch_time=5 * S, budget=None)).trace
    return {"mode": "load", "segments": dock_segments(empty, pace=S), "origin": 0, "due_at": OPEN}


def test_a_press_and_a_space_each_board_one_passenger(show):
    page = show(Dock, loading())
    page.get_by_role("button", name="board").click()
    page.locator(".labkit").focus()
    page.keyboard.press("Space")
    kinds = page.evaluate("window.lab.model.sent.map((message) => message.type)")
    assert kinds == ["board", "board"]


def test_with_two_views_a_press_still_boards_one(show):
    page = show(Dock, loading())
    page.evaluate("void (window.lab.second = window.lab.show('two'))")
    page.locator("#one").get_by_role("button", name="board").click()
    assert page.evaluate("window.lab.model.sent.length") == 1


def test_the_script_asks_for_the_timer_when_the_gateway_said_so(show):
    page = show(Dock, loading())
    page.evaluate(
        """() => {
            window.lab.state.origin = Date.now() * 1000;
            window.lab.state.due_at = 60000;
            window.lab.model.emit();
        }"""
    )
    page.wait_for_function("window.lab.model.sent.length > 0")
    sent = page.evaluate("window.lab.model.sent")
    assert sent[0]["type"] == "tick"
    assert sent[0]["at"] - page.evaluate("window.lab.state.origin") >= 60000
