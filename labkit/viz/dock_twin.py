"""The dock without motion: one instant of the segments, drawn to a PNG with its line of text."""

from typing import Any

from labkit.viz.layout import BANK, DIVIDERS, DOCK, RIVER
from labkit.viz.moment import (
    Moment,
    bank_words,
    boat_words,
    caption,
    lane_is_down,
    lane_words,
    moment,
    seat_words,
    telling_instant,
    timer_words,
)
from labkit.viz.pen import Pen, drawn
from labkit.viz.picture import Picture
from labkit.viz.segments import Segments
from labkit.viz.tokens import TEXT_PX, Theme
from labkit.viz.words import instant, short


def dock_png(segments: Segments, at: int | None = None, theme: Theme = "light") -> Picture:
    """One instant (microseconds; the most telling one by default) as a picture."""
    at = telling_instant(segments) if at is None else at
    if not 0 <= at <= segments["horizon"]:
        raise ValueError(f"at {at} us: these segments run from 0 to {segments['horizon']} us")

    def draw(pen: Pen) -> None:
        for dock in segments["docks"]:
            _DockPen(pen.axes, pen.p, dock["offset"]).dock(dock, moment(segments, dock, at))
        _DockPen(pen.axes, pen.p, segments["axis"]["offset"]).axis(segments, at)

    return drawn(segments["width"], segments["height"], caption(segments, at), theme, draw)


