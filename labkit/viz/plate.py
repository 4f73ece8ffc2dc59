"""Any finished picture on a notebook's page, in the colours of that page's theme."""

from dataclasses import asdict

import traitlets

from labkit.viz.assets import script, sheet
from labkit.viz.picture import Picture
from labkit.viz.tokens import palette
from labkit.viz.widget import Widget


class Plate(Widget):
    """Shows the SVG of a picture that was drawn in the light theme; its twin is the picture."""

    _esm = script("base.js", "plate.js")
    _css = sheet("base.css", "plate.css")

    svg = traitlets.Unicode().tag(sync=True)

    def __init__(self, shown: Picture) -> None:
        if shown.svg is None:
            raise ValueError("this picture has no SVG: show it as it is")
        self._picture = shown
        super().__init__(svg=_follow(shown.svg()))

    def picture(self) -> Picture:
        """The picture as it was drawn."""
        return self._picture

    def __repr__(self) -> str:
        return self._picture.line


def _follow(svg: str) -> str:
    """Every colour of the light theme as the variable of that name, which the page's theme sets."""
    for name, colour in asdict(palette("light")).items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg
