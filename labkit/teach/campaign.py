"""A campaign of faults: thousands of seeded runs of a whole service, every law at every step."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from labkit.core.mapping import MAX_LOSSES
from labkit.core.settings import PATIENT, Settings, TierRule
from labkit.core.trace import Step, Trace, write_jsonl
from labkit.core.units import MS, NEVER, S
from labkit.teach.laws import LawBroken
from labkit.teach.world import Event, Parts, Schedule, lives

CALLS = 68
"""Clients' first calls in a run; with what follows from them it comes to about 300 events."""

SPAN = 1_600
"""Milliseconds over which they come."""

SMALL = 12
"""Steps of a trace that a person reads in one go."""

MOST_SMALL = 400
"""Small schedules that are tried from scratch."""

TROUBLE = ("straggle", "late", "hang", "kill", "short", "raise")
MOST_MOVES = 6

MOST_SHRUNK = 20
"""Failing runs that are made small; whoever has more has read enough."""

NOT_BACK = 60 * S
"""A GPU that is back after so long might as well not be."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Catch:
    """A schedule that breaks a law; the traces, one a life of the dispatcher, end with it."""

    schedule: Schedule
    broken: LawBroken
    traces: list[Trace]

    @property
    def steps(self) -> int:
        """How many verbs the schedulers were told."""
        return sum(len(trace.steps) for trace in self.traces)


# -- drawing --------------------------------------------------------------------------------------


class _Draw:
    """Choices from one stream of `random()`, the same on every machine."""

    def __init__(self, rng: Random) -> None:
        self.random = rng.random

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def one(self, choices: tuple[T, ...]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, share: float) -> bool:
        return self.random() < share


def draw(seed: int, run: int) -> Schedule:
    """The schedule of one run; the same for the same two numbers, anywhere."""
    dice = _Draw(Random(seed * 1_000_003 + run))
    settings = _settings(dice)
    gpus = max(1 + dice.below(4), len(settings.models))
    calls = [_call(dice, number, settings) for number in range(CALLS)]
    others = [event for call in calls for event in _about(dice, call)]
    faults = [_fault(dice, gpus) for _ in range(6 + dice.below(16))]
    faults += [Event(dice.below(SPAN) * MS, "disk_full") for _ in range(dice.below(3))]
    crashes = [Event(dice.below(SPAN) * MS, "crash") for _ in range(dice.below(3))]
    events = sorted([*calls, *others, *faults, *crashes], key=lambda event: event.at)
    return Schedule(settings, gpus, tuple(events))


def _settings(dice: _Draw) -> Settings:
    max_batch = 1 + dice.below(4)
    patience = (NEVER, NEVER, 150 * MS, 400 * MS)
    return Settings(
        max_batch=max_batch,
        max_wait=dice.one((0, 20 * MS, 50 * MS)),
        rule=dice.one(("ferry", "ferry", "ferry", "at_once")),
        dispatch=dice.one(("least_loaded", "least_loaded", "round_robin", "random")),
        backlog=dice.one((0, 0, 0, 1, None)),
        depth_limit=dice.one((None, max_batch + 2, 8)),
        overdue_after=250 * MS,
        tiers=(TierRule("paid", dice.one(patience)), TierRule("free", dice.one(patience))),
        models=dice.one((("ferry",), ("ferry",), ("ferry", "barge"))),
    )


def _call(dice: _Draw, number: int, settings: Settings) -> Event:
    # Bursts and quiet stretches: half of the calls keep company with another.
    at = dice.below(SPAN) if dice.chance(0.5) else 40 * dice.below(SPAN // 40)
    key = dice.chance(0.7)
    return Event(
        at * MS,
        "call",
        number,
        key=key,
        size=dice.one((1, 1, 1, 1, 1, 2, 3)) if key else 1,
        tier=dice.below(2),
        tenant=dice.one(("A", "A", "B")),
        model=dice.one(settings.models),
        patience=dice.one((NEVER, NEVER, NEVER, 60 * MS, 150 * MS)),
        nature=dice.one(("ok",) * 60 + ("kills", "raises", "raises")),
    )


def _about(dice: _Draw, call: Event) -> Iterator[Event]:
    """What else this client does: ask again, ask something else, leave, or come back later."""
    if call.key and dice.chance(0.35):
        yield Event(call.at + dice.below(400) * MS, "again", call.number)
    if call.key and dice.chance(0.08):
        yield Event(call.at + dice.below(300) * MS, "other", call.number)
    if dice.chance(0.12):
        yield Event(call.at + dice.below(250) * MS, "leave", call.number)
    if call.key and dice.chance(0.06):
        yield Event(call.at + dice.below(150) * MS, "wait_over", call.number)


def _fault(dice: _Draw, gpus: int) -> Event:
    kinds = ("kill", "kill", "kill", "hang", "late", "straggle", "raise", "short", "row", "drain")
    return Event(dice.below(SPAN) * MS, dice.one(kinds), dice.below(gpus))  # type: ignore[arg-type]


def _small(settings: Settings, number: int) -> Schedule:
    """A few calls and troubles close together: what a person would try first."""
    dice = _Draw(Random(number))
    gpus = max(1 + dice.below(2), len(settings.models))
    calls = [_call(dice, n, settings) for n in range(2 + dice.below(3))]
    calls = [replace(call, at=dice.below(3) * 10 * MS, nature="ok") for call in calls]
    others = [replace(e, at=dice.below(20) * 10 * MS) for call in calls for e in _about(dice, call)]
    faults = [
        replace(_fault(dice, gpus), at=dice.below(3) * 10 * MS) for _ in range(1 + number % 2)
    ]
    events = sorted([*faults, *calls, *others], key=lambda event: event.at)
    return Schedule(settings, gpus, tuple(events), faithful=False)


# -- running --------------------------------------------------------------------------------------


def catch(schedule: Schedule, parts: Parts | None = None) -> Catch | None:
    """Run a schedule; None when no law is broken."""
    broken, traces = lives(schedule, parts)
    return None if broken is None else Catch(schedule, broken, traces)


def hunt(parts: Parts, seed: int = 1, runs: int = 200) -> tuple[int, Catch] | None:
    """The number of the first run in which these parts break a law, and the catch."""
    for run in range(runs):
        if (caught := catch(draw(seed, run), parts)) is not None:
            return run, caught
    return None


def campaign(
    runs: int,
    seed: int,
    parts: Parts | None = None,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda done: None,
    stop_at_first: bool = False,
) -> dict[str, Any]:
    """The report of `labkit faults`; a failing run is shrunk, and kept in `folder` if one is given.

    `steps` counts the verbs that schedulers were told. No more than `MOST_SHRUNK` are shrunk.
    """
    failed: list[dict[str, Any]] = []
    steps = done = 0
    for run in range(runs):
        schedule = draw(seed, run)
        broken, traces = lives(schedule, parts)
        steps += sum(len(trace.steps) for trace in traces)
        done += 1
        progress(done)
        if broken is not None:
            small = Catch(schedule, broken, traces)
            if len(failed) < MOST_SHRUNK:
                small = shrink(small, parts)
            failed.append({"run": run, **_told(small)})
            if folder is not None and len(failed) <= MOST_SHRUNK:
                failed[-1]["files"] = save(small, folder, f"seed{seed}-run{run}")
            if stop_at_first:
                break
    return {
        "runs": done,
        "seed": seed,
        "steps": steps,
        "violations": len(failed),
        "seeds_failed": [one["run"] for one in failed],
        "failures": failed,
    }


def _told(caught: Catch) -> dict[str, Any]:
    """A catch for JSON."""
    return {
        "law": caught.broken.law,
        "what": str(caught.broken),
        "events": len(caught.schedule.events),
        "steps": caught.steps,
    }


# -- shrinking ------------------------------------------------------------------------------------


def shrink(caught: Catch, parts: Parts | None = None, tries: int = 2_000) -> Catch:
    """A smaller schedule that breaks a law: fewer events, then plainer ones.

    Greedy delta debugging: leave out halves, quarters, ... single events for as long as that
    helps. The law stays the same one, unless that leaves more than `SMALL` steps: a fault shows in
    several ways, and the simplest is the one to read. Where even that is long, small schedules are
    looked through from scratch. At most `tries` runs each time, which end where the law breaks.
    """
    return _Shrinker(caught, parts, tries).run()


class _Shrinker:
    def __init__(self, caught: Catch, parts: Parts | None, tries: int) -> None:
        self.best = caught
        self.parts = parts
        self.left = tries
        self.any_law = False

    def run(self) -> Catch:
        now = self.best.broken.now
        self._try(events=tuple(e for e in self.best.schedule.events if e.at <= now))
        self._until_it_helps_no_more()
        if self.best.steps > SMALL:
            self.any_law = True
            self._until_it_helps_no_more()
        if self.best.steps > SMALL:
            self._begin_small()
        return self.best

    def _begin_small(self) -> None:
        """Where leaving out no longer helps, look among small schedules of the same settings."""
        large, spare = self.best, self.left
        for number in range(MOST_SMALL):
            caught = catch(_small(large.schedule.settings, number), self.parts)
            if caught is not None:
                self.best, self.left = caught, spare
                self._until_it_helps_no_more()
                if self.best.steps <= SMALL:
                    return
        self.best = min(large, self.best, key=lambda one: one.steps)

    def _until_it_helps_no_more(self) -> None:
        size: tuple[int, ...] = ()
        while self.left > 0 and size != self._size():
            size = self._size()
            self._fewer_events()
            self._plainer()
            if self.best.steps > SMALL:
                self._move_alone()
                self._fewer_pairs()

    def _size(self) -> tuple[int, int, int]:
        events = self.best.schedule.events
        return (self.best.steps, len(events), sum(event.at for event in events))

    def _try(self, **changes: Any) -> bool:
        """Keep the change if the same law is broken, in no more steps."""
        schedule = replace(self.best.schedule, **changes)
        if self.left <= 0 or schedule == self.best.schedule:
            return False
        if schedule.gpus < len(schedule.settings.models):
            return False
        self.left -= 1
        caught = catch(schedule, self.parts)
        if caught is None:
            return False
        if caught.broken.law != self.best.broken.law and not self.any_law:
            return False
        if caught.steps > self.best.steps and len(schedule.events) >= len(
            self.best.schedule.events
        ):
            return False
        self.best = caught
        return True

    def _fewer_events(self) -> None:
        chunk = max(len(self.best.schedule.events) // 2, 1)
        while chunk:
            start = len(self.best.schedule.events) - chunk
            while start > -chunk and self.left > 0:
                events = self.best.schedule.events
                self._try(events=events[: max(start, 0)] + events[start + chunk :])
                start -= chunk
            chunk //= 2

    def _plainer(self) -> None:
        """One GPU, one model, patient tiers, no window; earlier instants, plainer calls."""
        for gpus in range(1, self.best.schedule.gpus):
            if self._try(gpus=gpus):
                break
        self._try(faithful=False)
        self._try(back_after=NOT_BACK)
        for plain in (
            {"backlog": 0},
            {"rule": "ferry"},
            {"dispatch": "least_loaded"},
            {"depth_limit": None},
            {"tiers": PATIENT},
            {"models": ("ferry",)},
            {"max_wait": 0},
            {"max_batch": 1},
            {"max_batch": 2},
        ):
            self._try_settings(plain)
        for number in range(len(self.best.schedule.events)):
            self._plainer_event(number)
        self._hang_instead()
        self._earlier()

    def _try_settings(self, plain: dict[str, Any]) -> None:
        settings = self.best.schedule.settings
        if plain.get("max_batch", 0) <= settings.max_batch:
            self._try(settings=settings.with_(**plain))

    def _plainer_event(self, number: int) -> None:
        event = self.best.schedule.events[number]
        plain = Event(event.at, event.what, event.number)
        for name in ("size", "patience", "nature", "tier", "tenant", "model", "key"):
            self._replace(number, **{name: getattr(plain, name)})
        if event.what == "kill":
            self._replace(number, what="hang")

    def _hang_instead(self) -> None:
        """A GPU that hangs is told of in one step; one that a request kills in three."""
        events = self.best.schedule.events
        if any(event.nature == "kills" for event in events):
            calls = tuple(replace(event, nature="ok") for event in events)
            for gpus in range(1, MAX_LOSSES + 3):
                hangs = tuple(Event(0, "hang", gpu) for gpu in range(gpus))
                self._try(events=hangs + calls, gpus=gpus, back_after=NOT_BACK)

    def _replace(self, number: int, **changes: Any) -> bool:
        events = list(self.best.schedule.events)
        if number >= len(events):
            return False
        events[number] = replace(events[number], **changes)
        return self._try(events=tuple(sorted(events, key=lambda event: event.at)))

    def _earlier(self) -> None:
        """Close the gaps, so that fewer timers ring in between."""
        for number in range(len(self.best.schedule.events)):
            events = self.best.schedule.events
            gap = events[number].at - (events[number - 1].at if number else 0)
            for less in (gap, gap // 2):
                if less > 0 and self._shift(number, less):
                    break

    def _move_alone(self) -> None:
        """One event at another's instant, or as another kind of trouble."""
        for number, event in enumerate(self.best.schedule.events):
            instants = {0, *(other.at for other in self.best.schedule.events[:number])}
            for at in sorted(instants)[:MOST_MOVES]:
                self._replace(number, at=at)
            if event.what in TROUBLE:
                for what in TROUBLE:
                    self._replace(number, what=what)

    def _fewer_pairs(self) -> None:
        for first, second in combinations(range(len(self.best.schedule.events) - 1, -1, -1), 2):
            events = self.best.schedule.events
            if first < len(events):
                kept = [e for n, e in enumerate(events) if n not in (first, second)]
                self._try(events=tuple(kept))

    def _shift(self, number: int, less: int) -> bool:
        events = self.best.schedule.events
        later = tuple(replace(event, at=event.at - less) for event in events[number:])
        return self._try(events=events[:number] + later)


# -- keeping --------------------------------------------------------------------------------------


def save(caught: Catch, folder: Path, name: str) -> list[str]:
    """Write the schedule, and the trace of each life, which replays in the dock; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    story = {**_told(caught), "schedule": caught.schedule.as_dict()}
    names = [f"{name}.json"]
    (folder / names[0]).write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    for life, trace in enumerate(caught.traces, 1):
        shows_later = caught.broken.now >= NEVER and life == len(caught.traces)
        names.append(f"{name}-life{life}.jsonl" if len(caught.traces) > 1 else f"{name}.jsonl")
        with (folder / names[-1]).open("w", encoding="utf-8") as file:
            write_jsonl(_to_the_end(trace) if shows_later else trace, file)
    return names


def _to_the_end(trace: Trace) -> Trace:
    """The trace, and one `advance` when the last window is over.

    A scheduler that forgets somebody is silent: only where a sound one would speak does it show.
    """
    now = trace.steps[-1].now + trace.settings.max_wait
    return replace(trace, steps=deque([*trace.steps, Step(now, "advance", ())]))


def load(path: Path) -> Schedule:
    """The schedule that `save` wrote."""
    return Schedule.from_dict(json.loads(path.read_text(encoding="utf-8"))["schedule"])
