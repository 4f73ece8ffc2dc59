"""The latency picture without sliders: its segments drawn to a PNG with its line of text."""

from labkit.viz.budget import Segments, draw_budget
from labkit.viz.pen import Pen, drawn
from labkit.viz.picture import Picture
from labkit.viz.tokens import Theme


def latency_png(segments: Segments, theme: Theme = "light") -> Picture:
    """The picture of one run."""
    size = (segments["width"], segments["height"])
    return drawn(*size, segments["line"], theme, lambda pen: _draw(pen, segments))


def _draw(pen: Pen, segments: Segments) -> None:
    draw_budget(pen, segments["budget"])
    _axis(pen, segments)
    _shapes(pen, segments)
    _flags(pen, segments)


def _axis(pen: Pen, segments: Segments) -> None:
    p, floor, left, right = pen.p, segments["floor"], segments["left"], segments["right"]
    pen.line([left, right], [floor, floor], p.muted)
    for tick in segments["ticks"]:
        pen.line([tick["x"]] * 2, [floor, floor + 4], p.muted)
        pen.text(tick["x"], floor + 18, tick["words"], p.muted, ha="center")
    pen.text(right + 30, floor + 18, "ms", p.muted)
    share, title = segments["share"], segments["title"]
    pen.line([left - 5, left], [share["y"]] * 2, p.muted)
    pen.text(left - 8, share["y"] + 4, share["words"], p.muted, ha="right")
    pen.text(left, title["y"], title["words"], p.muted)
    if segments["beyond"]:
        pen.text(right + 8, floor - 4, segments["beyond"], p.muted)
    below = title["y"] + 17
    if segments["grows"]:
        pen.text(left, below, segments["grows"], p.red)
        below += 17
    pen.text(left, below, segments["was"], p.muted)


def _shapes(pen: Pen, segments: Segments) -> None:
    """The old shape behind the new one, and its outline where the new one hides it."""
    p = pen.p
    fill = {"facecolor": p.teal, "edgecolor": p.teal}
    if segments["grows"]:
        fill = {"facecolor": p.paper, "edgecolor": p.teal, "hatch": "////"}
    if segments["ghost"]:
        pen.area(segments["ghost"], facecolor=p.line, edgecolor=p.muted)
    pen.area(segments["shape"], **fill)
    if segments["ghost"]:
        new = pen.axes.patches[-1]
        xs, ys = zip(*segments["ghost"], strict=True)
        pen.line(xs, ys, p.paper, 1, linestyle=(0, (3, 2)))
        pen.axes.lines[-1].set_clip_path(new)


def _flags(pen: Pen, segments: Segments) -> None:
    p, floor, limit = pen.p, segments["floor"], segments["limit"]
    pen.line([limit["x"]] * 2, [limit["top"], floor], p.red)
    for flag in segments["flags"]:
        colour = p.red if flag["late"] else p.ink if flag["main"] else p.muted
        pen.line([flag["x"]] * 2, [flag["y"] - 10, floor], colour, 1.6 if flag["main"] else 1)
        weight = "bold" if flag["main"] else "normal"
        halo = {"facecolor": p.paper, "edgecolor": "none", "pad": 0.5}
        pen.text(flag["x"] + 5, flag["y"], flag["words"], colour, weight=weight, bbox=halo)
