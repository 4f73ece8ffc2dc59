"""The budget of one request as one stacked bar, with what is left of it or what it is over by."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isfinite
from typing import Any

from labkit.viz.layout import WIDTH, text_width
from labkit.viz.pen import Pen, drawn
from labkit.viz.picture import Picture
from labkit.viz.tokens import Palette, Theme

Segments = dict[str, Any]

BAR = {"y": 24, "height": 26}
RIGHT = 690
ROW = 17
BESIDE = 10
"""Between two labels in one row."""

KINDS = {
    "reserve": "reserve",
    "lost": "lost",
    "left": "left",
    "gpu": "gpu",
    "batch": "gpu",
    "network": "other",
    "queue": "other",
    "wait": "wait",
    "window": "wait",
    "dock": "wait",
}
"""How a part looks, by the first of these words in its name; any other part is `other`."""


def budget_bar(parts: Mapping[str, float], budget: float = 500, theme: Theme = "light") -> Picture:
    """What one request's budget is spent on: `parts` and `budget` in milliseconds, in order.

    A part called a reserve is hatched, what is left is dashed; what was lost, and what lies beyond
    the budget, is crossed in red.
    """
    bar = budget_segments(parts, budget)
    return drawn(WIDTH, bar["height"], bar["line"], theme, lambda pen: draw_budget(pen, bar))


def budget_segments(
    parts: Mapping[str, float],
    budget: float = 500,
    left: float = 0,
    per_ms: float | None = None,
) -> Segments:
    """The boxes of the bar, their labels, the limit, and the sentence that says it.

    `boxes`: x, width and kind of each part longer than nothing; `labels`: x, row and words;
    `limit`: where the budget ends, and what is written there; `over`: the box beyond it, None
    while within. The bar begins at `left`; `per_ms` pixels are a millisecond, as many as fit
    unless given.
    """
    _check(parts, budget)
    spent = sum(parts.values())
    over = spent - budget > _ROUNDING
    named = {**parts, "left": budget - spent} if budget - spent > _ROUNDING else dict(parts)
    starts = dict(zip(named, accumulate(named.values(), initial=0), strict=False))
    words = {name: f"{name} · {_ms(value)}" for name, value in named.items() if value > 0}
    scale = per_ms or _scale(words, starts, max(spent, budget))
    places = {name: left + start * scale for name, start in starts.items()}
    labels = _labels([(places[name], told) for name, told in words.items()])
    limit = round(left + budget * scale, 1)
    said = f"{_ms(spent - budget)} over the {_ms(budget)}" if over else _ms(budget)
    rows = max((label["row"] for label in labels), default=0) + 1
    return {
        "boxes": _boxes(named, places, scale),
        "labels": labels,
        "bar": BAR,
        "limit": {"x": limit, "words": said, "before": text_width(said, 13) + 8 < limit - left},
        "over": {"x": limit, "width": round(left + spent * scale - limit, 1)} if over else None,
        "line": _line(parts, budget, spent),
        "height": BAR["y"] + BAR["height"] + ROW * rows + 8,
    }


_ROUNDING = 1e-6


def _check(parts: Mapping[str, float], budget: float) -> None:
    if not (isfinite(budget) and budget > 0):
        raise ValueError(f"budget {budget:g} ms: must be more than 0")
    if not parts:
        raise ValueError("no parts: name at least one, such as {'GPU': 100}")
    for name, value in parts.items():
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{name} {value:g} ms: a part takes 0 ms or more")


def _kind(name: str) -> str:
    words = name.lower()
    return next((kind for word, kind in KINDS.items() if word in words), "other")


def _scale(words: Mapping[str, str], starts: Mapping[str, float], whole: float) -> float:
    """Pixels a millisecond, so that the last words end on the sheet."""
    fits = [
        (WIDTH - text_width(told)) / starts[name] for name, told in words.items() if starts[name]
    ]
    return max(min(RIGHT / whole, *fits, 1e9), WIDTH / 2 / whole)


def _boxes(named: Mapping[str, float], places: Mapping[str, float], scale: float) -> list[Segments]:
    """A box for each part; of two unnamed kinds next to each other one is darker."""
    boxes: list[Segments] = []
    for name, value in named.items():
        kind = _kind(name)
        if kind == "other" and boxes and boxes[-1]["kind"] == "other":
            kind = "more"
        if value > 0:
            x, width = round(places[name], 1), round(value * scale, 1)
            boxes.append({"x": x, "width": width, "kind": kind})
    return boxes


def _labels(words: Sequence[tuple[float, str]]) -> list[Segments]:
    """The words at each x, to the right of a line down to the first row where they cross nothing.

    From right to left, and further down where words would run into later ones or the line that
    leads to them: so no line ever crosses a word.
    """
    placed: list[Segments] = []
    for x, told in reversed(words):
        end = x + text_width(told) + BESIDE
        row = 1 + max((label["row"] for label in placed if label["x"] < end), default=-1)
        placed.append({"x": round(x, 1), "row": row, "words": told})
    return placed[::-1]


def _line(parts: Mapping[str, float], budget: float, spent: float) -> str:
    told = ", ".join(f"{name} {_ms(value)}" for name, value in parts.items())
    rest = budget - spent
    if rest > _ROUNDING:
        end = f"; {_ms(rest)} left."
    elif rest < -_ROUNDING:
        end = f"; {_ms(-rest)} over."
    else:
        end = "; nothing left over."
    return f"A budget of {_ms(budget)}: {told}{end}"


def _ms(value: float) -> str:
    return f"{round(value, 1):,g} ms"


# -- the picture ---------------------------------------------------------------------------------


def draw_budget(pen: Pen, segments: Segments) -> None:
    """The bar on a sheet, from the pen's offset on."""
    p, y, height = pen.p, segments["bar"]["y"], segments["bar"]["height"]
    for box in segments["boxes"]:
        pen.box(box["x"] + 1, y, max(box["width"] - 2, 1), height, **_look(p, box["kind"]))
    for label in segments["labels"]:
        base = y + height + 16 + ROW * label["row"]
        pen.line([label["x"] + 1.5] * 2, [y + height + 3, base + 2], p.muted)
        pen.text(label["x"] + 6, base, label["words"], p.ink)
    limit, over = segments["limit"], segments["over"]
    if over:
        pen.box(over["x"] + 1, y, over["width"] - 2, height, **_look(p, "lost"))
    pen.line([limit["x"]] * 2, [y - 14, y + height + 6], p.red)
    side = {"ha": "right"} if limit["before"] else {}
    weight = "bold" if over else "normal"
    x = limit["x"] + (-6 if limit["before"] else 6)
    pen.text(x, y - 8, limit["words"], p.red, weight=weight, **side)


def _look(p: Palette, kind: str) -> dict[str, Any]:
    if kind == "reserve":
        return {"facecolor": p.paper, "edgecolor": p.muted, "hatch": "////"}
    if kind == "lost":
        return {"facecolor": p.paper, "edgecolor": p.red, "hatch": "xxx"}
    if kind == "left":
        return {"facecolor": "none", "edgecolor": p.muted, "linestyle": (0, (4, 4))}
    fill = {"wait": p.orange, "gpu": p.teal, "other": p.muted, "more": p.ink}[kind]
    return {"facecolor": fill, "edgecolor": "none"}