class _DockPen(Pen):
    """The pen of one dock or of the time axis below them."""

    # -- one dock ------------------------------------------------------------------------------

    def dock(self, dock: dict[str, Any], now: Moment) -> None:
        place, p = dock["layout"], self.p
        top = place["top"]
        if dock["title"]:
            self.text(0, 12, dock["title"], p.ink, size=TEXT_PX + 1, weight="bold")
        for x, words in zip(
            (BANK["left"], DOCK["left"], RIVER["left"]),
            ("bank", "at the dock", "on the river"),
            strict=True,
        ):
            self.text(x, top + 14, words, p.muted)
        for x in DIVIDERS:
            self.line([x, x], [top + 6, place["floor"]], p.line)
        self._bank(dock, now)
        self._timer(dock, now)
        self._boat(dock, now)
        self._river(dock, now)
        self.line([0, 740], [place["floor"] + 9] * 2, p.line)
        self.text(0, place["floor"] + 29, now.receipt, p.ink, size=TEXT_PX)

    def _bank(self, dock: dict[str, Any], now: Moment) -> None:
        place = dock["layout"]
        for row, (x, y) in zip(now.bank, place["bank"], strict=False):
            self._passenger(x, y, row, place)
        self.text(BANK["left"], place["floor"] - 10, bank_words(now), self.p.muted)

    def _passenger(self, x: float, y: float, row: dict[str, Any], place: dict[str, Any]) -> None:
        p, radius = self.p, place["radius"]
        fill = p.teal if row["paid"] else "none"
        self.disc(x, y, radius, facecolor=fill, edgecolor=p.teal)
        if row["returned"]:
            self.disc(x, y, radius + 2.5, facecolor="none", edgecolor=p.red, linewidth=1.2)
        if place["letters"] and len(row["label"]) * 7 + 5 <= 2 * radius:
            colour = p.paper if row["paid"] else p.ink
            self.text(x, y + 0.5, row["label"], colour, ha="center", va="center")

    def _timer(self, dock: dict[str, Any], now: Moment) -> None:
        bar, p = dock["layout"]["bar"], self.p
        x, width, y, height = bar["left"], bar["right"] - bar["left"], bar["y"], bar["height"]
        limit = dock["max_wait"]
        if limit is None:
            self.bar(x, y, width, height, facecolor="none", edgecolor=p.line, linestyle=(0, (4, 4)))
        else:
            self.gauge(x, y, width, height, (now.waited or 0) / max(limit, 1), p.orange)
        self.text(x, y + 28, timer_words(dock, now), p.ink if now.waited is not None else p.muted)
        if now.leaving:
            self._badge(bar["right"], y - 18, now.leaving["badge"])

    def _badge(self, right: float, middle: float, word: str) -> None:
        p = self.p
        width = 9 * len(word) + 14
        self.bar(right - width, middle - 9, width, 18, facecolor=p.orange, edgecolor="none")
        self.text(
            right - width / 2, middle + 0.5, word, p.paper, ha="center", va="center", weight="bold"
        )

    def _boat(self, dock: dict[str, Any], now: Moment) -> None:
        place, p = dock["layout"], self.p
        look = {"edgecolor": p.ink, "linewidth": 1.4, "facecolor": "none"}
        if not now.free:
            look.update(edgecolor=p.muted, linestyle=(0, (4, 4)), linewidth=1)
        self.area(place["hull"], **look)
        dash = (0, (2, 2))
        taken = {row["seat"]: row for row in now.aboard}
        for seat, (x, y) in enumerate(place["seats"]):
            if seat in taken:
                self._passenger(x, y, taken[seat], place)
            elif now.free:
                width = 1.2 if place["letters"] else 0.6
                look = {"facecolor": "none", "edgecolor": p.muted, "linewidth": width}
                self.disc(x, y, place["radius"], linestyle=dash, **look)
        self.text(DOCK["left"], place["floor"] - 10, seat_words(dock, now), p.muted)

    def _river(self, dock: dict[str, Any], now: Moment) -> None:
        out = {boat["lane"]: boat for boat in now.out}
        for lane, spot in enumerate(dock["layout"]["lanes"]):
            self._lane(dock, spot, lane, out.get(lane), now.at)
        hidden = sum(1 for lane in out if lane >= len(dock["layout"]["lanes"]))
        if hidden:
            words = f"and {hidden} more out"
            self.text(RIVER["left"], dock["layout"]["floor"] - 2, words, self.p.muted)

    def _lane(
        self, dock: dict[str, Any], spot: dict[str, Any], lane: int, boat: Any, at: int
    ) -> None:
        p = self.p
        x, y, width, height = spot["x"], spot["y"], spot["width"], spot["height"]
        if boat is None:
            down = lane_is_down(dock, lane, at)
            colour = p.red if down else p.muted
            dashed = {"facecolor": "none", "edgecolor": colour, "linestyle": (0, (4, 4))}
            self.bar(x, y, width, height, **dashed)
            words = lane_words(dock, lane, down, spot["roomy"])
            self.text(spot["text_x"], spot["text_y"], words, colour)
            return
        to_go, whole = boat["planned"] - at, boat["planned"] - boat["start"]
        self.gauge(x, y, width, height, to_go / whole, p.teal)
        words = boat_words(boat, spot["roomy"])
        self.text(spot["text_x"], spot["text_y"], words, p.ink)
        right = {"ha": "right"}
        self.text(RIVER["right"], spot["text_y"], instant(max(to_go, 0)), p.muted, **right)

    # -- the time axis -------------------------------------------------------------------------

    def axis(self, segments: Segments, at: int) -> None:
        axis, p = segments["axis"], self.p
        left, right = axis["left"], axis["right"]

        def x_of(time: int) -> float:
            return float(left + (right - left) * time / segments["horizon"])

        for dock, y in zip(segments["docks"], axis["rows"], strict=True):
            if dock["title"]:
                self.text(0, y + 4, short(dock["title"]), p.muted)
            self.line([left, right], [y, y], p.line, 3)
            for boat in dock["boats"]:
                x = x_of(boat["start"])
                self.line([x, x], [y - 8, y - 1], p.ink, 1.2)
            for row in dock["passengers"]:
                self.disc(x_of(row["since"]), y + 6, 1.3, facecolor=p.muted, edgecolor="none")
        head, last = x_of(at), axis["rows"][-1]
        self.line([head, head], [axis["rows"][0] - 11, last], p.orange, 1.4)
        self.disc(head, last, 5.5, facecolor=p.orange, edgecolor="none", zorder=5)
        if right - head > 90:
            self.text(right, last + 24, instant(segments["horizon"]), p.muted, ha="right")
        if head - left > 40:
            self.text(left, last + 24, "0", p.muted)
        end = "right" if right - head < 30 else "center"
        self.text(min(head, right), last + 24, instant(at), p.orange, ha=end)
