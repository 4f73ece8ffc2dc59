"""Where everything on the dock stands, in CSS pixels: read by the SVG and by the PNG alike."""

from math import ceil
from typing import Any

WIDTH = 740
BANK = {"left": 0, "right": 166}
DOCK = {"left": 190, "right": 472}
RIVER = {"left": 508, "right": 740}
DIVIDERS = (176, 490)

ROW_SEATS = 20
"""Up to so many seats stand in one row; more form a grid of ten columns."""

LETTER_RADIUS = 9
MAX_LANES = 8
ROOMY_LANES = 3
TITLE_HEIGHT = 24
BAR = {"y": 28, "height": 10}


WIDE = 0.6
"""A letter of DejaVu Sans is about so wide, in parts of its size; other faces are narrower."""


def text_width(words: str, size: int = 12) -> float:
    """About how wide these words are, in CSS pixels."""
    return len(words) * size * WIDE


def dock_layout(seats: int, lanes: int, titled: bool) -> dict[str, Any]:
    """The places of one dock with so many seats and river lanes, relative to its top edge.

    `seats` and `bank` are lists of [x, y]; `radius` is that of a passenger; `floor` is where the
    columns end, `height` where the dock does.
    """
    top = TITLE_HEIGHT if titled else 0
    row = seats <= ROW_SEATS
    places, radius = _row(seats, top) if row else _grid(seats, top)
    hull_bottom = top + (118 if row else 76 + 10 * ceil(seats / 10))
    floor = hull_bottom + 32
    return {
        "top": top,
        "radius": radius,
        "letters": radius >= LETTER_RADIUS,
        "seats": places,
        "bank": _bank(radius, top, floor - 30, top + 95 if row else None),
        "hull": _hull(top, hull_bottom, row),
        "bar": {**DOCK, "y": top + BAR["y"], "height": BAR["height"]},
        "lanes": _lanes(lanes, top, floor),
        "entry": [16, places[0][1]],
        "floor": floor,
        "height": floor + (58 if titled else 42),
    }


def axis_layout(docks: int) -> dict[str, Any]:
    """The shared time axis: one row of ticks a dock; relative to its own top edge."""
    rows = [18 + 22 * i for i in range(docks)]
    left = 12 if docks == 1 else 190
    return {"left": left, "right": WIDTH - 12, "rows": rows, "height": rows[-1] + 30}


def _row(seats: int, top: int) -> tuple[list[list[float]], float]:
    pitch = min(42.0, 250 / seats)
    first = (DOCK["left"] + DOCK["right"]) / 2 - pitch * (seats - 1) / 2
    places = [[round(first + pitch * i, 1), top + 95.0] for i in range(seats)]
    return places, min(13.0, round(pitch / 2 - 1.4, 1))


def _grid(seats: int, top: int) -> tuple[list[list[float]], float]:
    centre = (DOCK["left"] + DOCK["right"]) / 2
    return [[centre - 45 + 10 * (i % 10), top + 79.0 + 10 * (i // 10)] for i in range(seats)], 3.8


def _hull(top: int, bottom: int, row: bool) -> list[list[float]]:
    """A boat from the side for one row of seats, from above for a grid."""
    left, right = DOCK["left"], DOCK["right"]
    if row:
        return [[left, top + 72], [right, top + 72], [right - 18, bottom], [left + 18, bottom]]
    middle = (left + right) / 2
    return [
        [middle - 58, top + 70],
        [middle + 58, top + 70],
        [middle + 84, (top + 70 + bottom) / 2],
        [middle + 58, bottom],
        [middle - 58, bottom],
    ]


def _bank(radius: float, top: int, bottom: int, level: int | None) -> list[list[float]]:
    """Places from the water's edge backwards, row by row: upwards from the seats' level, if any."""
    pitch = max(2 * radius + 5, 10)
    columns = int((BANK["right"] - BANK["left"]) // pitch)
    first_x = BANK["right"] - pitch / 2
    if level is None:
        first_y, step = top + 30 + pitch / 2, pitch
        rows = int((bottom - top - 28) // pitch)
    else:
        first_y, step = float(level), -pitch
        rows = int((level - top - 20 - radius) // pitch) + 1
    return [
        [round(first_x - pitch * (i % columns), 1), round(first_y + step * (i // columns), 1)]
        for i in range(columns * rows)
    ]


def _lanes(count: int, top: int, floor: int) -> list[dict[str, Any]]:
    """Each lane's bar and where its words begin; many lanes share the height in short rows."""
    shown = min(count, MAX_LANES)
    left, right = RIVER["left"], RIVER["right"]
    if shown <= ROOMY_LANES:
        return [
            {"x": left, "width": right - left, "y": top + 46 + 42 * i, "height": 8,
             "text_x": left, "text_y": top + 39 + 42 * i, "roomy": True}
            for i in range(shown)
        ]  # fmt: skip
    pitch = min(22.0, (floor - top - 30) / shown)
    return [
        {"x": left, "width": 84, "y": round(top + 30 + pitch * i, 1), "height": 8,
         "text_x": left + 92, "text_y": round(top + 38.5 + pitch * i, 1), "roomy": False}
        for i in range(shown)
    ]  # fmt: skip
