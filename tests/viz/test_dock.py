"""The dock in a notebook: a widget where there are widgets, a picture and a line everywhere."""

import base64
import io

import pytest
from PIL import Image

from labkit.core.messages import Depart
from labkit.core.settings import Settings
from labkit.core.units import MS, S
from labkit.viz.dock import MOST_BOARDED, Dock, LoadDock
from labkit.viz.dock_twin import dock_png
from labkit.viz.hand import run_by_hand
from labkit.viz.picture import Picture
from labkit.viz.segments import OPEN, dock_segments

SIX = Settings(max_batch=6)
TRACE = run_by_hand([0, 9 * MS, 14 * MS], SIX)
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def pixels(picture):
    return Image.open(io.BytesIO(picture.png)).convert("RGB")


def test_a_notebook_keeps_the_picture_its_size_and_its_line_beside_the_widget():
    data, metadata = Dock(TRACE)._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", WIDGET_VIEW}
    assert metadata["image/png"]["alt"] == data["text/plain"]
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert image.size == (2 * metadata["image/png"]["width"], 2 * metadata["image/png"]["height"])


def test_where_widgets_do_not_run_only_the_picture_and_its_line_are_left(monkeypatch):
    monkeypatch.setenv("LABKIT_WIDGETS", "static")
    data, _ = Dock(TRACE)._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}


def test_its_repr_is_one_line_without_an_address():
    assert repr(Dock(TRACE, at=20 * MS)) == (
        "Dock at 20 ms. 3 of 6 seats taken, 0 on the bank, 0 boats out; the first has waited "
        "20 of 50 ms. Nobody has left yet."
    )


def test_the_same_instant_is_drawn_to_the_same_bytes():
    segments = dock_segments(TRACE)
    assert dock_png(segments, 20 * MS).png == dock_png(segments, 20 * MS).png


def test_the_timer_bar_fills_with_the_wait():
    segments = dock_segments(TRACE)
    orange = (194, 65, 12)

    def filled(at):
        strip = pixels(dock_png(segments, at)).crop((0, 90, 1000, 110))
        return {colour: count for count, colour in strip.getcolors(1 << 16)}.get(orange, 0)

    assert filled(0) == 0
    assert filled(40 * MS) == pytest.approx(2 * filled(20 * MS), rel=0.05)


def test_each_theme_has_its_own_paper():
    segments = dock_segments(TRACE)
    assert pixels(dock_png(segments, theme="light")).getpixel((2, 2)) == (255, 255, 255)
    assert pixels(dock_png(segments, theme="dark")).getpixel((2, 2)) == (17, 24, 39)


def test_an_instant_outside_the_trace_is_refused():
    with pytest.raises(ValueError, match="at 151000 us: these segments run from 0 to 150000 us"):
        dock_png(dock_segments(TRACE), 151 * MS)


def test_a_picture_without_words_is_refused():
    with pytest.raises(ValueError, match="a picture without a line of text"):
        Picture(b"", " ", 1, 1)


# -- you are the load ------------------------------------------------------------------------------

START = 1_700_000_000 * S


def tell(dock, kind, at=0):
    dock._told(None, {"type": kind, "at": START + at}, [])


def departures(dock):
    return [(now, len(c.rows)) for now, c in dock.trace.commands() if isinstance(c, Depart)]


def test_each_press_boards_the_real_gateway_and_its_timer_decides():
    dock = LoadDock()
    tell(dock, "board", 0)
    tell(dock, "board", 1 * S)
    assert dock.due_at == 3 * S
    tell(dock, "tick", 3 * S)
    assert departures(dock) == [(3 * S, 2)]
    assert dock.due_at == 8 * S
    tell(dock, "tick", 8 * S)
    assert dock.due_at == OPEN


def test_six_presses_fill_the_boat():
    dock = LoadDock()
    for i in range(6):
        tell(dock, "board", i * 100 * MS)
    assert departures(dock) == [(500 * MS, 6)]


def test_a_tick_told_twice_does_nothing_twice():
    dock = LoadDock()
    tell(dock, "board", 0)
    tell(dock, "tick", 3 * S)
    tell(dock, "tick", 3 * S)
    assert departures(dock) == [(3 * S, 1)]


def test_starting_again_forgets_the_crowd():
    dock = LoadDock()
    tell(dock, "board", 5 * S)
    tell(dock, "again")
    assert (dock.origin, len(dock.segments["docks"][0]["passengers"])) == (0, 0)
    tell(dock, "board", 9 * S)
    assert dock.segments["docks"][0]["passengers"][0]["since"] == 0


def test_a_learner_s_own_gateway_can_stand_behind_the_dock():
    made = []

    def mine(settings):
        from labkit.core.gateway import Gateway

        made.append(settings)
        return Gateway(settings)

    tell(LoadDock(gateway=mine), "board", 0)
    assert [settings.max_batch for settings in made] == [6]


def test_a_crowd_past_the_limit_is_not_boarded():
    dock = LoadDock(Settings())
    for i in range(MOST_BOARDED + 2):
        dock._move("board", START + i)
    assert sum(step.verb == "arrive" for step in dock.trace.steps) == MOST_BOARDED
