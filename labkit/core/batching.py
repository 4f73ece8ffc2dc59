"""When a batch leaves: the ferry rule, and the two rules it beats."""

from typing import Protocol, assert_never

from labkit.core.settings import Settings
from labkit.core.units import NEVER


class Bank(Protocol):
    """What a rule may look at: how many wait, and since when the first of them."""

    depth: int
    oldest_at: int


class Rule(Protocol):
    """States WHEN the bank's next batch is due, never how long to sleep."""

    max_batch: int

    def due_at(self, bank: Bank) -> int:
        """The instant from which a batch may leave, `NEVER` while none may."""


class FerryRule:
    """Leave when full, or when the first aboard has waited `max_wait` microseconds."""

    __slots__ = ("max_batch", "max_wait")

    def __init__(self, max_batch: int, max_wait: int) -> None:
        self.max_batch = max_batch
        self.max_wait = max_wait

    def due_at(self, bank: Bank) -> int:
        """Already due when a batch is full; else when the oldest has waited its time."""
        if bank.depth >= self.max_batch or not bank.depth:
            return bank.oldest_at
        return bank.oldest_at + self.max_wait


class LeaveAtOnce:
    """A foil: leave with whoever is there, however few."""

    __slots__ = ("max_batch",)

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch

    def due_at(self, bank: Bank) -> int:
        """As soon as anybody waits."""
        return bank.oldest_at


class WaitUntilFull:
    """A foil: leave only when every seat is taken, however long that takes."""

    __slots__ = ("max_batch",)

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch

    def due_at(self, bank: Bank) -> int:
        """When full, else never."""
        return bank.oldest_at if bank.depth >= self.max_batch else NEVER


OURS = (FerryRule, LeaveAtOnce, WaitUntilFull)
"""Rules that look only at the oldest, and at whether there is a full batch."""


def rule_from(settings: Settings) -> Rule:
    """The rule that the settings name."""
    match settings.rule:
        case "ferry":
            return FerryRule(settings.max_batch, settings.max_wait)
        case "at_once":
            return LeaveAtOnce(settings.max_batch)
        case "full":
            return WaitUntilFull(settings.max_batch)
    assert_never(settings.rule)
