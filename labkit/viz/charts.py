"""Line charts with their names beside the lines, in the lab's style."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.viz.picture import Picture
from labkit.viz.style import BUDGET_MS, picture, style
from labkit.viz.tokens import Theme, palette

MARKS = ("o", "s", "^", "D")
DASHES = ("-", "--", ":", "-.")
"""Series differ in dash and mark as well as in colour: the chart must read in grey."""

Series = tuple[Sequence[float], Sequence[float | None]]


def curves(
    series: Mapping[str, Series],
    *,
    x: str,
    y: str,
    says: str,
    log_x: bool = False,
    budget: bool = False,
    marks: Sequence[str] = (),
    theme: Theme = "light",
) -> Picture:
    """One chart of named (xs, ys); `says` is its point in a sentence, and its alternative text.

    `marks`: names of series shown as marks without a line. `budget` draws the 500 ms objective
    (y in milliseconds). A y of None leaves a gap.
    """
    colours = palette(theme)
    cycle = (colours.teal, colours.orange, colours.purple, colours.muted)
    with style(theme):
        figure = Figure()
        axes = figure.add_subplot(xlabel=x, ylabel=y)
        if log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
        elif all(float(at).is_integer() for xs, _ in series.values() for at in xs):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        ends = []
        for i, (name, (xs, ys)) in enumerate(series.items()):
            heights = [float("nan") if value is None else value for value in ys]
            colour = cycle[i % len(cycle)]
            look = MARKS[i % len(MARKS)] if name in marks else ""
            dash = "none" if name in marks else DASHES[i % len(DASHES)]
            axes.plot(xs, heights, color=colour, linestyle=dash, marker=look, fillstyle="none")
            shown = [(a, b) for a, b in zip(xs, heights, strict=True) if b == b]
            if shown:
                ends.append((shown[-1][1], shown[-1][0], name, colour))
        if budget:
            axes.axhline(BUDGET_MS, color=colours.red, linewidth=1)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.06)
        _name_lines(axes, ends)
        return picture(figure, says)


def _name_lines(axes: object, ends: list[tuple[float, float, str, str]]) -> None:
    """Each line's name at its right end, moved apart where two would overlap."""
    low, high = axes.get_ylim()  # type: ignore[attr-defined]
    apart = (high - low) * 0.075
    at = float("-inf")
    for height, end, name, colour in sorted(ends):
        at = max(height, at + apart)
        axes.annotate(  # type: ignore[attr-defined]
            name,
            (end, height),
            xytext=(1.01, at),
            textcoords=axes.get_yaxis_transform(),  # type: ignore[attr-defined]
            va="center",
            color=colour,
        )
