"""One instant of the lanes: the totals so far, and the line of text that says so."""

from math import ceil
from typing import Any

from labkit.core.units import MS
from labkit.viz.lanes_segments import Segments
from labkit.viz.words import instant

Total = tuple[str, str, str]

LEAST_APART = 70
"""Pixels between two numbers of the time axis."""


def idle(panel: dict[str, Any], at: int, *kinds: str) -> int:
    """GPU-microseconds until `at` that GPUs of the panel spent in gaps of these kinds."""
    return sum(
        max(min(gap["end"], at) - gap["start"], 0) for gap in panel["gaps"] if gap["kind"] in kinds
    )


def waiting(panel: dict[str, Any], name: str, at: int) -> tuple[int, int]:
    """How many of a class wait, and the longest that one has waited so far (microseconds)."""
    _, count, first, longest = [row for row in panel["waits"][name] if row[0] <= at][-1]
    return count, max(longest, at - first if first is not None else 0)


def lost(panel: dict[str, Any], at: int) -> int:
    """How many requests had lost their batch by then."""
    return sum(bar["size"] for bar in panel["bars"] if bar["lost"] and bar["end"] <= at)


def totals(panel: dict[str, Any], at: int) -> list[Total]:
    """The running totals beside the lanes: label, value, and `big`, `red` or nothing."""
    idle_ms = f"{idle(panel, at, 'idle', 'drain') // MS:,} GPU-ms"
    drain_ms = f"{idle(panel, at, 'drain') // MS:,} GPU-ms"
    if panel["gangs"]:
        rows = [("idle so that one could run", drain_ms, "big"), ("idle in all", idle_ms, "")]
    else:
        rows = [("idle so far", idle_ms, "big")]
    for name in panel["waits"]:
        count, longest = waiting(panel, name, at)
        label = f"{name} waiting" if len(panel["waits"]) > 1 else "waiting"
        rows.append((label, f"{count:,} · longest {instant(longest)}", ""))
    if panel["losses"]:
        rows.append(("lost with a batch", f"{lost(panel, at):,}", "red"))
    return rows


def receipt(panel: dict[str, Any], at: int) -> str:
    """The last thing that happened; once anything was out of the ordinary, the last such thing.

    At the end of all, the last of what mattered most.
    """
    said = [event for event in panel["events"] if event["at"] <= at]
    most = max((event["rank"] for event in said), default=0)
    least = most if at >= panel["horizon"] else min(most, 1)
    told = [event["text"] for event in said if event["rank"] >= least]
    return str(told[-1]) if told else "Nothing has started yet."


def caption(segments: Segments, at: int) -> str:
    """The picture in one line of text."""
    told = []
    for panel in segments["panels"]:
        begun = [bar for bar in panel["bars"] if bar["start"] <= at]
        gangs = sum(bar["gang"] for bar in begun)
        many = f", {gangs} of them on several GPUs at once" if gangs else ""
        rows = "; ".join(f"{label}: {value}" for label, value, _ in totals(panel, at))
        title = f"{panel['title']}: " if panel["title"] else ""
        batches = "1 batch" if len(begun) == 1 else f"{len(begun):,} batches"
        gpus = "1 GPU" if len(panel["gpus"]) == 1 else f"{len(panel['gpus'])} GPUs"
        told.append(f"{title}{batches} on {gpus}{many}; {rows}. {receipt(panel, at)}")
    return f"Lanes at {instant(at)}. " + " ".join(told)


def ticks(first: int, last: int, width: float) -> list[int]:
    """Round instants of a window, far enough apart to be read on so many pixels."""
    most = (last - first) * LEAST_APART / width
    steps = (one * 10**power for power in range(3, 12) for one in (1, 2, 5))
    step = next(step for step in steps if step >= most)
    return [step * i for i in range(ceil(first / step), last // step + 1)]
