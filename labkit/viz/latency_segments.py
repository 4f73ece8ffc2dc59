"""Everything the latency picture shows, computed once from the shape of a run; JSON-able."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.core.units import MS
from labkit.viz.budget import Segments, budget_segments
from labkit.viz.latency_shape import Shape
from labkit.viz.layout import WIDTH

BINS = 120
LEFT, RIGHT = 44, 644
TALL = 130
FLAG = 17
"""The height of one percentile's flag, one above another."""

MOST_ABOVE = 4
"""The old shape is cut where it is so many times as high as the new one."""

BAR_HEIGHT = 128
"""The height kept for the budget bar, whose labels take one row more or less as it changes."""

LADDER_MS = (600, 900, 1_500, 3_000, 6_000, 9_000, 15_000, 30_000, 60_000, 150_000, 600_000)
"""The right ends of the axis: few, so that the shape stays where it is while a slider moves."""


def latency_segments(
    shape: Shape, old: Shape | None, budget: float = 500, network: float = 30, reserve: float = 200
) -> Segments:
    """Everything the picture shows: the budget bar above the shape (durations in milliseconds).

    `shape` and `ghost` are outlines as [x, y]; `flags` the percentiles on their lines; `limit`
    the budget's line; `ticks` the axis; `line` the sentence.
    """
    widest = _axis_end(shape, budget)
    bar = budget_segments(spent(shape, budget, network), budget, LEFT, (RIGHT - LEFT) / widest)
    top = BAR_HEIGHT
    floor = top + 3 * FLAG + 12 + TALL
    beyond = int((shape.took > widest * MS).sum()) / len(shape.took)
    return {
        "budget": bar,
        "title": {"y": floor + 36, "words": _title(shape, widest)},
        **_outlines(shape, old, widest, floor),
        "grows": growth(shape),
        "flags": _flags(shape, widest, top, budget),
        "limit": {"x": bar["limit"]["x"], "top": bar["bar"]["y"] + bar["bar"]["height"]},
        "ticks": [{"x": _x(at, widest), "words": f"{at:,g}"} for at in _steps(widest)],
        "beyond": f"{beyond:.1%} beyond" if beyond >= 0.0005 else "",
        "left": LEFT,
        "right": RIGHT,
        "floor": floor,
        "line": latency_line(shape, budget, network, reserve),
        "width": WIDTH,
        "height": floor + 78,
    }


def _outlines(shape: Shape, old: Shape | None, widest: float, floor: float) -> Segments:
    """The new shape and the old one, what the old one was, and how high a round share stands."""
    new = _heights(shape, widest)
    peak = float(new.max())
    before: dict[str, Any] = {"ghost": None, "was": ""}
    if old is not None and old.choice != shape.choice:
        heights = _heights(old, widest)
        peak = max(peak, min(float(heights.max()), MOST_ABOVE * peak))
        cut = np.minimum(heights / peak, 1) * TALL
        was = _was(old, widest, cut=bool((heights > peak).any()))
        before = {"ghost": _outline(cut, floor), "was": was}
    share = _round_down(peak)
    level = {"y": round(floor - TALL * share / peak, 1), "words": f"{share * 100:g} %"}
    return {"share": level, "shape": _outline(new / peak * TALL, floor), **before}


def spent(shape: Shape, budget: float, network: float) -> dict[str, float]:
    """The P95 in parts that add up: the rule's wait, the GPU, the rest with the network."""
    p95, gpu = shape.p95 / MS, shape.batch_time / MS
    dock = max(min(shape.dock_p95 / MS, p95 - gpu), 0.0)
    parts = {"dock wait P95": dock, "GPU": gpu, "queue and network": p95 - dock - gpu + network}
    rest = budget - sum(parts.values())
    return {**parts, "reserve left": rest} if rest > 0 else parts


