"""A load test as one picture: latency over time, its tail, and what came back, on shared axes."""

from collections.abc import Sequence
from math import ceil, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labkit.viz.load_shape import (
    ANSWERED,
    BROKEN,
    NO_ANSWER,
    Books,
    Floats,
    LoadShape,
    Times,
    load_shape,
    meaning,
    number,
)
from labkit.viz.picture import Picture
from labkit.viz.style import BUDGET_MS, CSS_DPI, picture, style
from labkit.viz.tokens import Palette, Theme, palette

WIDTH = 760
LEFT, MIDDLE, RIGHT = 58, 536, 744
"""CSS pixels: where both columns of panels begin and end."""

GUTTER = 80
"""Between the columns; the names of the lines stand in it."""

LATENCY, STEPS, COUNTS = 168, 54, 84
"""Heights of the panels, without what stands above and below them."""

TITLE, STRIP, ROW, BETWEEN, NAME, END = 22, 62, 18, 50, 19, 46

MOST_DOTS = 3_000
"""More answers than this are shown as percentiles a slot, in place of a dot each."""

LOG_ABOVE = 30
"""A slowest answer of so many medians needs a logarithmic axis."""

TICKS = (50, 90, 99, 99.9, 99.99, 99.999)


def load_picture(
    books: Books, *, title: str = "", budget_ms: float | None = BUDGET_MS, theme: Theme = "light"
) -> Picture:
    """The picture of one load test; its sentence says the counts and the percentiles.

    Latency counts from the instant at which a request was due. `budget_ms` draws the objective.
    """
    shape, p = load_shape(books), palette(theme)
    with style(theme):
        sheet = _Sheet(_height(shape, bool(title)))
        if title:
            sheet.text(LEFT, sheet.top, title, color=p.muted)
            sheet.top += TITLE
        _strip(sheet, shape, p, budget_ms)
        _latency(sheet, shape, p, budget_ms)
        if len(shape.steps.ms):
            _steps(sheet, shape, p)
        _counts(sheet, shape, p)
        return picture(sheet.figure, shape.words())


def _height(shape: LoadShape, titled: bool) -> int:
    """Of the whole picture, in CSS pixels."""
    rows = len(_rows(shape)) - 1
    panels = LATENCY + BETWEEN + (STEPS + BETWEEN) * bool(len(shape.steps.ms))
    below = max(COUNTS + END, NAME * len(shape.due) + ROW)
    return TITLE + TITLE * titled + STRIP + ROW * rows + panels + below


class _Sheet:
    """A figure laid out in CSS pixels from the top, panel under panel; `top` is the next one's."""

    def __init__(self, height: int) -> None:
        self.width, self.height, self.top = WIDTH, height, TITLE
        self.figure = Figure(figsize=(WIDTH / CSS_DPI, height / CSS_DPI))
        self.figure.set_layout_engine("none")

    def text(self, x: float, y: float, words: str, **look: Any) -> None:
        """Words whose baseline is `y` pixels from the top."""
        self.figure.text(x / self.width, 1 - y / self.height, words, **look)

    def axes(self, left: float, height: float) -> Axes:
        """A panel of one of the columns, so high, at `top`."""
        right = MIDDLE - GUTTER if left == LEFT else RIGHT
        across, up = self.width, self.height
        box = (left / across, 1 - (self.top + height) / up, (right - left) / across, height / up)
        return self.figure.add_axes(box)


# -- the strip of numbers --------------------------------------------------------------------------


