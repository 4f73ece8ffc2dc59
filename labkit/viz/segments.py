"""Everything the dock draws over time, computed once from a trace; JSON-able, microseconds."""

from collections.abc import Mapping
from typing import Any

from labkit.core.trace import Trace
from labkit.core.units import NEVER
from labkit.viz import words
from labkit.viz.layout import MAX_LANES, WIDTH, axis_layout, dock_layout
from labkit.viz.reader import Reader, place

Segments = dict[str, Any]

OPEN = 1 << 52
"""The end of what has not ended: `NEVER` for the script, whose whole numbers end at 2 ** 53."""

BADGE_SECONDS = 0.5
LONGEST_REPLAY_SECONDS = 60


def dock_segments(traces: Trace | Mapping[str, Trace], pace: int | None = None) -> Segments:
    """What the dock draws for one trace, or for several under their titles on one time axis.

    `pace`: microseconds of the trace that one second of replay shows at speed 1. The dict holds
    `docks` (see `_drawn`), `axis`, `instants` (when anything happens), `horizon`, `pace`.
    """
    titled = isinstance(traces, Mapping)
    named = (
        dict(traces) if isinstance(traces, Mapping) else {words.rule_words(traces.settings): traces}
    )
    if not named:
        raise ValueError("no trace to draw: give one, or a dict of title and trace")
    readers = [Reader(title, trace) for title, trace in named.items()]
    horizon = max(reader.ends_at() for reader in readers)
    if pace is None:
        slowest = max(trace.settings.batch_time for trace in named.values()) // 2
        pace = max(slowest, horizon // LONGEST_REPLAY_SECONDS)
    docks, top = [], 0
    for reader in readers:
        dock = _drawn(reader, titled)
        dock["offset"] = top
        top += dock["layout"]["height"]
        docks.append(dock)
    axis = {**axis_layout(len(docks)), "offset": top}
    return {
        "docks": docks,
        "axis": axis,
        "instants": sorted({0, horizon}.union(*(reader.instants for reader in readers))),
        "horizon": horizon,
        "pace": pace,
        "badge": round(BADGE_SECONDS * pace),
        "width": WIDTH,
        "height": top + axis["height"],
    }


def _drawn(reader: Reader, titled: bool) -> dict[str, Any]:
    """One dock as plain values.

    `passengers` (one row for each stay on the bank, in boarding order), `boats` with their
    lane, `timers` (from when until when the bar counts whose arrival), `free` (how many boats
    are at the dock, from each instant on), `downs` of each lane's GPU, `events` to read out,
    `layout`.
    """
    gpus = sorted(reader.downs)
    lanes = _assign_lanes(reader.boats, gpus)
    own = len(gpus) <= MAX_LANES
    for boat in reader.boats:
        boat["end"] = OPEN if boat["end"] is None else boat["end"]
    ranked = sorted(reader.passengers, key=place)
    return {
        "title": reader.title if titled else "",
        "rule": reader.settings.rule,
        "words": words.rule_words(reader.settings),
        "max_batch": reader.settings.max_batch,
        "max_wait": reader.settings.max_wait if reader.settings.rule == "ferry" else None,
        "passengers": [_plain(passenger) for passenger in ranked],
        "boats": reader.boats,
        "timers": [{**timer, "until": min(timer["until"], OPEN)} for timer in reader.timers],
        "free": reader.free or [[0, 0]],
        "gpus": gpus if own else None,
        "downs": [[[a, min(b, OPEN)] for a, b in reader.downs[gpu]] for gpu in gpus if own],
        "events": reader.events,
        "layout": dock_layout(reader.settings.max_batch, lanes, titled),
    }


def _plain(passenger: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in passenger.items() if key != "request"}


def _assign_lanes(boats: list[dict[str, Any]], gpus: list[int]) -> int:
    """Give each boat a lane: its GPU's own while they are few, else the first one free."""
    if len(gpus) <= MAX_LANES:
        for boat in boats:
            boat["lane"] = gpus.index(boat["gpu"])
        return max(len(gpus), 1)
    busy_until: list[int] = []
    for boat in boats:
        end = NEVER if boat["end"] is None else boat["end"]
        free = (lane for lane, until in enumerate(busy_until) if until <= boat["start"])
        boat["lane"] = next(free, len(busy_until))
        busy_until[boat["lane"] :] = [end, *busy_until[boat["lane"] + 1 :]]
    return max(len(busy_until), 1)
