"""A sheet of CSS pixels to draw pictures on, and the pen that draws its shapes and words."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle

from labkit.viz.picture import Picture
from labkit.viz.style import CSS_DPI, picture, style
from labkit.viz.tokens import SMALL_PX, Palette, Theme, palette

MARGIN = 16
POINTS = 72 / CSS_DPI


def drawn(
    width: float, height: float, line: str, theme: Theme, draw: Callable[["Pen"], None]
) -> Picture:
    """What `draw` puts on a sheet of this size, as a picture with a margin; `line` says it."""
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    with style(theme):
        figure = Figure(figsize=(width / CSS_DPI, height / CSS_DPI))
        figure.set_layout_engine("none")
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-MARGIN, width - MARGIN), ylim=(height - MARGIN, -MARGIN))
        axes.axis("off")
        draw(Pen(axes, palette(theme)))
        return picture(figure, line)


class Pen:
    """Draws in CSS pixels, downwards from an offset, in one palette."""

    def __init__(self, axes: Axes, colours: Palette, offset: float = 0) -> None:
        self.axes = axes
        self.p = colours
        self.offset = offset

    def text(self, x: float, y: float, words: str, colour: str, **more: Any) -> None:
        """Words; `y` is their baseline unless `va` says otherwise, `size` is in pixels."""
        size = more.pop("size", SMALL_PX) * POINTS
        self.axes.text(x, y + self.offset, words, color=colour, fontsize=size, **more)

    def line(
        self, x: Sequence[float], y: Sequence[float], colour: str, width: float = 1.0, **more: Any
    ) -> None:
        """A line through these points."""
        shifted = [value + self.offset for value in y]
        self.axes.plot(x, shifted, color=colour, linewidth=width * POINTS, **more)

    def disc(self, x: float, y: float, radius: float, **look: Any) -> None:
        """A disc, or a ring."""
        look["linewidth"] = look.get("linewidth", 1.6) * POINTS
        self.axes.add_patch(Circle((x, y + self.offset), radius, **look))

    def bar(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        """A bar with ends as round as `radius` says, half its height by default."""
        look["linewidth"] = look.get("linewidth", 1) * POINTS
        radius = look.pop("radius", height / 2)
        corner = f"round,pad=0,rounding_size={min(radius, width / 2)}"
        y += self.offset
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corner, **look))

    def box(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        """A bar with corners."""
        look["linewidth"] = look.get("linewidth", 1) * POINTS
        self.axes.add_patch(Rectangle((x, y + self.offset), width, height, **look))

    def area(self, points: Sequence[Sequence[float]], **look: Any) -> None:
        """A closed shape through these points."""
        look["linewidth"] = look.get("linewidth", 1) * POINTS
        shifted = [(x, y + self.offset) for x, y in points]
        self.axes.add_patch(Polygon(shifted, closed=True, joinstyle="round", **look))

    def gauge(
        self, x: float, y: float, width: float, height: float, part: float, colour: str
    ) -> None:
        """A rounded bar of which the left part is filled; its outline is always whole."""
        self.bar(x, y, width, height, facecolor="none", edgecolor=self.p.line)
        self.bar(x, y, width, height, facecolor=colour, edgecolor="none")
        shown = Rectangle((x, y + self.offset), width * min(max(part, 0), 1), height)
        shown.set_transform(self.axes.transData)
        self.axes.patches[-1].set_clip_path(shown)