def _strip(sheet: _Sheet, shape: LoadShape, p: Palette, budget_ms: float | None) -> None:
    """The counts and the percentiles, as one row of a table; for streams two rows more."""
    refused = sum(len(at) for status, at in shape.due.items() if status > ANSWERED)
    broken = sum(len(shape.due.get(status, ())) for status in (BROKEN, NO_ANSWER))
    columns = [
        ("requests", f"{shape.offered:,}", p.ink),
        ("answered", f"{len(shape.whole.ms):,}", p.ink),
        ("refused", f"{refused:,}", p.orange if refused else p.ink),
        ("no answer", f"{broken:,}", p.red if broken else p.ink),
    ]
    for x, (name, value, colour) in zip((LEFT, 142, 226, 302), columns, strict=True):
        sheet.text(x, sheet.top, name, color=p.muted, size=9)
        sheet.text(x, sheet.top + 20, value, color=colour, size=12)
    rows = _rows(shape)
    _percentiles(sheet, rows, p, budget_ms)
    sheet.top += STRIP + ROW * (len(rows) - 1)


def _rows(shape: LoadShape) -> list[tuple[str, Times]]:
    """The durations that there are, by name."""
    if not len(shape.firsts.ms):
        return [("latency, ms", shape.whole)]
    rows = [("whole answer, ms", shape.whole), ("first piece, ms", shape.firsts)]
    return rows + [("between pieces, ms", shape.steps)] * bool(len(shape.steps.ms))


def _percentiles(
    sheet: _Sheet, rows: Sequence[tuple[str, Times]], p: Palette, budget_ms: float | None
) -> None:
    """What is late stands in red."""
    places = (548, 612, 676, RIGHT)
    for x, name in zip(places, ("P50", "P95", "P99", "slowest"), strict=True):
        sheet.text(x, sheet.top, name, color=p.muted, size=9, ha="right")
    for i, (name, times) in enumerate(rows):
        y = sheet.top + 20 + ROW * i
        sheet.text(places[0] - 56, y, name, color=p.muted, size=9, ha="right")
        values = [times.percentile(percent) for percent in (50, 95, 99, 100)]
        for x, value in zip(places, values, strict=True):
            late = i == 0 and budget_ms is not None and value is not None and value > budget_ms
            look = {"color": p.red if late else p.ink, "size": 12 if len(rows) == 1 else 10}
            sheet.text(x, y, "–" if value is None else number(value), ha="right", **look)


# -- latency ---------------------------------------------------------------------------------------


def _latency(sheet: _Sheet, shape: LoadShape, p: Palette, budget_ms: float | None) -> None:
    """Over time on the left, over percentiles on the right, on one axis of milliseconds."""
    time, tail = sheet.axes(LEFT, LATENCY), sheet.axes(MIDDLE, LATENCY)
    sheet.top += LATENCY + BETWEEN
    time.set_title("latency (ms) by the second in which a request was due", color=p.muted)
    tail.set_title("and by percentile", color=p.muted)
    tail.tick_params(labelleft=False)
    tail.spines["left"].set_visible(False)
    tail.yaxis.set_ticks_position("none")
    series = _series(shape, p)
    keyed = len(series) > 1 and not len(shape.firsts.ms)
    high = max((float(times.ms.max()) for _, times, _, _ in series if len(times.ms)), default=0.0)
    _scale([time, tail], shape.whole, high, budget_ms)
    _seconds(time, shape)
    names = []
    for name, times, colour, dash in series:
        bands = _over_time(time, times, shape.slot_s, colour, dash)
        names += [] if keyed else bands
        if len(series) > 1 and len(times.ms):
            names.append((times.percentile(50) or 0.0, name, colour))
        _tail(tail, times, colour, dash)
    _tail_axis(tail, max(len(times.ms) for _, times, _, _ in series))
    if budget_ms is not None and time.get_ylim()[1] >= budget_ms:
        names.append((budget_ms, f"{budget_ms:g} ms", p.red))
        for axes in (time, tail):
            axes.axhline(budget_ms, color=p.red, linewidth=1, zorder=1)
    _names(time, names, 8 if keyed else 9)
    if not len(shape.whole.ms):
        said = "nobody was answered" if shape.offered else "no request was due"
        time.text(0.5, 0.5, said, transform=time.transAxes, ha="center", color=p.muted)


