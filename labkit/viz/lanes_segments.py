"""Everything the lanes draw over time, computed once from a trace; JSON-able, microseconds."""

from collections.abc import Mapping
from typing import Any

from labkit.core.trace import Trace
from labkit.core.units import MS
from labkit.viz import words
from labkit.viz.lanes_reader import LaneReader
from labkit.viz.layout import WIDTH

Segments = dict[str, Any]

LEFT, RIGHT = 58, 556
TOTALS = 580
TITLE_HEIGHT = 24
PITCHES = ((8, 22, 16), (16, 15, 10), (40, 9, 6))
"""Up to so many lanes: pixels from one to the next, and the height of a bar."""

AXIS_HEIGHT = 40
TOTAL_HEIGHT = 40
LONGEST_REPLAY_SECONDS = 60
LEAST_WINDOW = 1_000


def lane_segments(
    traces: Trace | Mapping[str, Trace],
    window: tuple[int, int] | None = None,
    pace: int | None = None,
) -> Segments:
    """What the lanes draw for one trace, or for several under their titles on one time axis.

    `window`: the first and last instant that show, everything by default. `pace`: microseconds of
    the trace that one second of replay shows at speed 1. The dict holds `panels` (see `_panel`),
    `instants` (when something starts or ends), `horizon`, `window`, `pace`.
    """
    named = dict(traces) if isinstance(traces, Mapping) else {"": traces}
    if not named:
        raise ValueError("no trace to draw: give one, or a dict of title and trace")
    readers = [LaneReader(title, trace) for title, trace in named.items()]
    horizon = max(reader.ends_at() for reader in readers)
    slowest = max(trace.settings.batch_time for trace in named.values()) // 2
    panels, top = [], 0
    for reader in readers:
        panel = _panel(reader, horizon)
        panel["offset"] = top
        top += panel["layout"]["height"]
        panels.append(panel)
    return {
        "panels": panels,
        "instants": sorted({0, horizon}.union(*(reader.instants for reader in readers))),
        "horizon": horizon,
        "window": _window(window, horizon),
        "pace": pace or max(slowest, horizon // LONGEST_REPLAY_SECONDS),
        "left": LEFT,
        "right": RIGHT,
        "totals": TOTALS,
        "axis": top,
        "width": WIDTH,
        "height": top + AXIS_HEIGHT,
    }


def _window(window: tuple[int, int] | None, horizon: int) -> list[int]:
    first, last = window or (0, horizon)
    if not 0 <= first <= last - LEAST_WINDOW:
        raise ValueError(
            f"window {first} to {last} us: must begin at 0 or later and last "
            f"{LEAST_WINDOW} us or more"
        )
    return [min(first, horizon - LEAST_WINDOW) if horizon > LEAST_WINDOW else 0, min(last, horizon)]


def _panel(reader: LaneReader, horizon: int) -> dict[str, Any]:
    """One pool of GPUs as plain values.

    `bars`: batches with the runs of neighbouring lanes they hold and what is written on them;
    `gaps`: what each lane does between them, of kind `idle`, `drain` (idle so that one batch could
    have all its GPUs), `died` or `stopped`; `waits` and `events` as the reader has them.
    """
    gpus = sorted(reader.joined)
    lane_of = {gpu: lane for lane, gpu in enumerate(gpus)}
    for bar in reader.bars:
        bar["end"] = horizon if bar["end"] is None else bar["end"]
    bars = [_bar(bar, lane_of) for bar in reader.bars]
    gaps = [gap for gpu in gpus for gap in _gaps(reader, gpu, lane_of[gpu], horizon)]
    gangs, losses = (any(bar[key] for bar in bars) for key in ("gang", "lost"))
    totals = 1 + gangs + len(reader.waits) + losses
    return {
        "title": reader.title,
        "gpus": gpus,
        "bars": bars,
        "gaps": gaps,
        "waits": reader.waits,
        "events": _with_costs(reader, gaps, lane_of),
        "horizon": horizon,
        "gangs": gangs,
        "losses": losses,
        "layout": _layout(len(gpus), bool(reader.title), totals),
    }


def _bar(bar: dict[str, Any], lane_of: Mapping[int, int]) -> dict[str, Any]:
    """A batch: its runs of lanes, [first, last] each, and how far it is beyond its plan."""
    runs: list[list[int]] = []
    for lane in (lane_of[gpu] for gpu in bar["gpus"]):
        if runs and runs[-1][1] == lane - 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    late = bar["end"] - bar["planned"]
    return {
        "id": bar["id"],
        "runs": runs,
        "start": bar["start"],
        "end": bar["end"],
        "planned": min(bar["planned"], bar["end"]) if late > _slack(bar) else bar["end"],
        "size": bar["size"],
        "gang": bar["gang"],
        "retry": bar["retry"],
        "lost": bar["lost"],
        "labels": words.bar_labels(bar),
        "late": [f"+{words.instant(late)}", f"+{late // MS:,}"] if late > _slack(bar) else [],
    }


def _slack(bar: dict[str, Any]) -> float:
    return 0.2 * (bar["planned"] - bar["start"])


def _gaps(reader: LaneReader, gpu: int, lane: int, horizon: int) -> list[dict[str, Any]]:
    """Every stretch of one lane without a batch, in order."""
    taken: list[tuple[int, int, str | None]] = [
        (bar["start"], bar["end"], None) for bar in reader.bars if gpu in bar["gpus"]
    ]
    taken += [(a, min(b, horizon), why) for a, b, why in reader.downs.get(gpu, ())]
    held = {
        bar["start"]: _held_from(reader, bar)
        for bar in reader.bars
        if bar["gang"] and gpu in bar["gpus"]
    }
    gaps = []
    free = reader.joined[gpu]
    for start, end, why in [*sorted(taken, key=lambda row: row[:2]), (horizon, horizon, None)]:
        if start > free:
            cut = min(max(held.get(start, start), free), start)
            gaps += [_gap(lane, free, cut, "idle"), _gap(lane, cut, start, "drain")]
        if why:
            gaps.append(_gap(lane, start, end, why, _lost_at(reader, gpu, start)))
        free = max(free, end)
    return [gap for gap in gaps if gap["end"] > gap["start"]]


def _lost_at(reader: LaneReader, gpu: int, now: int) -> int:
    """How many were aboard when this GPU went down."""
    lost = (bar for bar in reader.bars if bar["lost"] and bar["end"] == now and gpu in bar["gpus"])
    return sum(bar["size"] for bar in lost)


def _gap(lane: int, start: int, end: int, kind: str, lost: int = 0) -> dict[str, Any]:
    labels = {
        "idle": [],
        "drain": [f"{words.instant(end - start)} idle", words.instant(end - start)],
        "died": [f"down · {lost:,} lost", "down"] if lost else ["down"],
        "stopped": ["stopped"],
    }
    return {"lane": lane, "start": start, "end": end, "kind": kind, "labels": labels[kind]}


def _held_from(reader: LaneReader, gang: dict[str, Any]) -> int:
    """From when on a GPU that fell idle was kept for this batch.

    Its first request was there by then, and after that nothing smaller started on its GPUs.
    """
    own = set(gang["gpus"])
    before = [
        bar["start"]
        for bar in reader.bars
        if bar is not gang and bar["start"] <= gang["start"] and own & set(bar["gpus"])
    ]
    return max([gang["since"], *before])


def _with_costs(
    reader: LaneReader, gaps: list[dict[str, Any]], lane_of: Mapping[int, int]
) -> list[dict[str, Any]]:
    """The events, and with each batch on several GPUs what their waiting for each other cost."""
    told = {words.start_sentence(bar, bar["start"]): bar for bar in reader.bars if bar["gang"]}
    events = []
    for event in reader.events:
        if bar := told.get(event["text"]):
            lanes = {lane_of[gpu] for gpu in bar["gpus"]}
            cost = sum(
                gap["end"] - gap["start"]
                for gap in gaps
                if gap["kind"] == "drain" and gap["end"] == bar["start"] and gap["lane"] in lanes
            )
            event = {**event, "text": words.start_sentence(bar, bar["start"], cost)}
        events.append(event)
    return events


def _layout(lanes: int, titled: bool, totals: int) -> dict[str, Any]:
    """Where one panel's parts stand, from its top edge down, beside so many totals."""
    pitch, height = next(
        ((pitch, height) for most, pitch, height in PITCHES if lanes <= most), (0, 0)
    )
    if not pitch:
        raise ValueError(f"{lanes} GPUs: at most {PITCHES[-1][0]} lanes can be told apart")
    top = TITLE_HEIGHT if titled else 4
    floor = top + max(lanes * pitch, TOTAL_HEIGHT * totals)
    return {
        "top": top,
        "pitch": pitch,
        "bar": height,
        "named": 1 if pitch >= 15 else 4,
        "floor": floor,
        "height": floor + 32,
    }
