"""The board without motion: one moment of a running service, drawn to a PNG with its line."""

from collections.abc import Mapping
from typing import Any

from labkit.viz.pen import Pen, drawn
from labkit.viz.picture import Picture
from labkit.viz.tokens import Theme

WIDTH = 740
BOX = {"width": 128, "height": 76, "y": 0}
LEFTS = (0, 172, 344)
GPUS = 516
ROW = 25
BAR = 96


def board_words(now: Mapping[str, Any]) -> str:
    """One moment in a sentence."""
    if not now:
        return "A board with nothing to show: its service is gone."
    gpus = [
        f"GPU {row['gpu']} {row['state']}" + f" with {row['aboard']} aboard" * bool(row["aboard"])
        for row in now["gpus"]
    ]
    return (
        f"{now['sent']:,} sent, {now['on_the_way']:,} on their way; {now['answered']:,} answered, "
        f"{now['refused']:,} refused; {now['depth']:,} waiting, {now['again']:,} went out again; "
        f"{', '.join(gpus)}."
    )


def board_png(now: Mapping[str, Any], theme: Theme = "light") -> Picture:
    """The picture of one moment."""
    height = max(BOX["height"], ROW * len(now.get("gpus", ())))
    return drawn(WIDTH, height, board_words(now), theme, lambda pen: _draw(pen, now))


def boxes(now: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, int]]]]:
    """The three boxes before the GPUs: a name, and named counts."""
    return [
        ("clients", [("sent", now["sent"]), ("on the way", now["on_the_way"])]),
        ("front door", [("answered", now["answered"]), ("refused", now["refused"])]),
        ("queue", [("waiting", now["depth"]), ("out again", now["again"])]),
    ]


def _draw(pen: Pen, now: Mapping[str, Any]) -> None:
    if not now:
        return
    p = pen.p
    for x, (name, counts) in zip(LEFTS, boxes(now), strict=True):
        pen.bar(x, 0, BOX["width"], BOX["height"], radius=6, facecolor="none", edgecolor=p.muted)
        pen.text(x + 12, 22, name, p.ink, weight="bold")
        for i, (words, count) in enumerate(counts):
            pen.text(x + 12, 44 + 19 * i, words, p.muted)
            right = x + BOX["width"] - 10
            pen.text(right, 44 + 19 * i, f"{count:,}", p.ink, ha="right")
        pen.line([x + BOX["width"] + 6, x + BOX["width"] + 34], [38, 38], p.ink, 1.2)
        tip = x + BOX["width"] + 38
        pen.area([(tip, 38), (tip - 7, 34), (tip - 7, 42)], facecolor=p.ink, edgecolor="none")
    for row in now["gpus"]:
        _gpu(pen, row, now["most"])


def _gpu(pen: Pen, row: Mapping[str, Any], most: int) -> None:
    p, y = pen.p, ROW * row["gpu"]
    ready = row["state"] == "ready"
    pen.text(GPUS, y + 16, f"GPU {row['gpu']}", p.ink)
    pen.box(GPUS + 48, y + 5, BAR, 14, facecolor="none", edgecolor=p.line)
    if row["aboard"]:
        width = max(BAR * min(row["aboard"] / most, 1), 2)
        pen.box(GPUS + 48, y + 5, width, 14, facecolor=p.teal, edgecolor="none")
    said = f"{row['aboard']} aboard" if ready else row["state"]
    pen.text(GPUS + 48 + BAR + 8, y + 16, said, p.ink if ready else p.red)
