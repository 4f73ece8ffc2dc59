"""The lanes without motion: one instant of the segments, drawn to a PNG with its line of text."""

from typing import Any

from labkit.viz.lanes_moment import caption, receipt, ticks, totals
from labkit.viz.lanes_segments import Segments
from labkit.viz.layout import text_width
from labkit.viz.pen import Pen, drawn
from labkit.viz.picture import Picture
from labkit.viz.tokens import TEXT_PX, Theme
from labkit.viz.words import instant

DASH = (0, (4, 3))
WORDS_FROM = 14
"""Bars at least so high carry words."""

BLOCK = 40
BIG = 18


def lanes_png(segments: Segments, at: int | None = None, theme: Theme = "light") -> Picture:
    """One instant (microseconds; the end by default) as a picture."""
    at = segments["horizon"] if at is None else at
    if not 0 <= at <= segments["horizon"]:
        raise ValueError(f"at {at} us: these segments run from 0 to {segments['horizon']} us")

    def draw(pen: Pen) -> None:
        for panel in segments["panels"]:
            _LanePen(pen, segments, panel["offset"], at).panel(panel)
        _LanePen(pen, segments, segments["axis"], at).axis()

    return drawn(segments["width"], segments["height"], caption(segments, at), theme, draw)


class _LanePen(Pen):
    """The pen of one panel, or of the axis below them, at one instant."""

    def __init__(self, pen: Pen, segments: Segments, offset: float, at: int) -> None:
        super().__init__(pen.axes, pen.p, offset)
        self.segments = segments
        self.at = at
        self.first, self.last = segments["window"]
        self.left, self.right = segments["left"], segments["right"]

    def x(self, at: int) -> float:
        """Where an instant stands; the ends of the window for what lies outside it."""
        part = (min(max(at, self.first), self.last) - self.first) / (self.last - self.first)
        return self.left + (self.right - self.left) * part

    def shows(self, row: dict[str, Any]) -> bool:
        """Whether any of it lies in the window."""
        return bool(row["end"] > self.first and row["start"] < self.last)

    # -- one panel -----------------------------------------------------------------------------

    def panel(self, panel: dict[str, Any]) -> None:
        place, p = panel["layout"], self.p
        if panel["title"]:
            self.text(0, 12, panel["title"], p.ink, size=TEXT_PX + 1, weight="bold")
        for lane, gpu in enumerate(panel["gpus"]):
            if lane % place["named"] == 0:
                middle = place["top"] + place["pitch"] * lane + place["bar"] / 2 + 4
                self.text(0, middle, f"GPU {gpu}", p.muted)
        for gap in panel["gaps"]:
            if self.shows(gap) and gap["start"] < self.at:
                self._gap(gap, place)
        for bar in panel["bars"]:
            if self.shows(bar):
                self._bar(bar, place)
        if self.first <= self.at <= self.last:
            lanes = [place["top"] - 4, place["top"] + place["pitch"] * len(panel["gpus"])]
            self.line([self.x(self.at)] * 2, lanes, p.orange, 1.4)
        self._totals(panel)
        self.text(0, place["floor"] + 18, receipt(panel, self.at), p.ink, size=TEXT_PX)

    def _gap(self, gap: dict[str, Any], place: dict[str, Any]) -> None:
        p = self.p
        colour = {"idle": p.muted, "drain": p.orange, "died": p.red, "stopped": p.muted}[
            gap["kind"]
        ]
        x, y = self.x(gap["start"]), place["top"] + place["pitch"] * gap["lane"]
        whole = self.x(gap["end"]) - x
        width = self.x(min(gap["end"], self.at)) - x
        look = {"facecolor": "none", "edgecolor": colour, "linestyle": DASH, "radius": 2}
        if width > 4:
            self.bar(x + 1, y, width - 2, place["bar"], **look)
        if gap["kind"] != "drain" or gap["end"] <= self.at:
            self._words(gap["labels"], x, y, whole, place["bar"], colour)

    def _bar(self, bar: dict[str, Any], place: dict[str, Any]) -> None:
        """What is past is drawn whole, what is to come as an outline."""
        p = self.p
        x, planned, end = (self.x(bar[key]) for key in ("start", "planned", "end"))
        now = self.x(self.at) if self.at >= bar["start"] else x
        for first, last in bar["runs"]:
            y = place["top"] + place["pitch"] * first
            height = place["pitch"] * (last - first) + place["bar"]
            to_come = {"facecolor": "none", "edgecolor": p.line, "radius": 2}
            self.bar(x + 0.5, y, max(end - x - 1, 1), height, **to_come)
            done = min(now, planned) - x
            if done > 1:
                self.bar(x + 0.5, y, done - 1, height, radius=2, **self._look(bar))
            if min(now, end) - planned > 1:
                late = {"facecolor": p.paper, "edgecolor": p.teal, "radius": 2}
                self.bar(planned, y, min(now, end) - planned - 0.5, height, **late)
            if bar["retry"] and done > 5:
                self.area([(x + 1, y), (x + 7, y), (x + 1, y + 6)], facecolor=p.paper, linewidth=0)
            label = p.red if bar["lost"] else p.purple if bar["gang"] else p.paper
            boxed = bar["lost"] or bar["gang"]
            self._words(bar["labels"], x, y, planned - x, height, label, boxed=boxed)
            self._words(bar["late"], planned, y, end - planned, height, p.teal)

    def _look(self, bar: dict[str, Any]) -> dict[str, Any]:
        p = self.p
        if bar["lost"]:
            return {"facecolor": p.paper, "edgecolor": p.red, "hatch": "xxx"}
        if bar["gang"]:
            return {"facecolor": p.paper, "edgecolor": p.purple, "hatch": "////"}
        return {"facecolor": p.teal, "edgecolor": "none"}

    def _words(
        self,
        labels: list[str],
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        boxed: bool = False,
    ) -> None:
        """The first of the labels that fits, in the middle, once the playhead is past it."""
        fits = [one for one in labels if one and text_width(one) + 6 <= width]
        if not fits or height < WORDS_FROM:
            return
        if x + (width + text_width(fits[0])) / 2 > self.x(self.at):
            return
        box = {"facecolor": self.p.paper, "edgecolor": "none", "pad": 1} if boxed else None
        middle = {"ha": "center", "va": "center_baseline"}
        self.text(x + width / 2, y + height / 2 + 0.5, fits[0], colour, bbox=box, **middle)

    def _totals(self, panel: dict[str, Any]) -> None:
        p, x, y = self.p, self.segments["totals"], panel["layout"]["top"]
        for label, value, look in totals(panel, self.at):
            self.text(x, y + 11, label, p.muted)
            colour = p.red if look == "red" else p.ink
            size = BIG if look == "big" else TEXT_PX
            self.text(x, y + (31 if look == "big" else 27), value, colour, size=size)
            y += BLOCK + (6 if look == "big" else 0)

    # -- the time axis -------------------------------------------------------------------------

    def axis(self) -> None:
        """Round instants, and the playhead."""
        p, head = self.p, self.x(self.at)
        self.line([self.left, self.right], [8, 8], p.line, 3)
        for tick in ticks(self.first, self.last, self.right - self.left):
            x = self.x(tick)
            self.line([x, x], [4, 8], p.ink, 1.2)
            if abs(x - head) > LABEL_APART:
                self.text(x, 28, instant(tick), p.muted, ha="center")
        if not self.first <= self.at <= self.last:
            return
        self.line([head, head], [-4, 8], p.orange, 1.4)
        self.disc(head, 8, 5.5, facecolor=p.orange, edgecolor="none", zorder=5)
        self.text(head, 28, instant(self.at), p.orange, ha="center")


LABEL_APART = 62
