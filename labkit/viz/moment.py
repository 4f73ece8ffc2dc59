"""One instant of the dock: who is where, and the line of text that says so."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from labkit.core.units import MS
from labkit.viz.segments import Segments
from labkit.viz.words import instant

MOST_LOOKS = 200
"""Instants tried in the search for a telling one."""

TURNED_AWAY = ("rejected", "expired", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class Moment:
    """The rows of one dock's segments that show at one instant, after all that happened then.

    `waited`: how long the longest waiter has waited, None when nobody waits; `free`: boats at the
    dock; `leaving`: the boat whose badge is up; `receipt`: the last thing that happened; `gone`:
    how many have ended without an answer.
    """

    at: int
    bank: tuple[dict[str, Any], ...]
    aboard: tuple[dict[str, Any], ...]
    out: tuple[dict[str, Any], ...]
    free: int
    waited: int | None
    leaving: dict[str, Any] | None
    receipt: str
    gone: int


def moment(segments: Segments, dock: dict[str, Any], at: int) -> Moment:
    """What one of the segments' docks shows at an instant in microseconds."""
    here = [row for row in dock["passengers"] if row["since"] <= at and not _over(row, at)]
    aboard = [row for row in here if row["boarded"] is not None and row["boarded"] <= at]
    out = [boat for boat in dock["boats"] if boat["start"] <= at < boat["end"]]
    leaving = [b for b in dock["boats"] if b["start"] <= at < b["start"] + segments["badge"]]
    timer = [row for row in dock["timers"] if row["since"] <= at < row["until"]]
    said = [event["text"] for event in dock["events"] if event["at"] <= at]
    return Moment(
        at=at,
        bank=tuple(row for row in here if row not in aboard),
        aboard=tuple(aboard),
        out=tuple(out),
        free=[count for since, count in dock["free"] if since <= at or since == 0][-1],
        waited=at - timer[0]["arrived"] if timer else None,
        leaving=leaving[-1] if leaving else None,
        receipt=said[-1] if said else "Nobody has left yet.",
        gone=sum(1 for row in dock["passengers"] if _turned_away(row, at)),
    )


def telling_instant(segments: Segments) -> int:
    """The instant that shows most at once: people aboard, on the bank, and boats out."""
    instants = segments["instants"]
    between = [(a + b) // 2 for a, b in pairwise(instants)]
    candidates = [0, *between[:: 1 + len(between) // MOST_LOOKS]]
    return max(candidates, key=lambda at: (_shows(segments, at), -at))


def caption(segments: Segments, at: int) -> str:
    """The picture in one line of text: for screens that read aloud, and where no picture shows."""
    told = []
    for dock in segments["docks"]:
        now = moment(segments, dock, at)
        title = f"{dock['title']}: " if dock["title"] else ""
        told.append(f"{title}{_state(dock, now)} {now.receipt}")
    return f"Dock at {instant(at)}. " + " ".join(told)


def _state(dock: dict[str, Any], now: Moment) -> str:
    aboard = f"{len(now.aboard)} of {dock['max_batch']} seats taken"
    waited = "nobody waits" if now.waited is None else f"the first has waited {instant(now.waited)}"
    if now.waited is not None and dock["max_wait"] is not None:
        waited = f"the first has waited {now.waited // MS:,} of {instant(dock['max_wait'])}"
    boats = f"{len(now.out)} {'boat' if len(now.out) == 1 else 'boats'} out"
    return f"{aboard}, {len(now.bank)} on the bank, {boats}; {waited}."


def _over(row: dict[str, Any], at: int) -> bool:
    return any(row[key] is not None and row[key] <= at for key in ("left", "ended"))


def _turned_away(row: dict[str, Any], at: int) -> bool:
    return row["outcome"] in TURNED_AWAY and row["ended"] <= at


def _shows(segments: Segments, at: int) -> float:
    total = 0.0
    for dock in segments["docks"]:
        now = moment(segments, dock, at)
        total += 4 * len(now.aboard) / dock["max_batch"] + bool(now.bank)
        total += min(len(now.out), 2) + 3 * bool(now.aboard and now.out)
    return total


# -- the words, which the script repeats ---------------------------------------------------------


def timer_words(dock: dict[str, Any], now: Moment) -> str:
    """What stands under the timer bar."""
    if dock["max_wait"] is not None:
        limit = instant(dock["max_wait"])
        if now.waited is None:
            return f"0 of {limit}"
        return f"the first has waited {now.waited // MS:,} of {limit}"
    if now.waited is None:
        return "no timer"
    return f"no timer; the first has waited {instant(now.waited)}"


def seat_words(dock: dict[str, Any], now: Moment) -> str:
    """What stands under the boat."""
    if now.free:
        more = f" · {now.free - 1} more free" if now.free > 1 else ""
        return f"{len(now.aboard)} of {dock['max_batch']} seats{more}"
    if not now.out:
        return "no boat"
    back = min(boat["planned"] for boat in now.out) - now.at
    return f"no boat: the next is back in {instant(max(back, 0))}"


def boat_words(boat: dict[str, Any], roomy: bool) -> str:
    """What stands beside a boat that is out."""
    if roomy:
        return f"boat {boat['id']} · {boat['size']} aboard · {boat['badge']}"
    return f"{boat['size']} · {boat['badge']}"


def lane_words(dock: dict[str, Any], lane: int, down: bool, roomy: bool) -> str:
    """What stands in a lane with no boat in it."""
    if dock["gpus"] is None:
        return ""
    name = f"GPU {dock['gpus'][lane]}"
    if down:
        return f"{name} is down"
    return f"{name} is at the dock" if roomy else name


def lane_is_down(dock: dict[str, Any], lane: int, at: int) -> bool:
    """Whether this lane's GPU serves nobody at an instant."""
    return any(a <= at < b for a, b in dock["downs"][lane]) if dock["downs"] else False


def bank_words(now: Moment) -> str:
    """What stands under the bank."""
    waiting = f"{len(now.bank)} wait" if len(now.bank) != 1 else "1 waits"
    words = [waiting if now.bank else "nobody waits here"]
    if now.gone:
        words.append(f"{now.gone} turned away")
    return " · ".join(words)