def _was(old: Shape, widest: float, *, cut: bool) -> str:
    beyond = old.p50 > widest * MS
    note = " (most of it beyond this axis)" if beyond else " (its top is cut)" if cut else ""
    return f"grey: {old.choice.words()}{note}"


def growth(shape: Shape) -> str:
    """What to say of a run whose queue never ends; empty when it does."""
    if not shape.grows:
        return ""
    more = shape.choice.rate - shape.carried
    what = f"{more:,.0f} more wait every second" if more >= 1 else "nothing is left for chance"
    gpus = "1 GPU carries" if shape.choice.gpus == 1 else f"{shape.choice.gpus} GPUs carry"
    return f"Unstable: {gpus} {shape.carried:,.0f} a second at most, and {what}."


def latency_line(shape: Shape, budget: float, network: float, reserve: float) -> str:
    """The picture in one line of text."""
    p50, p95, p99 = (_ms(value) for value in (shape.p50, shape.p95, shape.p99))
    left = budget - shape.p95 / MS - network
    told = f"{shape.choice.words()}: P50 {p50}, P95 {p95}, P99 {p99} ms."
    if shape.grows:
        return f"{told} {growth(shape)} These figures only say how long the run was."
    if left < 0:
        end = f"with {network:g} ms of network the P95 is {-left:,.0f} ms over {budget:g} ms."
    else:
        enough = "enough" if left >= reserve else "too little"
        end = (
            f"with {network:g} ms of network {left:,.0f} of {budget:g} ms are left, {enough} "
            f"for a retry of {reserve:g} ms."
        )
    return f"{told} A batch holds {shape.mean_batch:.1f}; {end}"


def _ms(microseconds: int) -> str:
    return f"{round(microseconds / MS, 1):,g}"


def _title(shape: Shape, widest: float) -> str:
    return (
        f"share of {len(shape.took):,} requests in each {widest / BINS:,.10g} ms of latency, "
        "without the network"
    )


def _round_down(share: float) -> float:
    """The largest of 1, 2, 5, 10, 20, 50 ... percent that is not above it."""
    ladder = [step * 10.0**power for power in range(-5, 0) for step in (1, 2, 5)]
    return max(value for value in ladder if value <= share)


def _axis_end(shape: Shape, budget: float) -> float:
    reach = max(shape.p99 / MS * 1.04, budget * 1.2)
    return next((end for end in LADDER_MS if end >= reach), reach)


def _heights(shape: Shape, widest: float) -> NDArray[np.float64]:
    counts, _ = np.histogram(shape.took, BINS, (0, widest * MS))
    return counts / len(shape.took)


def _outline(heights: NDArray[np.float64], floor: float) -> list[list[float]]:
    """The steps of a histogram, from floor to floor; equal neighbours are one step."""
    step = (RIGHT - LEFT) / BINS
    points: list[list[float]] = []
    before = float(floor)
    for i, height in enumerate([*heights, 0.0]):
        y = round(floor - float(height), 1)
        if y != before:
            x = round(LEFT + i * step, 1)
            points += [[x, before], [x, y]]
        before = y
    return points or [[RIGHT, floor]]


def _x(at_ms: float, widest: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * at_ms / widest, 1)


def _flags(shape: Shape, widest: float, top: float, budget: float) -> list[Segments]:
    """P50 on the highest row, P99 on the lowest: so no line crosses another's words."""
    values = (("P50", shape.p50), ("P95", shape.p95), ("P99", shape.p99))
    return [
        {
            "x": _x(value / MS, widest),
            "y": top + FLAG * (row + 1),
            "words": f"{name} {_ms(value)} ms",
            "main": name == "P95",
            "late": name == "P95" and value > budget * MS,
        }
        for row, (name, value) in enumerate(values)
    ]


def _steps(widest: float) -> list[float]:
    step = next(s for s in (100, 250, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 100_000, 1e12)
                if widest / s <= 8)  # fmt: skip
    return [step * i for i in range(int(widest / step) + 1)]
