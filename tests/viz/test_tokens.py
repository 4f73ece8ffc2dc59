"""The colours: readable in both themes, and the same in the script and in the pictures."""

import pytest

from labkit.viz.tokens import DARK, LIGHT, contrast, css, palette


@pytest.mark.parametrize("p", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "muted", "teal", "purple", "orange", "red"])
def test_every_colour_of_text_stands_out_from_the_paper(p, name):
    assert contrast(getattr(p, name), p.paper) >= 4.5


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == 21.0
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_the_style_sheet_holds_the_same_colours():
    sheet = css()
    for value in (LIGHT.teal, DARK.teal, LIGHT.orange, DARK.red):
        assert value in sheet
    assert "--ink: var(--jp-content-font-color1, #1f2937)" in sheet


def test_an_unknown_theme_is_refused():
    with pytest.raises(ValueError, match="theme 'sepia': choose 'light' or 'dark'"):
        palette("sepia")