def _series(shape: LoadShape, p: Palette) -> list[tuple[str, Times, str, str]]:
    """What is drawn in which colour and dash: streams in two parts, else each key by itself."""
    if len(shape.firsts.ms):
        return [
            ("whole", shape.whole, p.teal, "-"),
            ("first piece", shape.firsts, p.orange, "--"),
        ]
    colours = (p.teal, p.purple, p.orange, p.ink, p.muted)
    if 1 < len(shape.by_key) <= len(colours):
        keyed = zip(shape.by_key.items(), colours, strict=False)
        return [(name, times, colour, "-") for (name, times), colour in keyed]
    return [("whole", shape.whole, p.teal, "-")]


def _scale(panels: Sequence[Axes], whole: Times, high: float, budget_ms: float | None) -> None:
    """From zero, or logarithmic where a few are slower by far; the budget shows when it is near."""
    middle = whole.percentile(50) or 0.0
    logarithmic = bool(middle) and high > LOG_ABOVE * middle
    top = high * 1.08 or (budget_ms or 1.0) * 1.1
    if budget_ms is not None and budget_ms / 3 < high < budget_ms:
        top = budget_ms * 1.08
    for axes in panels:
        if logarithmic:
            axes.set_yscale("log")
            axes.set_ylim(max(float(whole.ms.min()) / 1.5, 0.1), top * 1.3)
        else:
            axes.set_ylim(0, top)
        axes.yaxis.set_major_formatter("{x:,g}")


def _seconds(axes: Axes, shape: LoadShape) -> None:
    slot = shape.slot_s
    axes.set_xlim(0, (int(shape.span_s / slot) + 1) * slot)
    axes.xaxis.set_major_formatter("{x:,g}")


Named = list[tuple[float, str, str]]
"""Heights, names and colours of what is named in the gutter."""


def _over_time(axes: Axes, times: Times, slot_s: float, colour: str, dash: str) -> Named:
    """A dot an answer, or for many the middle, the span from P5 to P95, and the slowest."""
    if len(times.ms) <= MOST_DOTS:
        mark = "o" if dash == "-" else "^"
        size = 3.4 if len(times.ms) <= 600 else 2.2
        look: dict[str, Any] = {"markersize": size, "markeredgewidth": 0, "alpha": 0.55}
        axes.plot(times.at, times.ms, mark, color=colour, **look)
        return []
    at, rows = _slots(times, slot_s)
    axes.fill_between(at, rows[:, 0], rows[:, 2], color=colour, alpha=0.22, linewidth=0)
    axes.plot(at, rows[:, 1], dash, color=colour)
    if dash != "-":
        return []
    axes.plot(at, rows[:, 3], ".", color=colour, markersize=3)
    _, p50, p95, slowest = rows[-1]
    return [(p95, "P5 to P95", colour), (p50, "P50", colour), (slowest, "slowest", colour)]


def _slots(times: Times, slot_s: float) -> tuple[Floats, Floats]:
    """The middle of each slot, and P5, P50, P95 and maximum of the answers due in it, or gaps."""
    place = np.floor(times.at / slot_s).astype(np.int64)
    order = np.lexsort((times.ms, place))
    places, starts = np.unique(place[order], return_index=True)
    rows = np.full((int(places[-1]) + 1, 4), np.nan)
    for row, group in zip(places, np.split(times.ms[order], starts[1:]), strict=True):
        rows[row] = [group[max(ceil(q * len(group)), 1) - 1] for q in (0.05, 0.5, 0.95, 1)]
    return slot_s * np.arange(0.5, len(rows)), rows


def _names(axes: Axes, names: Named, size: int = 9) -> None:
    """Names in the gutter, moved apart where two would overlap."""
    lowest = float("-inf")
    for height, name, colour in sorted(names, key=lambda one: one[0]):
        y = float(axes.transData.transform((0, height))[1])
        lowest = max(y, lowest + 15)
        axes.annotate(
            name, (1, height), xycoords=("axes fraction", "data"),
            xytext=(6, (lowest - y) * 72 / CSS_DPI), textcoords="offset points",
            va="center", size=size, color=colour,
        )  # fmt: skip


