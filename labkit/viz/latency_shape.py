"""How long requests took: the shape of a run, its percentiles, and all that the picture draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labkit.core.units import MS
from labkit.viz.budget import Segments, budget_segments
from labkit.viz.layout import WIDTH

Array = NDArray[np.int64]

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


class Batches(Protocol):
    """What a simulation hands back: `batches[i]` with `first`, `count`, `departed_at`, and when
    each returned (microseconds), in the order of the requests aboard."""

    batches: Sequence[Any]
    returned_at: Sequence[int]


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the four sliders stand: requests a second, GPUs, milliseconds, requests a batch."""

    rate: float
    gpus: int
    max_wait_ms: float
    max_batch: int

    def words(self) -> str:
        """The choice as a sentence's part."""
        boats = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return (
            f"{self.rate:,g} requests a second on {boats}, window {self.max_wait_ms:g} ms, "
            f"up to {self.max_batch} a batch"
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """One run under one choice: every latency sorted, and the parts of its P95 (microseconds)."""

    choice: Choice
    took: Array
    p50: int
    p95: int
    p99: int
    dock_p95: int
    batch_time: int
    mean_batch: float

    @property
    def carried(self) -> float:
        """The requests a second that so many GPUs can carry with full batches."""
        return self.choice.gpus * self.choice.max_batch * 1e6 / self.batch_time

    @property
    def grows(self) -> bool:
        """Whether more come than can ever be carried, so that the queue never ends."""
        return self.choice.rate >= self.carried


def shape_of(choice: Choice, instants: Sequence[int] | Array, run: Batches) -> Shape:
    """Every latency of a run, exact percentiles, and the part of the wait that is the rule's.

    A request waits at the dock until its batch is due: full, or the first aboard has waited
    `max_wait_ms`. What it waits after that, it waits for a GPU.
    """
    arrived = np.asarray(instants, dtype=np.int64)
    first, count, departed = (
        np.fromiter((getattr(batch, name) for batch in run.batches), np.int64, len(run.batches))
        for name in ("first", "count", "departed_at")
    )
    back = np.asarray(run.returned_at, dtype=np.int64)
    if len(back) != len(first) or int(count.sum()) != len(arrived):
        raise ValueError(
            f"the simulation moved {int(count.sum())} of {len(arrived)} requests in {len(first)} "
            f"batches with {len(back)} returns; hand back every batch once, in order"
        )
    full = arrived[np.minimum(first + count - 1, len(arrived) - 1)]
    due = arrived[first] + round(choice.max_wait_ms * MS)
    due = np.minimum(np.where(count == choice.max_batch, np.minimum(full, due), due), departed)
    took = np.sort(np.repeat(back, count) - arrived)
    docked = np.maximum(np.repeat(due, count) - arrived, 0)
    p50, p95, p99 = (int(took[_rank(percent, len(took))]) for percent in (50, 95, 99))
    at_dock = np.partition(docked, _rank(95, len(docked)))
    return Shape(
        choice=choice,
        took=took,
        p50=p50,
        p95=p95,
        p99=p99,
        dock_p95=int(at_dock[_rank(95, len(docked))]),
        batch_time=round(float((back - departed).mean())),
        mean_batch=len(arrived) / len(first),
    )


def _rank(percent: int, count: int) -> int:
    """The place of a percentile among so many sorted values, as the books rank it."""
    return max(ceil(percent * count / 100), 1) - 1


# -- what is drawn -------------------------------------------------------------------------------


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
    heights = {"shape": _heights(shape, widest)}
    if old is not None and old.choice != shape.choice:
        heights["ghost"] = _heights(old, widest)
    tops = {name: float(height.max()) for name, height in heights.items()}
    peak = max(tops["shape"], min(tops.get("ghost", 0), MOST_ABOVE * tops["shape"]))
    outlines = {
        name: _outline(np.minimum(share / peak, 1) * TALL, floor) for name, share in heights.items()
    }
    share = _round_down(peak)
    beyond = int((shape.took > widest * MS).sum()) / len(shape.took)
    return {
        "budget": bar,
        "title": {"y": floor + 36, "words": _title(shape, widest)},
        "share": {"y": round(floor - TALL * share / peak, 1), "words": f"{share * 100:g} %"},
        "shape": outlines["shape"],
        "ghost": outlines.get("ghost"),
        "was": _was(old, widest) if old is not None and "ghost" in outlines else "",
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
        "height": floor + 62,
    }


def spent(shape: Shape, budget: float, network: float) -> dict[str, float]:
    """The P95 in parts that add up: the rule's wait, the GPU, the rest with the network."""
    p95, gpu = shape.p95 / MS, shape.batch_time / MS
    dock = max(min(shape.dock_p95 / MS, p95 - gpu), 0.0)
    parts = {"dock wait P95": dock, "GPU": gpu, "queue and network": p95 - dock - gpu + network}
    rest = budget - sum(parts.values())
    return {**parts, "reserve left": rest} if rest > 0 else parts


def _was(old: Shape, widest: float) -> str:
    here = old.p50 <= widest * MS
    return f"grey: {old.choice.words()}{'' if here else ' (most of it lies beyond this axis)'}"


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
    points = [[LEFT, floor]]
    for i, height in enumerate(heights):
        y = round(floor - float(height), 1)
        if y != points[-1][1]:
            x = round(LEFT + i * step, 1)
            points += [[x, points[-1][1]], [x, y]]
    if points[-1][1] != floor:
        points += [[RIGHT, points[-1][1]], [RIGHT, floor]]
    return points


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
