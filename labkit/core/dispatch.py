"""Which GPU takes the next batch, and how many batches a GPU may hold unstarted."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol, assert_never

from labkit.core.settings import ConfigError, Settings
from labkit.core.units import NEVER


class Rng(Protocol):
    """The one method of `random.Random` that the core uses; always passed in."""

    def random(self) -> float:
        """A float in [0, 1)."""


class Slot:
    """One GPU in the dispatcher's own books.

    `running`: the batch on it. `backlog`: batches bound to it and not started. `since`: when it
    last became idle or busy, microseconds. A slot lives as long as one epoch of its GPU.
    """

    __slots__ = ("backlog", "draining", "gpu", "running", "since")

    def __init__(self, gpu: int, since: int) -> None:
        self.gpu = gpu
        self.since = since
        self.running: int | None = None
        self.backlog: deque[int] = deque()
        self.draining = False

    @property
    def load(self) -> int:
        """Batches it runs or holds."""
        return len(self.backlog) + (self.running is not None)

    def has_room(self, backlog: int) -> bool:
        """Whether one more batch may be bound to it now."""
        return not self.draining and (self.running is None or len(self.backlog) < backlog)


class Chooser(Protocol):
    """Picks one of the slots that have room; is asked only when a batch will depart."""

    def choose(self, room: Sequence[Slot]) -> Slot:
        """One of `room`, which is not empty and is ordered by GPU number."""


class LeastLoaded:
    """The GPU with the fewest batches; of equals, the one that has been so longest."""

    def choose(self, room: Sequence[Slot]) -> Slot:
        """Fair ties keep a slow GPU from being everybody's first choice."""
        return min(room, key=_load_and_since)


def _load_and_since(slot: Slot) -> tuple[int, int]:
    return slot.load, slot.since


class TwoChoices:
    """The less loaded of two GPUs picked at random (Mitzenmacher 2001)."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng

    def choose(self, room: Sequence[Slot]) -> Slot:
        """Two different GPUs when there are two."""
        first = int(self.rng.random() * len(room))
        if len(room) == 1:
            return room[0]
        second = int(self.rng.random() * (len(room) - 1))
        pair = (room[first], room[second + (second >= first)])
        return min(pair, key=_load_and_since)


class RoundRobin:
    """Each GPU in turn, however slow or busy it is."""

    def __init__(self) -> None:
        self.last = -1

    def choose(self, room: Sequence[Slot]) -> Slot:
        """The next GPU number after the last one chosen, from the start again at the end."""
        slot = next((slot for slot in room if slot.gpu > self.last), room[0])
        self.last = slot.gpu
        return slot


class RandomChoice:
    """Any GPU with equal chance."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng

    def choose(self, room: Sequence[Slot]) -> Slot:
        """One draw a batch."""
        return room[int(self.rng.random() * len(room))]


def chooser_from(settings: Settings, rng: Rng | None) -> Chooser:
    """The chooser that the settings name; the random ones need an rng."""
    match settings.dispatch:
        case "least_loaded":
            return LeastLoaded()
        case "round_robin":
            return RoundRobin()
        case "two_choices" | "random" if rng is None:
            raise ConfigError(
                f"dispatch {settings.dispatch!r} draws at random: pass rng=random.Random(seed)"
            )
        case "two_choices":
            return TwoChoices(rng)
        case "random":
            return RandomChoice(rng)
    assert_never(settings.dispatch)


class Pool:
    """The GPUs that serve one model version, and which of them have room.

    `open` says whether any has; it is kept current so that an arrival need not look.
    """

    def __init__(self, chooser: Chooser, backlog: int | None) -> None:
        self.chooser = chooser
        self.backlog = NEVER if backlog is None else backlog
        self.slots: dict[int, Slot] = {}
        self.open = False

    def add(self, slot: Slot) -> None:
        """A GPU came up."""
        self.slots[slot.gpu] = slot
        self.slots = dict(sorted(self.slots.items()))
        self.look()

    def remove(self, gpu: int) -> Slot:
        """A GPU's epoch is over."""
        slot = self.slots.pop(gpu)
        self.look()
        return slot

    def look(self) -> None:
        """Bring `open` up to date after a slot changed."""
        backlog = self.backlog
        for slot in self.slots.values():
            if slot.has_room(backlog):
                self.open = True
                return
        self.open = False

    def pick(self) -> Slot:
        """The slot for a batch that departs now; call only while `open`."""
        backlog = self.backlog
        if not backlog:
            idle = [s for s in self.slots.values() if s.running is None and not s.draining]
            return self.chooser.choose(idle)
        return self.chooser.choose([s for s in self.slots.values() if s.has_room(backlog)])

    def startable(self) -> Slot | None:
        """An idle GPU that holds a batch it has not started."""
        if not self.backlog:
            return None  # under pull a GPU holds nothing that it has not started
        return next((s for s in self.slots.values() if s.backlog and s.running is None), None)