def _tail(axes: Axes, times: Times, colour: str, dash: str) -> None:
    """Sorted: each answer at the share of all that are slower, on a logarithmic axis."""
    count = len(times.ms)
    if not count:
        return
    slower = -np.log10(1 - np.arange(count) / count)
    steps = "steps-post" if count < 200 else "default"
    axes.plot(slower, times.ordered, dash, color=colour, drawstyle=steps)
    for percent in (50, 95, 99):
        if count >= 100 / (100 - percent):
            height = times.percentile(percent) or 0.0
            axes.plot([-log10(1 - percent / 100)], [height], "o", color=colour, markersize=4)


def _tail_axis(axes: Axes, count: int) -> None:
    reach = log10(max(count, 20))
    shown = [percent for percent in TICKS if -log10(1 - percent / 100) <= reach + 0.01]
    axes.set_xlim(0, reach * 1.03)
    axes.set_xticks([-log10(1 - percent / 100) for percent in shown])
    axes.set_xticklabels([f"{percent:g}" for percent in shown])


# -- pieces, and what came back --------------------------------------------------------------------


def _steps(sheet: _Sheet, shape: LoadShape, p: Palette) -> None:
    axes = sheet.axes(LEFT, STEPS)
    axes.set_title("between pieces (ms)", color=p.muted)
    axes.set_ylim(0, float(shape.steps.ms.max()) * 1.15 or 1)
    axes.yaxis.set_major_formatter("{x:,g}")
    _seconds(axes, shape)
    _names(axes, _over_time(axes, shape.steps, shape.slot_s, p.ink, "-"))
    sheet.top += STEPS + BETWEEN


def _counts(sheet: _Sheet, shape: LoadShape, p: Palette) -> None:
    """How many were due in each slot, stacked by what came back; its names on the right."""
    axes = sheet.axes(LEFT, COUNTS)
    slot = shape.slot_s
    axes.set_title("requests a second, by what came back", color=p.muted)
    axes.set_xlabel("seconds")
    _seconds(axes, shape)
    axes.yaxis.set_major_formatter("{x:,g}")
    edges = np.arange(int(shape.span_s / slot) + 2) * slot
    base = np.zeros(len(edges) - 1)
    for row, (status, at) in enumerate(shape.due.items()):
        heights = base + np.histogram(at, edges)[0] / slot
        axes.stairs(heights, edges, baseline=base, fill=True, linewidth=0, **_look(status, p))
        base = heights
        _name(sheet, row, status, len(at), p)
    axes.set_ylim(0, max(float(base.max()) * 1.08, 1))


def _name(sheet: _Sheet, row: int, status: int, count: int, p: Palette) -> None:
    y, high = sheet.top + 12 + NAME * row, sheet.height
    box = Rectangle(
        (MIDDLE / WIDTH, 1 - y / high), 12 / WIDTH, 11 / high, linewidth=0.5,
        transform=sheet.figure.transFigure, **_look(status, p),
    )  # fmt: skip
    sheet.figure.add_artist(box)
    said = meaning(status) if status <= 0 else f"{status} {meaning(status)}"
    sheet.text(MIDDLE + 20, y, said, color=p.ink, size=9)
    sheet.text(RIGHT, y, f"{count:,}", color=p.ink, size=9, ha="right")


def _look(status: int, p: Palette) -> dict[str, Any]:
    """Filled for the answered; a refusal is hatched, a fault crossed, silence dotted."""
    if status == ANSWERED:
        return {"facecolor": p.teal, "edgecolor": p.teal}
    if status == NO_ANSWER:
        return {"facecolor": p.paper, "edgecolor": p.red, "hatch": "..."}
    if status == BROKEN or status >= 500:
        return {"facecolor": p.paper, "edgecolor": p.red, "hatch": "xxxx"}
    return {"facecolor": p.paper, "edgecolor": p.orange, "hatch": "////"}
