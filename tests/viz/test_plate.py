"""A finished picture on a notebook's page: a plate in its colours, and the PNG that is kept."""

import pytest

from labkit.viz.budget import budget_bar
from labkit.viz.picture import Picture
from labkit.viz.plate import Plate
from labkit.viz.tokens import LIGHT
from labkit.viz.widget import WIDGET_VIEW

BAR = {"dock wait": 50, "GPU": 100}


def test_a_plate_follows_the_page_in_every_colour():
    plate = Plate(budget_bar(BAR))
    assert "var(--teal)" in plate.svg
    assert "var(--paper)" in plate.svg
    assert [name for name in LIGHT.__slots__ if getattr(LIGHT, name) in plate.svg] == []


def test_a_plate_has_its_sentence_and_words_that_can_be_read():
    drawn = budget_bar(BAR)
    plate = Plate(drawn)
    assert repr(plate) == drawn.line
    assert f'role="img" aria-label="{drawn.line}"' in plate.svg
    assert "dock wait · 50 ms</text>" in plate.svg


def test_a_notebook_shows_the_plate_and_keeps_the_picture(monkeypatch):
    monkeypatch.delenv("LABKIT_WIDGETS", raising=False)
    data, shown = budget_bar(BAR)._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", WIDGET_VIEW}
    assert shown["image/png"]["alt"] == data["text/plain"]


def test_where_widgets_do_not_run_there_is_the_picture_alone(monkeypatch):
    monkeypatch.setenv("LABKIT_WIDGETS", "static")
    assert set(budget_bar(BAR)._repr_mimebundle_()[0]) == {"text/plain", "image/png"}


def test_a_picture_saves_as_what_its_name_ends_in(tmp_path):
    drawn = budget_bar(BAR)
    assert drawn.save(tmp_path / "bar.png").read_bytes() == drawn.png
    assert drawn.save(tmp_path / "bar.svg").read_text(encoding="utf-8").startswith("<svg ")
    plain = Picture(drawn.png, "a bar", 1, 1)
    assert set(plain._repr_mimebundle_()[0]) == {"text/plain", "image/png"}
    with pytest.raises(ValueError, match=r"bar\.svg: this picture has no SVG; save it as \.png"):
        plain.save(tmp_path / "bar.svg")
    with pytest.raises(ValueError, match="no SVG: show it as it is"):
        Plate(plain)
