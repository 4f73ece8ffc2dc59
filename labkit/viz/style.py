"""The matplotlib style made from the tokens, and the one way a figure reaches a notebook."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from labkit.viz.picture import Picture
from labkit.viz.tokens import FONT, Theme, palette

DOTS_PER_PIXEL = 2
"""Pictures are drawn twice as fine as they are shown, for sharp screens and print."""

CSS_DPI = 96
COLOURS = 96

BUDGET_MS = 500


def rc(theme: Theme = "light") -> Any:
    """The settings of matplotlib for one theme: no box, no legend frame, quiet ticks."""
    p = palette(theme)
    return {
        "figure.dpi": CSS_DPI,
        "figure.figsize": (7.5, 3.2),
        "figure.facecolor": p.paper,
        "figure.constrained_layout.use": True,
        "savefig.facecolor": p.paper,
        "font.family": "DejaVu Sans",
        "font.size": 9.75,
        "axes.facecolor": p.paper,
        "axes.edgecolor": p.line,
        "axes.labelcolor": p.muted,
        "axes.titlecolor": p.ink,
        "axes.titlesize": 9.75,
        "axes.titlelocation": "left",
        "axes.titleweight": "normal",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "axes.prop_cycle": _cycle(p.teal, p.orange, p.purple, p.muted),
        "text.color": p.ink,
        "xtick.color": p.line,
        "ytick.color": p.line,
        "xtick.labelcolor": p.muted,
        "ytick.labelcolor": p.muted,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "lines.linewidth": 1.6,
        "lines.solid_capstyle": "round",
        "hatch.linewidth": 1.4,
        "legend.frameon": False,
        "svg.hashsalt": "labkit",
    }


def use_style(theme: Theme = "light") -> None:
    """Draw every later figure of this session in the lab's style."""
    rcParams.update(rc(theme))


@contextmanager
def style(theme: Theme = "light") -> Iterator[None]:
    """Draw in the lab's style inside a `with` only."""
    with rc_context(rc(theme)):
        yield


def budget_line(axes: Axes, theme: Theme = "light", at_ms: float = BUDGET_MS) -> Line2D:
    """The budget: the same thin red line in every picture of latency (x in milliseconds)."""
    colour = palette(theme).red
    line = axes.axvline(at_ms, color=colour, linewidth=1)
    axes.annotate(
        f"{at_ms:g} ms",
        (at_ms, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4, -2),
        textcoords="offset points",
        va="top",
        color=colour,
    )
    return line


def picture(figure: Figure, line: str) -> Picture:
    """A finished figure as PNG with the sentence that says its point; closes it for pyplot."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=CSS_DPI * DOTS_PER_PIXEL)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    width, height = (round(inches * CSS_DPI) for inches in figure.get_size_inches())
    return Picture(_few_colours(drawn), line, width, height, lambda: _svg(figure, line))


def _svg(figure: Figure, line: str) -> str:
    """The figure as SVG with words that can be read, selected and found, and its sentence."""
    drawn = io.StringIO()
    # Of two pictures on one page each has its own names for what it clips and hatches.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": line}):
        figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Type")))
    text = drawn.getvalue()
    text = text[text.index("<svg") :].replace("'DejaVu Sans'", FONT.replace('"', "'"))
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(line, quote=True)}"', 1)


def _few_colours(drawn: io.BytesIO) -> bytes:
    """A quarter of the bytes: these pictures have few colours, and notebooks keep them all."""
    small = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        small, format="png", optimize=True
    )
    return small.getvalue()


def _cycle(*colours: str) -> Any:
    from cycler import cycler

    return cycler(color=colours)
