"""A finished picture on a page: in the colours of that page's theme, whichever it is."""

from labkit.viz.budget import budget_bar
from labkit.viz.plate import Plate
from labkit.viz.tokens import DARK, LIGHT

PAPER = "getComputedStyle(document.querySelector('.lk-plate svg path')).fill"


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_it_follows_the_theme_of_its_page_and_fits_a_narrow_one(show, keep):
    drawn = budget_bar({"dock wait": 50, "GPU": 100, "reserve": 200})
    page = show(Plate, {"svg": Plate(drawn).svg}, viewport={"width": 420, "height": 300})
    assert page.evaluate(PAPER) == rgb(LIGHT.paper)
    keep(page, "plate_light")
    page.evaluate("lab.theme('dark')")
    page.wait_for_selector('.labkit[data-theme="dark"]')
    assert page.evaluate(PAPER) == rgb(DARK.paper)
    keep(page, "plate_dark")
    plate = page.get_by_role("img", name=drawn.line)
    assert plate.bounding_box()["width"] <= 420
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
